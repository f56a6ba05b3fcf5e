//! Single callers and addresses: overrides, who is exempt, who is refused.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Compiler, WrittenNames, quotas::Owner};
use crate::{
    clock::Timestamp,
    identity::Tiers,
    policy::{
        Allowances, CallerName, Limit, Listed, Override,
        file::{RawIdentity, RawMeasure, RawOverride, RawPolicy},
    },
    yaml::{Node, Spanned, Value},
};

impl Compiler<'_> {
    /// Adds each override to its limit.
    pub(super) fn overrides(
        &mut self,
        raw: &RawPolicy,
        names: &WrittenNames<'_>,
        tiers: &Tiers,
        limits: &mut [Limit],
    ) {
        for written in &raw.overrides {
            let known = self.resolve(&written.limit, &names.limits);
            let caller = self.caller_name(&written.caller, &raw.identity, names);
            let until = self.until(&written.until);
            if written.why.value.trim().is_empty() {
                self.refuse(
                    written.why.span,
                    "no reason",
                    "write the reason, for the people who read this later",
                );
            }
            let allowances = match known {
                Some(_) => self.override_allowances(written, raw, tiers),
                None => None,
            };
            let limit = limits.iter_mut().find(|limit| *limit.name == *written.limit.value);
            let (Some(limit), Some(caller), Some(until), Some(allowances)) =
                (limit, caller, until, allowances)
            else {
                continue;
            };
            if limit.overrides.0.iter().any(|earlier| earlier.caller == caller) {
                let message = format!("a second override of `{}` for this caller", limit.name);
                self.refuse(written.caller.span, message, "keep one");
            }
            let why = written.why.value.as_str().into();
            limit.overrides.0.push(Override { caller, allowances, until, why });
        }
    }

    fn override_allowances(
        &mut self,
        written: &Spanned<RawOverride>,
        raw: &RawPolicy,
        tiers: &Tiers,
    ) -> Option<Allowances> {
        let own = self.override_measure(written)?;
        let limit = raw.limits.get(&written.limit.value)?;
        let base = limit.measure();
        self.check_same_kind(&own, &base)?;
        let measure = self.measure(&own.over(base), written.span, tiers)?;
        let owner = Owner {
            limit: &written.limit.value,
            tier: None,
            is_candidate: false,
            place: written.limit.span,
        };
        self.allowances(&measure, owner)
    }

    fn override_measure(&mut self, raw: &RawOverride) -> Option<RawMeasure> {
        let fields = [&raw.rate, &raw.burst, &raw.capacity, &raw.concurrent];
        if fields.iter().all(|field| field.is_none()) {
            self.refuse(
                raw.limit.span,
                "an override without a rate",
                "add `rate: 50000/hour`, or `rate: unlimited`",
            );
            return None;
        }
        let is_by_tier = |node: &&Node| matches!(node.value, Value::Mapping(_));
        if let Some(node) = fields.into_iter().flatten().find(is_by_tier) {
            self.refuse(
                node.span,
                "an override is for one caller, not for tiers",
                "write one value",
            );
            return None;
        }
        Some(RawMeasure {
            rate: raw.rate.clone(),
            burst: raw.burst.clone(),
            capacity: raw.capacity.clone(),
            concurrent: raw.concurrent.clone(),
            ..RawMeasure::default()
        })
    }

    /// The first instant after a day in UTC, or an instant.
    fn until(&mut self, raw: &Spanned<String>) -> Option<Timestamp> {
        let until = Timestamp::parse_end(&raw.value);
        if until.is_none() {
            self.refuse(
                raw.span,
                format!("`{}` is not a date", raw.value),
                "write 2026-12-31 or 2026-12-31T18:00:00Z",
            );
        }
        until
    }

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
            let vouching = identity.jwt.len() + usize::from(identity.introspection.is_some());
            if issuer.is_none() && is_claim && vouching > 1 {
                let first = names.issuers.names.first().copied().unwrap_or_default();
                self.refuse(
                    raw.span,
                    format!("`{name}` may be a caller of any issuer"),
                    format!("write whose: {first}/{name}"),
                );
            }
            return Some(CallerName { kind: kind.into(), value: value.into(), issuer });
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
        Some(CallerName { kind: kind.into(), value: address.to_string().into(), issuer: None })
    }

    /// A list of addresses, networks and callers.
    pub(super) fn listed(
        &mut self,
        raw: &[Spanned<String>],
        identity: &RawIdentity,
        names: &WrittenNames<'_>,
    ) -> Listed {
        let mut listed = Listed::default();
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
