//! A part of the counters, under one lock: those of the owners whose hashes begin alike.

use super::{
    SHARDS, SWEEP_PAUSE, SWEEP_PAUSE_A_COUNTER,
    room::{Room, Tag, is_verified},
    table::Table,
    tagged, untaken,
};
use crate::{
    clock::Timestamp,
    limit::{
        Algorithm, Bucket, Charge, Leases, Level, Log, Outcome, Quota, Receipt, Standing, Window,
        Windows,
    },
};

/// Counters of some owners. Each algorithm has a table of its own: an entry is as large as its state
/// and no larger, and a state can only ever meet the algorithm that made it.
pub(super) struct Shard {
    pub(super) fixed_window: Table<Window>,
    pub(super) sliding_window: Table<Windows>,
    pub(super) sliding_log: Table<Log>,
    pub(super) token_bucket: Table<Bucket>,
    pub(super) gcra: Table<Level>,
    pub(super) concurrency: Table<Leases>,
    /// How many of them all nobody vouches for.
    pub(super) unverified: usize,
    swept: Timestamp,
}

impl Shard {
    pub(super) fn new(index: usize) -> Shard {
        let stagger = index as f64 / SHARDS as f64;
        Shard {
            fixed_window: Table::new(stagger),
            sliding_window: Table::new(stagger),
            sliding_log: Table::new(stagger),
            token_bucket: Table::new(stagger),
            gcra: Table::new(stagger),
            concurrency: Table::new(stagger),
            unverified: 0,
            swept: Timestamp::default(),
        }
    }

    pub(super) fn admits(&mut self, charge: &Charge<'_>, now: Timestamp) -> bool {
        with_table!(self, charge.quota, (algorithm, table) => {
            match table.find(charge.key.entry) {
                Some(state) => algorithm.admits(state, charge.cost, now),
                None => algorithm.admits(&Default::default(), charge.cost, now),
            }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.fixed_window.len()
            + self.sliding_window.len()
            + self.sliding_log.len()
            + self.token_bucket.len()
            + self.gcra.len()
            + self.concurrency.len()
    }

    /// Counters that one with this tag shares the shard's bound with: what clients make up does not
    /// crowd out those who are verified.
    pub(super) fn len_beside(&self, tag: Tag) -> usize {
        match is_verified(tag) {
            true => self.len().saturating_sub(self.unverified),
            false => self.unverified,
        }
    }

    /// Counts a counter that was just made.
    pub(super) fn count_new(&mut self, tag: Tag, room: &Room) {
        self.unverified += usize::from(!is_verified(tag));
        room.add(tag);
    }

    /// Counts a counter that is gone, by its tag.
    pub(super) fn count_gone(&mut self, tag: Tag, room: &Room) {
        self.unverified = self.unverified.saturating_sub(usize::from(!is_verified(tag)));
        room.remove(tag);
    }

    pub(super) fn knows(&mut self, charge: &Charge<'_>) -> bool {
        with_table!(self, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).is_some()
        })
    }

    pub(super) fn standing(&mut self, charge: &Charge<'_>, now: Timestamp) -> Standing {
        with_table!(self, charge.quota, (algorithm, table) => {
            match table.find(charge.key.entry) {
                Some(state) => algorithm.standing(state, now),
                None => algorithm.standing(&Default::default(), now),
            }
        })
    }

    /// Takes a charge; true if its key is new.
    pub(super) fn take(&mut self, charge: &Charge<'_>, now: Timestamp) -> Option<(Outcome, bool)> {
        with_table!(self, charge.quota, (algorithm, table) => {
            let (state, is_new) = table.entry(tagged(charge))?;
            let receipt = Some(algorithm.take(state, charge.cost, now));
            let standing = algorithm.standing(state, now);
            Some((Outcome { receipt, ..untaken(standing) }, is_new))
        })
    }

    /// What is told of a charge that does not fit.
    pub(super) fn deny(&mut self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let standing = with_table!(self, charge.quota, (algorithm, table) => {
            let fresh = &mut Default::default();
            let state = table.find_mut(charge.key.entry).unwrap_or(fresh);
            algorithm.penalize(state, charge.cost, now);
            let retry = algorithm.retry(state, charge.cost, now);
            Standing { retry, ..algorithm.standing(state, now) }
        });
        untaken(standing)
    }

    pub(super) fn give_back(
        &mut self,
        charge: &Charge<'_>,
        receipt: Receipt,
        now: Timestamp,
    ) -> Option<Standing> {
        with_table!(self, charge.quota, (algorithm, table) => {
            let state = table.find_mut(charge.key.entry)?;
            algorithm.give_back(state, receipt, charge.cost, now);
            Some(algorithm.standing(state, now))
        })
    }

    /// Gives all counters to the same shard of another store, which shares its room with this one's.
    pub(super) fn empty_into(&mut self, other: &mut Shard, rooms: (&Room, &Room)) {
        rooms.0.hand_over(rooms.1, self.len());
        other.unverified += std::mem::take(&mut self.unverified);
        let mut twice = Vec::new();
        self.fixed_window.empty_into(&mut other.fixed_window, &mut twice);
        self.sliding_window.empty_into(&mut other.sliding_window, &mut twice);
        self.sliding_log.empty_into(&mut other.sliding_log, &mut twice);
        self.token_bucket.empty_into(&mut other.token_bucket, &mut twice);
        self.gcra.empty_into(&mut other.gcra, &mut twice);
        self.concurrency.empty_into(&mut other.concurrency, &mut twice);
        twice.into_iter().for_each(|tag| other.count_gone(tag, rooms.1));
    }

    /// Whether it was not swept lately.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let pause = SWEEP_PAUSE_A_COUNTER * self.len() as u32;
        now.saturating_since(self.swept) >= pause.max(SWEEP_PAUSE) || now < self.swept
    }

    /// Drops what is over, which makes room.
    pub(super) fn sweep(&mut self, room: &Room, now: Timestamp) {
        self.swept = now;
        let unverified = &mut self.unverified;
        let mut dropped = |tag| {
            *unverified = unverified.saturating_sub(usize::from(!is_verified(tag)));
            room.remove(tag);
        };
        self.fixed_window.sweep(now, &mut dropped);
        self.sliding_window.sweep(now, &mut dropped);
        self.sliding_log.sweep(now, &mut dropped);
        self.token_bucket.sweep(now, &mut dropped);
        self.gcra.sweep(now, &mut dropped);
        self.concurrency.sweep(now, &mut dropped);
    }
}
