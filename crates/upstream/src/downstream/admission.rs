//! How many connections there are, of all clients and of each: past the bounds, none is taken on.
//!
//! A place is held by a value, so it is given back however the connection ends. Places of an
//! address are counted only while it has any: the map is as large as there are connections, at
//! most.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tollgate_identity::canonical;
use tollgate_settings::Limits;

use super::{Fault, Faults, Handshakes};

/// Counts connections, for all listeners and workers together.
#[derive(Debug)]
pub struct Admission {
    /// Places in all, and of one client.
    places: usize,
    places_a_client: u32,
    taken: AtomicUsize,
    /// By the client's number. The shard follows from a secret hash, so that clients cannot fill
    /// one on purpose.
    shards: Box<[Mutex<HashMap<u128, u32>>]>,
    hasher: RandomState,
    faults: Faults,
    handshakes: Handshakes,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    admission: Arc<Admission>,
    /// `None` while the client's address is unknown, or if it has none.
    client: Option<u128>,
}

/// There is no place for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many connections")]
pub struct NotAdmitted;

const SHARDS: usize = 64;

impl Admission {
    /// With as many places as `limits` say.
    pub fn new(limits: &Limits) -> Arc<Admission> {
        Arc::new(Admission {
            places: limits.connections,
            places_a_client: u32::try_from(limits.connections_per_address).unwrap_or(u32::MAX),
            taken: AtomicUsize::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            faults: Faults::default(),
            handshakes: Handshakes::default(),
        })
    }

    /// A permit for a connection from `address`; `None` if a PROXY header will give it, or there is
    /// none.
    ///
    /// # Errors
    /// All places are taken, or all of this client.
    pub fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> Result<ConnectionPermit, NotAdmitted> {
        if self.taken.fetch_add(1, Ordering::Relaxed) >= self.places {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            self.faults.count(Fault::Full);
            return Err(NotAdmitted);
        }
        let mut permit = ConnectionPermit { admission: Arc::clone(self), client: None };
        if let Some(address) = address {
            permit.name(address)?;
        }
        Ok(permit)
    }

    /// Connections that there are.
    pub fn connections(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// What went wrong with connections so far.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How TLS handshakes ended.
    pub fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    fn shard(&self, client: u128) -> Option<MutexGuard<'_, HashMap<u128, u32>>> {
        let at = self.hasher.hash_one(client) as usize % SHARDS;
        let shard = self.shards.get(at)?;
        Some(shard.lock())
    }
}

impl ConnectionPermit {
    /// The connection turns out to be from `address`, as a PROXY header says.
    ///
    /// # Errors
    /// All places of this client are taken: the connection has to be closed.
    pub fn name(&mut self, address: IpAddr) -> Result<(), NotAdmitted> {
        let client = client_number(address);
        let places = self.admission.places_a_client;
        let Some(mut shard) = self.admission.shard(client) else { return Ok(()) };
        let taken = shard.entry(client).or_default();
        if *taken >= places {
            self.admission.faults.count(Fault::AddressFull);
            return Err(NotAdmitted);
        }
        *taken += 1;
        drop(shard);
        self.forget_client();
        self.client = Some(client);
        Ok(())
    }

    fn forget_client(&mut self) {
        let Some(client) = self.client.take() else { return };
        let Some(mut shard) = self.admission.shard(client) else { return };
        if let Entry::Occupied(mut taken) = shard.entry(client) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
        // A shard that was once large does not stay so.
        if shard.capacity() > 64 && shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.forget_client();
        self.admission.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of a client: its IPv4 address, also in the guise of IPv6, or the network of 64 bits
/// that an IPv6 client has to itself.
pub fn client_number(address: IpAddr) -> u128 {
    match canonical(address) {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        // Never a number of 32 bits.
        IpAddr::V6(address) => u128::from(address) >> 64 | 1 << 127,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections: usize, connections_per_address: usize) -> Arc<Admission> {
        Admission::new(&Limits { connections, connections_per_address, ..Limits::default() })
    }

    fn admit(admission: &Arc<Admission>, address: &str) -> Result<ConnectionPermit, NotAdmitted> {
        admission.admit(Some(address.parse().unwrap()))
    }

    fn is_empty(admission: &Admission) -> bool {
        admission.connections() == 0 && admission.shards.iter().all(|shard| shard.lock().is_empty())
    }

    #[test]
    fn place_is_given_back_when_it_is_dropped() {
        let admission = admission(2, 2);
        let first = admit(&admission, "192.0.2.1").unwrap();
        let _second = admit(&admission, "192.0.2.2").unwrap();
        admit(&admission, "192.0.2.3").unwrap_err();
        drop(first);
        drop(admit(&admission, "192.0.2.3").unwrap());
        drop(_second);
        assert!(is_empty(&admission));
        assert_eq!(admission.faults().total(Fault::Full), 1);
    }

    #[test]
    fn client_is_an_address_or_a_network_of_64_bits() {
        for (first, second, is_one) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:0:0:2", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
            ("::1", "0.0.0.0", false),
        ] {
            let admission = admission(10, 1);
            let _place = admit(&admission, first).unwrap();
            assert_eq!(admit(&admission, second).is_err(), is_one, "{first} and {second}");
            assert_eq!(admission.connections(), 1);
        }
    }

    #[test]
    fn client_that_is_named_later_is_counted_then() {
        let admission = admission(10, 1);
        let mut unnamed = admission.admit(None).unwrap();
        let named = admit(&admission, "192.0.2.1").unwrap();
        unnamed.name("192.0.2.1".parse().unwrap()).unwrap_err();
        unnamed.name("192.0.2.2".parse().unwrap()).unwrap();
        unnamed.name("192.0.2.3".parse().unwrap()).unwrap();
        drop(admit(&admission, "192.0.2.2").unwrap());
        drop((named, unnamed));
        assert!(is_empty(&admission));
        assert_eq!(admission.faults().total(Fault::AddressFull), 1);
    }

    #[test]
    fn places_are_exact_however_many_ask_at_once() {
        let admission = admission(50, 1000);
        let places: Vec<ConnectionPermit> = std::thread::scope(|scope| {
            let ask =
                |_| scope.spawn(|| (0..100).flat_map(|_| admit(&admission, "192.0.2.1")).collect());
            let threads: Vec<std::thread::ScopedJoinHandle<'_, Vec<ConnectionPermit>>> =
                (0..4).map(ask).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(places.len(), 50);
        drop(places);
        assert!(is_empty(&admission));
    }
}
