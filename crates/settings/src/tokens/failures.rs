//! How often clients have recently sent a wrong token: a token must not be found by trying.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Wrong tokens by address, for as long as they matter.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Recent>>);

/// The latest failures of an address, the oldest first. There are no more than are allowed.
#[derive(Default)]
struct Recent([Option<Instant>; ALLOWED]);

/// How many in any [`SPAN`].
const ALLOWED: usize = 3;
const SPAN: Duration = Duration::from_secs(1);
/// How many addresses are known at once. When so many have failed within a [`SPAN`], no token of
/// another address is looked at: that is an attack, and it must not get more tries by it.
const MAX_ADDRESSES: usize = 1024;

impl Failures {
    /// Whether a token from `address` may be looked at now.
    pub(super) fn may_try(&self, address: IpAddr, now: Instant) -> bool {
        let mut known = self.0.lock();
        match known.get(&source(address)) {
            Some(recent) => recent.has_room(now),
            None if known.len() < MAX_ADDRESSES => true,
            None => {
                known.retain(|_, recent| recent.is_recent(now));
                known.len() < MAX_ADDRESSES
            }
        }
    }

    /// A token from `address` was wrong.
    pub(super) fn note(&self, address: IpAddr, now: Instant) {
        let mut known = self.0.lock();
        known.entry(source(address)).or_default().push(now);
    }
}

impl Recent {
    fn has_room(&self, now: Instant) -> bool {
        let [oldest, ..] = self.0;
        oldest.is_none_or(|oldest| now.saturating_duration_since(oldest) >= SPAN)
    }

    fn is_recent(&self, now: Instant) -> bool {
        let latest = self.0.iter().flatten().max();
        latest.is_some_and(|latest| now.saturating_duration_since(*latest) < SPAN)
    }

    fn push(&mut self, now: Instant) {
        let [_, second, third] = self.0;
        self.0 = [second, third, Some(now)];
    }
}

/// A client of IPv6 chooses the lower half of its address freely.
fn source(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !(u64::MAX as u128);
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn three_failures_within_a_second_are_the_most() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let failures = Failures::default();
        let one = address("192.0.2.1");
        for millis in [0, 300, 999] {
            assert!(failures.may_try(one, at(millis)));
            failures.note(one, at(millis));
        }
        assert!(!failures.may_try(one, at(999)));
        assert!(failures.may_try(address("192.0.2.2"), at(999)), "another is not concerned");
        // The first is a second old; the others are not.
        assert!(failures.may_try(one, at(1000)));
        failures.note(one, at(1000));
        assert!(!failures.may_try(one, at(1299)));
        assert!(failures.may_try(one, at(1300)));
    }

    #[test]
    fn good_tries_use_nothing_up() {
        let failures = Failures::default();
        let now = Instant::now();
        assert!((0..100).all(|_| failures.may_try(address("192.0.2.1"), now)));
    }

    #[test]
    fn addresses_of_one_network_are_one_source() {
        let now = Instant::now();
        let failures = Failures::default();
        for host in 1..=3 {
            failures.note(address(&format!("2001:db8::{host}")), now);
        }
        assert!(!failures.may_try(address("2001:db8::ffff"), now));
        assert!(failures.may_try(address("2001:db8:0:1::1"), now));
        for _ in 0..3 {
            failures.note(address("::ffff:192.0.2.1"), now);
        }
        assert!(!failures.may_try(address("192.0.2.1"), now));
    }

    #[test]
    fn many_addresses_need_bounded_memory_and_get_no_more_tries() {
        let failures = Failures::default();
        let start = Instant::now();
        let nth = |number: u32| IpAddr::V4(number.into());
        let known = || failures.0.lock().len();
        for number in 0..MAX_ADDRESSES as u32 {
            assert!(failures.may_try(nth(number), start));
            failures.note(nth(number), start);
        }
        assert!(!failures.may_try(nth(1 << 20), start));
        assert!(failures.may_try(nth(7), start), "it has failed once only");
        assert_eq!(known(), MAX_ADDRESSES);
        assert!(failures.may_try(nth(1 << 20), start + SPAN));
        assert_eq!(known(), 0);
    }
}
