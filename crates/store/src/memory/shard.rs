//! A part of the counters, under one lock: those of owners whose hashes have the same first bits.

use std::time::Duration;

use tollgate_clock::Timestamp;
use tollgate_limit::{Algorithm, Charge, DecidedBy, Outcome, Receipt, Standing};

use super::{
    room::{Room, Tag, is_verified},
    tables::{Tables, with_table},
    tagged_key::tagged_key,
    unsaved::{Unsaved, note},
};

/// The least time between two sweeps of a shard that lack of room causes: this, and more for each
/// counter in the shard. So a flood of requests that find no room takes a hundredth of a core.
pub(super) const SWEEP_PAUSE: Duration = Duration::from_millis(100);
const SWEEP_PAUSE_PER_COUNTER: Duration = Duration::from_micros(500);

/// Counters of some owners.
pub(super) struct Shard {
    pub(super) tables: Tables,
    /// How many of all counters are not verified.
    pub(super) unverified: usize,
    /// What is not on disk yet; none: counters are only in memory.
    pub(super) unsaved: Option<Unsaved>,
    swept: Timestamp,
}

/// Whether a charge fits, by what the shard knows of its counter.
pub(super) struct Admission {
    pub(super) fits: bool,
    /// Whether the shard has the counter. If not, the charge was judged by an unused one.
    pub(super) is_known: bool,
    /// When the charge counts.
    pub(super) at: Timestamp,
}

impl Shard {
    /// An empty shard; `stagger` is as in [`Tables::new`].
    pub(super) fn new(stagger: f64) -> Shard {
        Shard {
            tables: Tables::new(stagger),
            unverified: 0,
            unsaved: None,
            swept: Timestamp::default(),
        }
    }

    pub(super) fn admits(&mut self, charge: &Charge<'_>, at: Timestamp) -> Admission {
        with_table!(self.tables, charge.quota, (algorithm, table) => {
            let state = table.find(charge.key.entry);
            let is_known = state.is_some();
            let fits = match state {
                Some(state) => algorithm.admits(state, charge.cost, at),
                None => algorithm.admits(&Default::default(), charge.cost, at),
            };
            Admission { fits, is_known, at }
        })
    }

    /// Reads the memory of a charge's counter before it is needed, as in [`Table::touch`].
    ///
    /// [`Table::touch`]: super::table::Table::touch
    pub(super) fn touch(&mut self, charge: &Charge<'_>) -> u64 {
        with_table!(self.tables, charge.quota, (_algorithm, table) => {
            table.touch(charge.key.entry)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    /// The number of counters that share the shard's bound with one of this tag: counters that
    /// clients make up do not take the room of verified ones.
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
        with_table!(self.tables, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).is_some()
        })
    }

    pub(super) fn standing(&mut self, charge: &Charge<'_>, now: Timestamp) -> Standing {
        with_table!(self.tables, charge.quota, (algorithm, table) => {
            match table.find(charge.key.entry) {
                Some(state) => algorithm.standing(state, now),
                None => algorithm.standing(&Default::default(), now),
            }
        })
    }

    /// Takes a charge, and returns whether its key is new; none if there is no room in its table.
    pub(super) fn take(&mut self, charge: &Charge<'_>, now: Timestamp) -> Option<(Outcome, bool)> {
        with_table!(self.tables, charge.quota, (algorithm, table) => {
            let (mut entry, is_new) = table.entry(tagged_key(charge))?;
            let receipt = Some(algorithm.take(entry.state, charge.cost, now));
            let standing = algorithm.standing(entry.state, now);
            note(&mut self.unsaved, &mut entry, charge);
            Some((Outcome { receipt, ..untaken(standing) }, is_new))
        })
    }

    /// The outcome of a charge that does not fit.
    pub(super) fn deny(&mut self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let standing = with_table!(self.tables, charge.quota, (algorithm, table) => {
            let fresh = &mut Default::default();
            let mut entry = table.find_mut(charge.key.entry);
            if let Some(entry) = &mut entry {
                // Few denials change a state, but to find that out costs more than to save it.
                note(&mut self.unsaved, entry, charge);
            }
            let state = entry.map_or(fresh, |entry| entry.state);
            algorithm.on_denied(state, charge.cost, now);
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
        with_table!(self.tables, charge.quota, (algorithm, table) => {
            let mut entry = table.find_mut(charge.key.entry)?;
            algorithm.give_back(entry.state, receipt, charge.cost, now);
            note(&mut self.unsaved, &mut entry, charge);
            Some(algorithm.standing(entry.state, now))
        })
    }

    /// Extends a lease, as in [`Algorithm::renew`]. None if the counter is gone or has no leases.
    pub(super) fn renew(
        &mut self,
        charge: &Charge<'_>,
        receipt: Receipt,
        now: Timestamp,
    ) -> Option<Standing> {
        if !charge.quota.holds_leases() {
            return None;
        }
        with_table!(self.tables, charge.quota, (algorithm, table) => {
            let entry = table.find_mut(charge.key.entry)?;
            algorithm.renew(entry.state, receipt, now);
            Some(algorithm.standing(entry.state, now))
        })
    }

    /// Moves all counters to the same shard of another store, which shares its room with this one.
    pub(super) fn empty_into(&mut self, other: &mut Shard, rooms: (&Room, &Room)) {
        rooms.0.hand_over(rooms.1, self.len());
        other.unverified += std::mem::take(&mut self.unverified);
        let mut duplicates = Vec::new();
        self.tables.empty_into(&mut other.tables, &mut duplicates);
        duplicates.into_iter().for_each(|tag| other.count_gone(tag, rooms.1));
    }

    /// Whether the pause since its last sweep is over.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let pause = SWEEP_PAUSE_PER_COUNTER * self.len() as u32;
        now.saturating_since(self.swept) >= pause.max(SWEEP_PAUSE) || now < self.swept
    }

    /// Drops the counters that are over by `over_by`, which makes room.
    pub(super) fn sweep(&mut self, room: &Room, now: Timestamp, over_by: Timestamp) {
        self.swept = now;
        let unverified = &mut self.unverified;
        self.tables.sweep(over_by, |tag| {
            *unverified = unverified.saturating_sub(usize::from(!is_verified(tag)));
            room.remove(tag);
        });
    }
}

/// The outcome of a charge that was not taken.
pub(super) fn untaken(standing: Standing) -> Outcome {
    Outcome { standing, receipt: None, decided_by: DecidedBy::Current }
}
