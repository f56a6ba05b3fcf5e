//! Addresses that pay before their tokens are looked at, for all workers: those that have shown so
//! many bad ones that their limit was used up, until it is not; those that have shown so many at once
//! that it is not known yet what they are; and those that went away before it was, for a minute.
//!
//! Tokens that are known to be good are never asked for here.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quick_cache::sync::Cache;

use super::charges::Charges;
use crate::{clock::Timestamp, identity::Prefixes};

/// Tokens of an address that are looked at at once before it pays.
const MAX_AT_ONCE: u32 = 16;

/// As many as are remembered: more only means that some are asked anew.
const MAX_ADDRESSES: usize = 16_384;

/// How long an address pays first that has not waited for what its token comes to: else it could have
/// any number looked at, and pay for none.
const ABANDONED_FOR: Duration = Duration::from_secs(60);

/// Parts of the map, so that workers seldom wait for each other.
const PARTS: usize = 64;

/// By route, since routes have limits of their own.
pub(super) struct Distrust {
    /// Each with the instant until when.
    addresses: Cache<u128, Timestamp>,
    /// The latest of these, in microseconds since the epoch: most of the time it has passed, and
    /// nothing needs to be looked up.
    until: AtomicU64,
    /// How many tokens of an address are being looked at. No more than requests in flight.
    asking: [Mutex<HashMap<u128, u32>>; PARTS],
}

impl Distrust {
    pub(super) fn new() -> Self {
        Distrust {
            addresses: Cache::new(MAX_ADDRESSES),
            until: AtomicU64::default(),
            asking: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Lets a token of a request's address be looked at, which may take as long as its issuer does.
    /// None: the address is to pay for it first.
    pub(super) fn permit(&self, charges: &Charges<'_, '_>) -> Option<Asking<'_>> {
        let address = key(charges);
        if self.contains(address, charges.now) {
            return None;
        }
        let mut asking = self.part(address);
        let count = asking.entry(address).or_default();
        (*count < MAX_AT_ONCE).then(|| {
            *count += 1;
            Asking { distrust: self, address }
        })
    }

    fn contains(&self, address: u128, now: Timestamp) -> bool {
        let is_listed = || self.addresses.get(&address).is_some_and(|until| now < until);
        now.as_micros() < self.until.load(Ordering::Relaxed) && is_listed()
    }

    /// Adds a request's address.
    pub(super) fn add(&self, charges: &Charges<'_, '_>, until: Timestamp) {
        self.addresses.insert(key(charges), until);
        self.until.fetch_max(until.as_micros(), Ordering::Relaxed);
    }

    /// Takes a request's address out.
    pub(super) fn forget(&self, charges: &Charges<'_, '_>) {
        self.addresses.remove(&key(charges));
    }

    /// Adds a request's address if what this returns is dropped before it is told that the wait is
    /// over.
    pub(super) fn watch<'w>(&'w self, charges: &'w Charges<'w, 'w>) -> Patience<'w> {
        Patience { distrust: self, charges, is_over: false }
    }

    fn part(&self, address: u128) -> MutexGuard<'_, HashMap<u128, u32>> {
        let [first, ..] = &self.asking;
        let part = self.asking.get((address % PARTS as u128) as usize).unwrap_or(first);
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token that is being looked at, until this is dropped.
pub(super) struct Asking<'d> {
    distrust: &'d Distrust,
    address: u128,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asking = self.distrust.part(self.address);
        if let Some(count) = asking.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                asking.remove(&self.address);
            }
        }
    }
}

/// Whether a client waits for what its token comes to.
pub(super) struct Patience<'w> {
    distrust: &'w Distrust,
    charges: &'w Charges<'w, 'w>,
    is_over: bool,
}

impl Patience<'_> {
    /// It is known what it comes to.
    pub(super) fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.charges.is_charged() {
            self.distrust.add(self.charges, self.charges.now + ABANDONED_FOR);
        }
    }
}

fn key(charges: &Charges<'_, '_>) -> u128 {
    let Charges { identifier, policy, route, client, .. } = charges;
    let address = identifier.hash_address(client.address, Prefixes::default()).to_le_bytes();
    let route = route.map_or("", |route| &*route.name);
    let parts = [(b'p', policy.name.as_bytes()), (b'r', route.as_bytes()), (b'a', &address[..])];
    identifier.hasher.hash(parts)
}
