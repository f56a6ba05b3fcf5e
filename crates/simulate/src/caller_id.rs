//! Who called, by what the log says: the same for all policies that it is judged by.

use std::net::IpAddr;

use tollgate_history::Record;
use tollgate_identity::CallerKey;
use tollgate_policy::{Policies, Policy};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::translate::CallerField;

/// Tells callers apart.
pub(super) struct CallerIds {
    /// The kinds of [`Record::fields`], in the same order.
    kinds: Vec<String>,
    /// The kinds of callers that are addresses: logs of ours write them as `anonymous:192.0.2.1`,
    /// and others only as an address.
    address_kinds: Vec<Box<str>>,
    /// Where several issuers may have a caller of the same name, the first of them: whose a caller
    /// is if the log does not say it.
    issuer: Option<Box<str>>,
    /// How much of an IPv6 address is one caller, in bits.
    ipv6_prefix: u8,
}

impl CallerIds {
    pub(super) fn new(callers: &[CallerField], policies: &Policies) -> CallerIds {
        let all = policies.iter().flat_map(|policy| &policy.identity.callers);
        let by_address: Vec<(&str, u8)> = all
            .filter_map(|caller| match caller.key {
                CallerKey::Address { ipv6_prefix } => Some((&*caller.name, ipv6_prefix)),
                _ => None,
            })
            .collect();
        let has_several = |policy: &&Policy| policy.identity.issuer_id(1).is_some();
        let first = policies.iter().find(has_several).and_then(|own| own.identity.issuer_id(0));
        CallerIds {
            issuer: first.map(Box::from),
            kinds: callers.iter().map(|caller| caller.kind.clone()).collect(),
            address_kinds: by_address.iter().map(|(name, _)| (*name).into()).collect(),
            // A client has a network of 64 bits.
            ipv6_prefix: by_address.first().map_or(64, |(_, prefix)| *prefix),
        }
    }

    /// A hash of what the log calls the caller; 0: it says nothing.
    pub(super) fn of(&self, record: &Record) -> u64 {
        let mut fields = self.kinds.iter().zip(&record.fields);
        if let Some((kind, value)) =
            fields.find_map(|(kind, value)| Some((kind, value.as_deref()?)))
        {
            return self.of_name(kind, value, None);
        }
        let own = record.own.as_ref();
        let name = own.and_then(|own| own.caller.as_deref());
        match (name.map(|name| name.split_once(':').unwrap_or(("", name))), record.client) {
            (Some((kind, value)), _) => {
                let facts = own.and_then(|own| own.facts.as_ref());
                self.of_name(kind, value, facts.and_then(|facts| facts.get("issuer")?.as_str()))
            }
            (None, Some(address)) => self.of_address(address),
            (None, None) => 0,
        }
    }

    fn of_name(&self, kind: &str, value: &str, issuer: Option<&str>) -> u64 {
        if self.address_kinds.iter().any(|own| **own == *kind)
            && let Ok(address) = value.parse()
        {
            return self.of_address(address);
        }
        let issuer = self.issuer.as_deref().map(|first| issuer.unwrap_or(first));
        let of_issuer = issuer.map_or(0, |issuer| xxh3_64(issuer.as_bytes()));
        xxh3_64_with_seed(value.as_bytes(), xxh3_64_with_seed(kind.as_bytes(), of_issuer))
    }

    fn of_address(&self, address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => xxh3_64(&address.octets()),
            IpAddr::V6(address) => {
                let host_bits = 128 - u32::from(self.ipv6_prefix.min(128));
                let network = u128::MAX.checked_shl(host_bits).unwrap_or_default();
                xxh3_64(&(address.to_bits() & network).to_be_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> CallerIds {
        CallerIds {
            kinds: Vec::new(),
            address_kinds: vec!["anonymous".into()],
            issuer: None,
            ipv6_prefix: 64,
        }
    }

    #[test]
    fn callers_of_two_kinds_are_two() {
        let ids = ids();
        let of = |kind, value| ids.of_name(kind, value, None);
        assert_eq!(of("user", "42"), of("user", "42"));
        assert_ne!(of("user", "42"), of("app", "42"));
        assert_ne!(of("user", "192.0.2.1"), of("anonymous", "192.0.2.1"));
    }

    #[test]
    fn callers_of_two_issuers_are_two_where_there_are_several() {
        let mut ids = ids();
        let of = |ids: &CallerIds, issuer| ids.of_name("user", "42", issuer);
        assert_eq!(of(&ids, Some("https://b.test/")), of(&ids, None));
        ids.issuer = Some("https://a.test/".into());
        assert_ne!(of(&ids, Some("https://b.test/")), of(&ids, None));
        assert_eq!(of(&ids, Some("https://a.test/")), of(&ids, None));
    }

    #[test]
    fn addresses_are_the_same_in_all_logs() {
        let mut ids = ids();
        let [one, near, far] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| text.parse().unwrap());
        assert_eq!(
            ids.of_name("anonymous", "192.0.2.1", None),
            ids.of_address([192, 0, 2, 1].into())
        );
        assert_eq!(ids.of_name("anonymous", "2001:db8::", None), ids.of_address(one));
        assert_eq!(ids.of_address(one), ids.of_address(near));
        assert_ne!(ids.of_address(one), ids.of_address(far));
        ids.ipv6_prefix = 128;
        assert_ne!(ids.of_address(one), ids.of_address(near));
    }
}
