//! Addresses that are charged before their tokens are verified, for all workers: those that have
//! sent so many bad tokens that their limit was used up, until it has room; those that have sent
//! too many tokens at once; and, for a minute, those that went away before their token was
//! verified.
//!
//! Tokens that are in the cache of good ones are not looked up here.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache;
use tollgate_clock::Timestamp;
use tollgate_identity::Prefixes;

use super::charge_context::ChargeContext;

/// Tokens of an address that are verified at once before it is charged.
const MAX_AT_ONCE: u32 = 16;

/// Addresses that are remembered. An address that is forgotten only has one more token verified.
const MAX_ADDRESSES: usize = 16_384;

/// How long an address is charged first that has not waited for its token to be verified: else it
/// could have any number of tokens verified, and pay for none.
const ABANDONED_FOR: Duration = Duration::from_secs(60);

/// Parts of the map, each with a lock of its own, so that workers seldom wait for each other.
const PARTS: usize = 64;

/// The addresses, by route, since routes have limits of their own.
pub(super) struct Distrust {
    /// Until when each is charged first.
    addresses: Cache<u128, Timestamp>,
    /// The latest of these times, in microseconds since the epoch: most of the time it has passed,
    /// and no address needs to be looked up.
    until: AtomicU64,
    /// How many tokens of an address are being verified. No more than requests in flight.
    verifying: [Mutex<HashMap<u128, u32>>; PARTS],
}

impl Distrust {
    pub(super) fn new() -> Self {
        Distrust {
            addresses: Cache::new(MAX_ADDRESSES),
            until: AtomicU64::default(),
            verifying: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Permits that a token of a request's address is verified, which may take as long as its
    /// issuer does. None: the address is to be charged first.
    pub(super) fn permit(&self, context: &ChargeContext<'_, '_>) -> Option<VerificationPermit<'_>> {
        let address = key(context);
        if self.contains(address, context.input.now) {
            return None;
        }
        let mut verifying = self.part(address);
        let count = verifying.entry(address).or_default();
        (*count < MAX_AT_ONCE).then(|| {
            *count += 1;
            VerificationPermit { distrust: self, address }
        })
    }

    fn contains(&self, address: u128, now: Timestamp) -> bool {
        let is_listed = || self.addresses.get(&address).is_some_and(|until| now < until);
        now.as_micros() < self.until.load(Ordering::Relaxed) && is_listed()
    }

    /// Adds a request's address.
    pub(super) fn add(&self, context: &ChargeContext<'_, '_>, until: Timestamp) {
        self.addresses.insert(key(context), until);
        self.until.fetch_max(until.as_micros(), Ordering::Relaxed);
    }

    /// Removes a request's address.
    pub(super) fn forget(&self, context: &ChargeContext<'_, '_>) {
        self.addresses.remove(&key(context));
    }

    /// Adds a request's address if the guard is dropped before [`WaitGuard::end`].
    pub(super) fn guard_wait<'w>(&'w self, context: &'w ChargeContext<'w, 'w>) -> WaitGuard<'w> {
        WaitGuard { distrust: self, context, is_over: false }
    }

    fn part(&self, address: u128) -> MutexGuard<'_, HashMap<u128, u32>> {
        let [first, ..] = &self.verifying;
        let part = self.verifying.get((address % PARTS as u128) as usize).unwrap_or(first);
        part.lock()
    }
}

/// A token is being verified, until this is dropped.
pub(super) struct VerificationPermit<'d> {
    distrust: &'d Distrust,
    address: u128,
}

impl Drop for VerificationPermit<'_> {
    fn drop(&mut self) {
        let mut verifying = self.distrust.part(self.address);
        if let Some(count) = verifying.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                verifying.remove(&self.address);
            }
        }
    }
}

/// A client waits for its token to be verified. If it goes away before, its address is charged
/// first for a while.
pub(super) struct WaitGuard<'w> {
    distrust: &'w Distrust,
    context: &'w ChargeContext<'w, 'w>,
    is_over: bool,
}

impl WaitGuard<'_> {
    /// The token was verified, or refused.
    pub(super) fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.context.is_charged() {
            self.distrust.add(self.context, self.context.input.now + ABANDONED_FOR);
        }
    }
}

fn key(context: &ChargeContext<'_, '_>) -> u128 {
    let ChargeContext { identifier, policy, route, input, message: _ } = context;
    let address = identifier.hash_address(input.client.address, Prefixes::default()).to_le_bytes();
    let route = route.map_or("", |route| &*route.name);
    let parts = [(b'p', policy.name.as_bytes()), (b'r', route.as_bytes()), (b'a', &address[..])];
    identifier.hasher.hash(parts)
}
