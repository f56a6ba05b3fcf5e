//! Which counters of those by what clients choose were asked for in this minute, and how many by each
//! client: so that nobody fills Redis with made-up names.
//!
//! Redis itself could tell which counters are new, but only once it has made them. So what counts is
//! how many different ones a client asks for. They are remembered in a Bloom filter (Bloom, 1970): one
//! that was asked for is never taken for new, and the few that are taken for old cost nobody anything.

use std::{
    rc::Rc,
    sync::{Mutex, PoisonError},
};

use smallvec::SmallVec;

use super::{Backend, NoRoom, Store, StoreError, groups::undecided, moving::Way};
use crate::{
    clock::Timestamp,
    limit::{Charge, Decision, Origin, Stance},
};

/// Counters by what clients choose that were asked for in a minute.
pub(super) struct Newcomers {
    most: u32,
    minute: Mutex<Minute>,
}

/// One minute. It takes no memory before the first request of its kind.
#[derive(Default)]
struct Minute {
    number: u64,
    seen: Vec<u64>,
    /// How many new ones each client has asked for.
    by_client: Vec<u32>,
}

/// Bits of the filter, 1 MiB: of a million counters a minute, one in fifty is not noticed.
const BITS: usize = 1 << 23;

/// Bits that each counter sets.
const BITS_A_COUNTER: u64 = 4;

/// Clients are told apart by a part of a hash: one shares its bound with one in so many others.
const CLIENTS: usize = 1 << 16;

const MINUTE_MICROS: u64 = 60_000_000;

impl Newcomers {
    /// Each client may ask for so many a minute.
    pub(super) fn new(most: u32) -> Newcomers {
        Newcomers { most, minute: Mutex::default() }
    }

    /// Whether a client may ask for a counter at `now`. It has, if it may.
    fn admit(&self, by: u128, entry: u128, now: Timestamp) -> bool {
        // A panic cannot leave it half-written.
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        minute.begin(now.as_micros() / MINUTE_MICROS);
        let asked = entry ^ by.rotate_left(u64::BITS);
        if minute.has_seen(asked) {
            return true;
        }
        let Some(count) = minute.by_client.get_mut((by % CLIENTS as u128) as usize) else {
            return true;
        };
        if *count >= self.most {
            return false;
        }
        *count += 1;
        minute.see(asked);
        true
    }
}

impl Minute {
    fn begin(&mut self, number: u64) {
        if self.number != number || self.seen.is_empty() {
            self.number = number;
            self.seen.clear();
            self.seen.resize(BITS / 64, 0);
            self.by_client.clear();
            self.by_client.resize(CLIENTS, 0);
        }
    }

    fn has_seen(&self, asked: u128) -> bool {
        places(asked).all(|(word, bit)| self.seen.get(word).is_some_and(|bits| bits & bit != 0))
    }

    fn see(&mut self, asked: u128) {
        for (word, bit) in places(asked) {
            if let Some(bits) = self.seen.get_mut(word) {
                *bits |= bit;
            }
        }
    }
}

/// The words and bits of what was asked for, which is the output of a pseudo-random function (two
/// halves of it make any number of hashes: Kirsch and Mitzenmacher, 2006).
fn places(asked: u128) -> impl Iterator<Item = (usize, u64)> {
    let (first, step) = (asked as u64, (asked >> 64) as u64 | 1);
    (0..BITS_A_COUNTER).map(move |number| {
        let hash = first.wrapping_add(number.wrapping_mul(step)) >> (u64::BITS - BITS.ilog2());
        ((hash / 64) as usize, 1 << (hash % 64))
    })
}

impl Store {
    /// Takes all `charges` or none, unless their client asks for too many counters of its choice.
    pub(super) async fn charge_admitted(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let mut refused: SmallVec<[usize; 1]> = SmallVec::new();
        for (position, charge) in charges.iter().enumerate() {
            if self.is_admitted(charge, now) {
                continue;
            }
            // What only counts is left out rather than keep a request from its way.
            match charge.stance {
                Stance::Enforce => return Err(NoRoom::Minute.into()),
                Stance::Observe => refused.push(position),
            }
        }
        if refused.is_empty() {
            return self.charge_groups(charges, now).await;
        }
        let is_admitted = |(position, _): &(usize, &Charge<'_>)| !refused.contains(position);
        let admitted: SmallVec<[Charge<'_>; 2]> =
            charges.iter().enumerate().filter(is_admitted).map(|(_, charge)| *charge).collect();
        let mut decision = self.charge_groups(&admitted, now).await?;
        for (position, charge) in charges.iter().enumerate() {
            if refused.contains(&position) && position <= decision.outcomes.len() {
                decision.outcomes.insert(position, undecided(charge, now));
            }
        }
        Ok(decision)
    }

    fn is_admitted(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        match charge.origin {
            Origin::Chosen { by } if charge.takes() && self.may_be_made_in_redis(charge) => {
                self.stores.newcomers.admit(by, charge.key.entry, now)
            }
            _ => true,
        }
    }

    fn may_be_made_in_redis(&self, charge: &Charge<'_>) -> bool {
        let is_redis = |backend: Option<&Backend>| matches!(backend, Some(Backend::Redis(_)));
        match self.way_of(charge.key.owner) {
            None => is_redis(Some(&self.current)),
            Some(Way::Moved) => is_redis(self.next.as_ref()),
            Some(Way::Mirrored) => is_redis(Some(&self.current)) || is_redis(self.next.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::KeyHasher;

    const START: Timestamp = Timestamp::from_secs(1_790_000_040);

    fn hash(number: u32) -> u128 {
        KeyHasher::new([7; 16]).hash([(b'h', number.to_le_bytes().as_slice())])
    }

    fn admitted(
        newcomers: &Newcomers,
        by: u32,
        keys: std::ops::Range<u32>,
        at: Timestamp,
    ) -> usize {
        keys.filter(|key| newcomers.admit(hash(by), hash(1_000_000 + key), at)).count()
    }

    #[test]
    fn client_asks_for_so_many_a_minute_as_often_as_it_likes() {
        let newcomers = Newcomers::new(100);
        assert_eq!(admitted(&newcomers, 1, 0..300, START), 100);
        assert_eq!(admitted(&newcomers, 1, 0..300, START), 100, "the same hundred");
        assert_eq!(admitted(&newcomers, 2, 0..300, START), 100, "another client");
        let next = START + std::time::Duration::from_secs(60);
        assert_eq!(admitted(&newcomers, 1, 200..300, next), 100);
        assert_eq!(admitted(&newcomers, 1, 0..1, next), 0);
    }

    #[test]
    fn hardly_any_new_one_is_taken_for_old_in_a_busy_minute() {
        let newcomers = Newcomers::new(1_000);
        for by in 0..200 {
            admitted(&newcomers, by, 0..1_000, START);
        }
        let more = admitted(&newcomers, 1_000, 0..2_000, START);
        assert!((1_000..1_050).contains(&more), "{more}");
    }

    #[test]
    fn clock_that_goes_back_begins_a_minute_too() {
        let newcomers = Newcomers::new(1);
        assert_eq!(admitted(&newcomers, 1, 0..2, START), 1);
        assert_eq!(admitted(&newcomers, 1, 1..2, Timestamp::from_secs(0)), 1);
    }
}
