//! Single callers and addresses: who is exempt, who is refused.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_identity::is_tenant_name;
use tollgate_yaml::{Check, Node, Spanned, Value};

use super::{Compiler, WrittenNames, issuers::listed_tenants};
use crate::{
    CallerList, CallerName,
    file::{RawCaller, RawIdentity},
};

/// A caller in its parts: `issuer/tenant/kind:value`, of which the first two may be left out.
struct WrittenCaller<'w> {
    /// Its position.
    issuer: Option<usize>,
    tenant: Option<&'w str>,
    /// `kind:value`.
    name: &'w str,
    /// The tenants of the issuer that it must be of; none: it has none.
    tenants: Option<&'w Node>,
}

impl<'w> WrittenCaller<'w> {
    fn of(text: &'w str, identity: &'w RawIdentity, names: &WrittenNames<'_>) -> Self {
        let of_issuer = |issuer: &str| text.strip_prefix(issuer)?.strip_prefix('/');
        let mut issuers = names.issuers.names.iter().enumerate();
        let named = issuers.find_map(|(at, issuer)| Some((at, of_issuer(issuer)?)));
        let (issuer, name) = named.map_or((None, text), |(at, name)| (Some(at), name));
        let whose = issuer.or_else(|| (names.vouching == 1).then_some(0));
        // By position: an item of a wrong type is not among them.
        let whose = whose.filter(|_| names.issuers.is_complete);
        let whose = whose.and_then(|at| identity.jwt.get(at));
        let tenants = whose.and_then(|issuer| issuer.value.tenants.as_ref());
        match name.split_once('/') {
            Some((tenant, name)) if tenants.is_some() && !tenant.contains(':') => {
                WrittenCaller { issuer, tenant: Some(tenant), name, tenants }
            }
            _ => WrittenCaller { issuer, tenant: None, name, tenants },
        }
    }
}

impl Compiler<'_> {
    /// `kind:value`, where the kind is the name of an entry of `callers`.
    pub(super) fn caller_name(
        &mut self,
        raw: &Spanned<String>,
        identity: &RawIdentity,
        names: &WrittenNames<'_>,
    ) -> Option<CallerName> {
        let written = WrittenCaller::of(&raw.value, identity, names);
        // It may be the name of an issuer that stands before the slash.
        if written.issuer.is_none() && !names.issuers.is_complete && written.name.contains('/') {
            return None;
        }
        let (kind, value) = match written.name.split_once(':') {
            Some((kind, value)) if !kind.is_empty() && !value.is_empty() => (kind, value),
            _ => {
                let message = format!("`{}` is not a caller", raw.value);
                self.note(raw.span, message, "write an entry of `callers` and a value: user:42");
                return None;
            }
        };
        self.resolve(&Spanned { value: kind.to_owned(), span: raw.span }, &names.callers)?;
        let caller = identity.callers.iter().find(|caller| caller.name.value == kind)?;
        if caller.key.value == "client.ip" {
            return self.caller_address(raw, caller, kind, value);
        }
        if caller.key.value.starts_with("jwt.") {
            self.check_owner(raw, &written, names);
        }
        if let Some(tenant) =
            written.tenant.filter(|tenant| !may_be_tenant(tenant, written.tenants))
        {
            let message = format!("`{tenant}` is no tenant of its issuer");
            let help =
                "write one of `tenants`; names of them have letters, digits, `-`, `_` and `.`";
            self.refuse(raw.span, message, help);
        }
        let tenant = written.tenant.map(Into::into);
        Some(CallerName { kind: kind.into(), value: value.into(), issuer: written.issuer, tenant })
    }

    /// A caller by a claim is one of one issuer, and of one of its tenants.
    fn check_owner(
        &mut self,
        raw: &Spanned<String>,
        written: &WrittenCaller<'_>,
        names: &WrittenNames<'_>,
    ) {
        let name = written.name;
        if written.issuer.is_none() && names.vouching > 1 && names.issuers.is_complete {
            let first = names.issuers.names.first().copied().unwrap_or_default();
            let message = format!("`{name}` may be a caller of any issuer");
            self.refuse(raw.span, message, format!("write whose: {first}/{name}"));
        }
        if written.tenants.is_some() && written.tenant.is_none() {
            let message = format!("`{name}` may be a caller of any tenant");
            self.refuse(raw.span, message, format!("write of which one: TENANT/{name}"));
        }
    }

    /// An address as requests name the caller: IPv6 by the first address of its prefix.
    fn caller_address(
        &mut self,
        raw: &Spanned<String>,
        caller: &RawCaller,
        kind: &str,
        value: &str,
    ) -> Option<CallerName> {
        let Ok(address) = value.parse::<IpAddr>() else {
            let message =
                format!("callers of kind `{kind}` are addresses, and `{value}` is not one");
            self.note(raw.span, message, format!("write one such as {kind}:192.0.2.1"));
            return None;
        };
        let address = match address.to_canonical() {
            IpAddr::V6(address) => {
                let length = caller.ipv6_prefix.as_ref().map_or(64, |prefix| prefix.value);
                IpNet::new(address.into(), length).ok()?.trunc().addr()
            }
            address => address,
        };
        let value = address.to_string().into();
        Some(CallerName { kind: kind.into(), value, issuer: None, tenant: None })
    }

    /// A list of addresses, networks and callers.
    pub(super) fn listed(
        &mut self,
        raw: &[Spanned<String>],
        identity: &RawIdentity,
        names: &WrittenNames<'_>,
    ) -> CallerList {
        let mut listed = CallerList::default();
        for entry in raw {
            if let Some(network) = self.try_network(entry) {
                listed.networks.push(network);
            } else if !entry.value.contains(':') {
                self.note(
                    entry.span,
                    format!("`{}` is not an address, a network or a caller", entry.value),
                    "write one such as 192.0.2.1, 10.0.0.0/8 or user:42",
                );
            } else {
                listed.callers.extend(self.caller_name(entry, identity, names));
            }
        }
        listed
    }
}

/// Whether a tenant of an issuer may be called so, which lists its tenants or takes any.
fn may_be_tenant(name: &str, tenants: Option<&Node>) -> bool {
    let listed = tenants.and_then(listed_tenants);
    let is_it = |own: &Node| matches!(&own.value, Value::String(own) if own == name);
    let is_listed = listed.is_none_or(|listed| listed.iter().any(is_it));
    is_listed && is_tenant_name(name)
}
