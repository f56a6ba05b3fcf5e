//! Bounds how many counters a client can create in Redis by values of its own choice, so that it
//! cannot fill Redis with made-up names.
//!
//! Redis could report which counters are new, but only once it has created them. So this counts how
//! many different counters a client uses in a minute. They are remembered in a Bloom filter (Bloom,
//! 1970): a counter that was used is never taken for new, and the few new ones that are taken for
//! used do no harm.

use std::rc::Rc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Decision, Origin};

use crate::{Backend, NoRoom, Store, StoreError, moving::MoveState, undecided::undecided};

/// The counters by client-chosen values that were used in the current minute.
pub(crate) struct NewCounters {
    max_per_minute: u32,
    minute: Mutex<MinuteFilter>,
}

/// The counters of one minute. It takes no memory before the first request that uses one.
#[derive(Default)]
struct MinuteFilter {
    number: u64,
    seen: Vec<u64>,
    /// How many new counters clients have used: a count-min sketch (Cormode and Muthukrishnan,
    /// 2005), row after row. The least of a client's cells is its count, and never too low.
    by_client: Vec<u32>,
}

/// Bits of the filter, 1 MiB: with a million counters in a minute, one new counter in fifty is
/// taken for used.
const BITS: usize = 1 << 23;

/// Bits that each counter sets.
const BITS_PER_COUNTER: u64 = 4;

/// Rows of the sketch, in each of which another part of a client's hash chooses its cell. A client
/// pays for what others have used only if it shares its cell in every row: with one other, one
/// client in 2^32 does.
const ROWS: usize = 2;

/// Cells of a row: 256 KiB.
const CELLS: usize = 1 << 16;

const MINUTE_MICROS: u64 = 60_000_000;

impl NewCounters {
    /// Each client may use so many new counters in a minute.
    pub(crate) fn new(max_per_minute: u32) -> NewCounters {
        NewCounters { max_per_minute, minute: Mutex::default() }
    }

    /// Whether a client may use a counter at `now`. If so, it counts as used.
    fn admit(&self, by: u128, entry: u128, now: Timestamp) -> bool {
        // A panic cannot leave the filter half-written.
        let mut minute = self.minute.lock();
        minute.begin(now.as_micros() / MINUTE_MICROS);
        let pair_hash = entry ^ by.rotate_left(u64::BITS);
        if minute.has_seen(pair_hash) {
            return true;
        }
        let used = minute.used_by(by);
        if used >= self.max_per_minute {
            return false;
        }
        minute.raise(by, used + 1);
        minute.see(pair_hash);
        true
    }
}

impl MinuteFilter {
    fn begin(&mut self, number: u64) {
        if self.number != number || self.seen.is_empty() {
            self.number = number;
            self.seen.clear();
            self.seen.resize(BITS / 64, 0);
            self.by_client.clear();
            self.by_client.resize(ROWS * CELLS, 0);
        }
    }

    /// How many new counters a client has used, or more if others share all its cells.
    fn used_by(&self, by: u128) -> u32 {
        client_cells(by).filter_map(|cell| self.by_client.get(cell).copied()).min().unwrap_or(0)
    }

    /// Raises a client's count to `used`, only in the cells that have fewer: what others have added
    /// to a cell is not added to again (the conservative update of Estan and Varghese, 2002).
    fn raise(&mut self, by: u128, used: u32) {
        for cell in client_cells(by) {
            if let Some(count) = self.by_client.get_mut(cell) {
                *count = used.max(*count);
            }
        }
    }

    fn has_seen(&self, pair_hash: u128) -> bool {
        filter_bits(pair_hash)
            .all(|(word, bit)| self.seen.get(word).is_some_and(|bits| bits & bit != 0))
    }

    fn see(&mut self, pair_hash: u128) {
        for (word, bit) in filter_bits(pair_hash) {
            if let Some(bits) = self.seen.get_mut(word) {
                *bits |= bit;
            }
        }
    }
}

/// The positions of a client's cells, one in each row.
fn client_cells(by: u128) -> impl Iterator<Item = usize> {
    (0..ROWS).map(move |row| {
        let part = (by >> (row as u32 * CELLS.ilog2())) as usize % CELLS;
        row * CELLS + part
    })
}

/// The positions of the filter's bits for a hash, as the number of a 64-bit word and a mask. The
/// hash is the output of a pseudo-random function, so its two halves make any number of hashes
/// (Kirsch and Mitzenmacher, 2006).
fn filter_bits(pair_hash: u128) -> impl Iterator<Item = (usize, u64)> {
    let first = pair_hash as u64;
    let step = (pair_hash >> 64) as u64 | 1;
    (0..BITS_PER_COUNTER).map(move |number| {
        let hash = first.wrapping_add(number.wrapping_mul(step)) >> (u64::BITS - BITS.ilog2());
        ((hash / 64) as usize, 1 << (hash % 64))
    })
}

impl Store {
    /// Takes all `charges` or none, unless their client has used too many counters of its own
    /// choice.
    pub(crate) async fn charge_admitted(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let mut refused: SmallVec<[usize; 1]> = SmallVec::new();
        for (position, charge) in charges.iter().enumerate() {
            if self.is_admitted(charge, now) {
                continue;
            }
            // A limit that only observes is left out rather than deny a request.
            match charge.must_have_counter() {
                true => return Err(NoRoom::Minute.into()),
                false => refused.push(position),
            }
        }
        match refused.is_empty() {
            true => self.charge_groups(charges, now).await,
            false => Box::pin(self.charge_others(charges, &refused, now)).await,
        }
    }

    /// Takes all `charges` or none, except the `refused` ones, which are left out.
    async fn charge_others(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        refused: &[usize],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
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
            Origin::Chosen { by }
                if charge.needs_counter() && self.may_be_created_in_redis(charge) =>
            {
                self.stores.new_counters.admit(by, charge.key.entry, now)
            }
            _ => true,
        }
    }

    fn may_be_created_in_redis(&self, charge: &Charge<'_>) -> bool {
        let is_redis = |backend: Option<&Backend>| matches!(backend, Some(Backend::Redis(_)));
        match self.move_state(charge.key.owner) {
            None => is_redis(Some(&self.current)),
            Some(MoveState::Moved) => is_redis(self.next.as_ref()),
            Some(MoveState::Mirrored) => {
                is_redis(Some(&self.current)) || is_redis(self.next.as_ref())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limit::KeyHasher;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_790_000_040);

    fn hash(number: u32) -> u128 {
        KeyHasher::new([7; 16]).hash([(b'h', number.to_le_bytes().as_slice())])
    }

    fn admitted(
        new_counters: &NewCounters,
        by: u32,
        keys: std::ops::Range<u32>,
        at: Timestamp,
    ) -> usize {
        keys.filter(|key| new_counters.admit(hash(by), hash(1_000_000 + key), at)).count()
    }

    #[test]
    fn client_may_use_so_many_new_counters_a_minute_and_repeat_them() {
        let new_counters = NewCounters::new(100);
        assert_eq!(admitted(&new_counters, 1, 0..300, START), 100);
        assert_eq!(admitted(&new_counters, 1, 0..300, START), 100, "the same hundred");
        assert_eq!(admitted(&new_counters, 2, 0..300, START), 100, "another client");
        let next = START + std::time::Duration::from_secs(60);
        assert_eq!(admitted(&new_counters, 1, 200..300, next), 100);
        assert_eq!(admitted(&new_counters, 1, 0..1, next), 0);
    }

    #[test]
    fn client_that_shares_some_cells_with_a_busy_one_has_its_own_bound() {
        let new_counters = NewCounters::new(100);
        let used = |by: u128, first: u32| {
            let keys = first..first + 300;
            keys.filter(|key| new_counters.admit(by, hash(*key), START)).count()
        };
        let busy = hash(1);
        assert_eq!(used(busy, 1_000), 100);
        assert_eq!(used(busy ^ 1 << 20, 2_000), 100, "another cell in the second row");
        assert_eq!(used(busy ^ 1 << 3, 3_000), 100, "another cell in the first row");
        assert_eq!(used(busy ^ 1 << 100, 4_000), 0, "the same cells");
    }

    #[test]
    fn few_new_counters_are_taken_for_used_in_a_busy_minute() {
        let new_counters = NewCounters::new(1_000);
        for by in 0..200 {
            admitted(&new_counters, by, 0..1_000, START);
        }
        let more = admitted(&new_counters, 1_000, 0..2_000, START);
        assert!((1_000..1_050).contains(&more), "{more}");
    }

    #[test]
    fn clock_that_goes_back_begins_a_minute_too() {
        let new_counters = NewCounters::new(1);
        assert_eq!(admitted(&new_counters, 1, 0..2, START), 1);
        assert_eq!(admitted(&new_counters, 1, 1..2, Timestamp::from_secs(0)), 1);
    }
}
