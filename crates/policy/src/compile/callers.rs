//! Single callers and addresses: who is exempt, who is refused.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_identity::is_tenant_name;
use tollgate_yaml::{Check, Node, Spanned, Value};

use super::{Compiler, WrittenNames, issuers::listed_tenants};
use crate::{CallerList, CallerName, file::RawIdentity};

impl Compiler<'_> {
    /// `kind:value`, where the kind is the name of an entry of `callers`.
    pub(super) fn caller_name(
        &mut self,
        raw: &Spanned<String>,
        identity: &RawIdentity,
        names: &WrittenNames<'_>,
    ) -> Option<CallerName> {
        let of_issuer =
            |issuer: &str| raw.value.strip_prefix(issuer).and_then(|rest| rest.strip_prefix('/'));
        let mut issuers = names.issuers.names.iter().enumerate();
        let named = issuers.find_map(|(at, issuer)| Some((at, of_issuer(issuer)?)));
        let (issuer, name) =
            named.map_or((None, raw.value.as_str()), |(at, name)| (Some(at), name));
        let whose = issuer.or_else(|| (names.vouching == 1).then_some(0));
        let whose = whose.and_then(|at| identity.jwt.get(at));
        let has_tenants = whose.is_some_and(|issuer| issuer.value.tenants.is_some());
        let (tenant, name) = match name.split_once('/') {
            Some((tenant, rest)) if has_tenants && !tenant.contains(':') => (Some(tenant), rest),
            _ => (None, name),
        };
        let (kind, value) = match name.split_once(':') {
            Some((kind, value)) if !kind.is_empty() && !value.is_empty() => (kind, value),
            _ => {
                let message = format!("`{}` is not a caller", raw.value);
                self.refuse(raw.span, message, "write an entry of `callers` and a value: user:42");
                return None;
            }
        };
        self.resolve(&Spanned { value: kind.to_owned(), span: raw.span }, &names.callers)?;
        let caller = identity.callers.iter().find(|caller| caller.name.value == kind)?;
        if caller.key.value != "client.ip" {
            let is_claim = caller.key.value.starts_with("jwt.");
            if issuer.is_none() && is_claim && names.vouching > 1 {
                let first = names.issuers.names.first().copied().unwrap_or_default();
                self.refuse(
                    raw.span,
                    format!("`{name}` may be a caller of any issuer"),
                    format!("write whose: {first}/{name}"),
                );
            }
            if has_tenants && is_claim && tenant.is_none() {
                self.refuse(
                    raw.span,
                    format!("`{name}` may be a caller of any tenant"),
                    format!("write of which one: TENANT/{name}"),
                );
            }
            let listed = whose.and_then(|issuer| issuer.value.tenants.as_ref());
            if let Some(tenant) = tenant.filter(|tenant| !may_be_tenant(tenant, listed)) {
                let message = format!("`{tenant}` is no tenant of its issuer");
                let help =
                    "write one of `tenants`; names of them have letters, digits, `-`, `_` and `.`";
                self.refuse(raw.span, message, help);
            }
            let tenant = tenant.map(Into::into);
            return Some(CallerName { kind: kind.into(), value: value.into(), issuer, tenant });
        }
        let Ok(address) = value.parse::<IpAddr>() else {
            self.refuse(
                raw.span,
                format!("callers of kind `{kind}` are addresses, and `{value}` is not one"),
                format!("write one such as {kind}:192.0.2.1"),
            );
            return None;
        };
        // As requests name the caller: IPv6 by the first address of its prefix.
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
                self.refuse(
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
