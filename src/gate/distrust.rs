//! Addresses that have shown so many bad tokens that their limit was used up: until it is not, no
//! token of theirs is verified that is not known to be good.

use std::cell::{Cell, RefCell};

use quick_cache::unsync::Cache;

use super::charges::Charges;
use crate::{clock::Timestamp, identity::Prefixes};

/// As many as are remembered: more only means that some are asked anew.
const MAX_ADDRESSES: usize = 16_384;

/// By route, since routes have limits of their own.
pub(super) struct Distrust {
    /// Each with the instant until when.
    addresses: RefCell<Cache<u128, Timestamp>>,
    /// The latest of these: most of the time it has passed, and nothing needs to be looked up.
    until: Cell<Timestamp>,
}

impl Distrust {
    pub(super) fn new() -> Self {
        Distrust { addresses: RefCell::new(Cache::new(MAX_ADDRESSES)), until: Cell::default() }
    }

    /// Whether a request's address is among them.
    pub(super) fn contains(&self, charges: &Charges<'_, '_>) -> bool {
        let is_listed =
            || self.addresses.borrow().get(&key(charges)).is_some_and(|until| charges.now < *until);
        charges.now < self.until.get() && is_listed()
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

fn key(charges: &Charges<'_, '_>) -> u128 {
    let Charges { identifier, policy, route, client, .. } = charges;
    let address = identifier.hash_address(client.address, Prefixes::default()).to_le_bytes();
    let route = route.map_or("", |route| &*route.name);
    let parts = [(b'p', policy.name.as_bytes()), (b'r', route.as_bytes()), (b'a', &address[..])];
    identifier.hasher.hash(parts)
}
