//! Addresses that have shown so many bad tokens that their limit was used up: until it is not, no
//! token of theirs is verified that is not known to be good. And those that have shown so many at
//! once that it is not known yet what they are.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use quick_cache::unsync::Cache;

use super::charges::Charges;
use crate::{clock::Timestamp, identity::Prefixes};

/// Tokens of an address that are verified at once, by each worker.
const MAX_AT_ONCE: u32 = 16;

/// As many as are remembered: more only means that some are asked anew.
const MAX_ADDRESSES: usize = 16_384;

/// By route, since routes have limits of their own.
pub(super) struct Distrust {
    /// Each with the instant until when.
    addresses: RefCell<Cache<u128, Timestamp>>,
    /// The latest of these: most of the time it has passed, and nothing needs to be looked up.
    until: Cell<Timestamp>,
    /// How many tokens of an address are being verified. No more than requests in flight.
    asking: RefCell<HashMap<u128, u32>>,
}

impl Distrust {
    pub(super) fn new() -> Self {
        Distrust {
            addresses: RefCell::new(Cache::new(MAX_ADDRESSES)),
            until: Cell::default(),
            asking: RefCell::default(),
        }
    }

    /// Whether a request's address is among them.
    fn contains(&self, charges: &Charges<'_, '_>) -> bool {
        let is_listed =
            || self.addresses.borrow().get(&key(charges)).is_some_and(|until| charges.now < *until);
        charges.now < self.until.get() && is_listed()
    }

    /// Lets a token of a request's address be verified, which may take as long as its issuer does.
    /// None: the address is to pay for it first.
    pub(super) fn permit(&self, charges: &Charges<'_, '_>) -> Option<Asking<'_>> {
        if self.contains(charges) {
            return None;
        }
        let address = key(charges);
        let mut asking = self.asking.borrow_mut();
        let count = asking.entry(address).or_default();
        (*count < MAX_AT_ONCE).then(|| {
            *count += 1;
            Asking { distrust: self, address }
        })
    }

    /// Adds a request's address.
    pub(super) fn add(&self, charges: &Charges<'_, '_>, until: Timestamp) {
        self.until.set(self.until.get().max(until));
        self.addresses.borrow_mut().insert(key(charges), until);
    }

    /// Takes a request's address out.
    pub(super) fn forget(&self, charges: &Charges<'_, '_>) {
        self.addresses.borrow_mut().remove(&key(charges));
    }
}

/// A token that is being verified, until this is dropped.
pub(super) struct Asking<'d> {
    distrust: &'d Distrust,
    address: u128,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asking = self.distrust.asking.borrow_mut();
        if let Some(count) = asking.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                asking.remove(&self.address);
            }
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
