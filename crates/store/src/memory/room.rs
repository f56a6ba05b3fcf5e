//! Room for counters: how many there may be in all, and of each origin.
//!
//! A client can make up as many counters as it likes if it chooses what it is counted by. So
//! counters are ranked by their [`Origin`]. Each rank, together with those behind it, may fill the
//! store up to a ceiling, and the last rank also has a bound for each client. No live counter is
//! evicted for another: what does not fit is refused, and a full rank takes no room from those
//! before it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use smallvec::SmallVec;
use tollgate_limit::Origin;
use tollgate_settings::MemoryBounds;

use crate::NoRoom;

/// Verified, addresses, networks, chosen: see [`Origin`].
const RANKS: usize = 4;

/// A counter's rank or, for [`Origin::Chosen`], its client. It is kept with the counter and read
/// when the counter is dropped.
pub(super) type Tag = u16;

/// The first tag of a client.
const FIRST_CLIENT: Tag = RANKS as Tag - 1;

/// The tag of [`Origin::Mark`], which has no rank.
const MARK: Tag = Tag::MAX - 1;

/// How many clients are distinguished, by a part of a hash: a client shares its bound with one in
/// this many others. So the memory for the bounds is fixed.
const CLIENTS: usize = (MARK - FIRST_CLIENT) as usize;

/// The fewest marks that any store may have.
const FEWEST_MARKS: usize = 100_000;

/// The part of the store, one in this many, that addresses leave to verified callers, and networks
/// to addresses.
const RESERVE: usize = 8;

/// How many counters a store has and may have. Several stores may share the same room.
pub(super) struct Room {
    shared: Arc<SharedRoom>,
    /// Counters of this store only.
    own: AtomicUsize,
}

/// How many counters there are in all stores, and may be.
struct SharedRoom {
    /// How many counters each rank may have together with those behind it.
    ceilings: [usize; RANKS],
    taken: [AtomicUsize; RANKS],
    /// Marks that there are, and may be: they take no room from counters.
    marks: AtomicUsize,
    max_marks: usize,
    per_address: u32,
    /// How many counters of [`Origin::Chosen`] each client has.
    by_client: Box<[AtomicU32]>,
}

/// The tags of the counters that a request needs.
pub(super) type Needs = SmallVec<[Tag; 4]>;

impl Room {
    pub(super) fn new(bounds: MemoryBounds) -> Room {
        let MemoryBounds { max_keys, unverified_percent, per_address } = bounds;
        let reserve = max_keys / RESERVE;
        let addresses = max_keys - reserve;
        let networks = max_keys - 2 * reserve;
        let chosen = (max_keys as u128 * u128::from(unverified_percent)).div_ceil(100) as usize;
        let shared = SharedRoom {
            ceilings: [max_keys, addresses, networks, chosen.min(networks)],
            taken: Default::default(),
            marks: AtomicUsize::new(0),
            max_marks: max_keys.max(FEWEST_MARKS),
            per_address,
            by_client: (0..CLIENTS).map(|_| AtomicU32::new(0)).collect(),
        };
        Room { shared: Arc::new(shared), own: AtomicUsize::new(0) }
    }

    /// The same room, for another store: its bounds hold for both together.
    pub(super) fn beside(&self) -> Room {
        Room { shared: Arc::clone(&self.shared), own: AtomicUsize::new(0) }
    }

    /// Counters of this store only.
    pub(super) fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Counters of all ranks, of all stores that share the room.
    pub(super) fn len(&self) -> usize {
        self.taken_from(0)
    }

    /// Counters of [`Origin::Chosen`].
    pub(super) fn chosen(&self) -> usize {
        self.taken_from(RANKS - 1)
    }

    /// Whether counters of these tags fit.
    ///
    /// # Errors
    /// Why one of them does not.
    pub(super) fn admit(&self, needs: &[Tag]) -> Result<(), NoRoom> {
        let mut needed = [0; RANKS];
        for tag in needs {
            if *tag == MARK && self.shared.marks.load(Ordering::Relaxed) >= self.shared.max_marks {
                return Err(NoRoom::Marks);
            }
            if let Some(needed) = needed.get_mut(rank(*tag)) {
                *needed += 1;
            }
            if let Some(made) = self.made_by(*tag) {
                let own = needs.iter().filter(|other| *other == tag).count() as u32;
                if made.load(Ordering::Relaxed).saturating_add(own) > self.shared.per_address {
                    return Err(NoRoom::Client);
                }
            }
        }
        let mut there = 0;
        let mut more = 0;
        let SharedRoom { taken, ceilings, .. } = &*self.shared;
        let ranks = taken.iter().zip(needed).zip(ceilings.iter().zip(REFUSALS)).rev();
        for ((taken, needed), (ceiling, refusal)) in ranks {
            there += taken.load(Ordering::Relaxed);
            more += needed;
            if more > 0 && there + more > *ceiling {
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Whether the room for counters of this tag is half used. Then there is none to spare for
    /// counters that may never be needed.
    pub(super) fn is_half_full(&self, tag: Tag) -> bool {
        if tag == MARK {
            return self.shared.marks.load(Ordering::Relaxed) >= self.shared.max_marks / 2;
        }
        let mut ceilings = self.shared.ceilings.iter().enumerate().take(rank(tag) + 1);
        let half = self.shared.per_address / 2;
        ceilings.any(|(rank, ceiling)| self.taken_from(rank) >= ceiling / 2)
            || self.made_by(tag).is_some_and(|made| made.load(Ordering::Relaxed) >= half)
    }

    /// Counts a new counter.
    pub(super) fn add(&self, tag: Tag) {
        self.own.fetch_add(1, Ordering::Relaxed);
        if let Some(taken) = self.shared.taken_by(tag) {
            taken.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(made) = self.made_by(tag) {
            made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts `count` counters as those of another store that shares the room.
    pub(super) fn hand_over(&self, other: &Room, count: usize) {
        self.own.fetch_sub(count, Ordering::Relaxed);
        other.own.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a counter that is gone.
    pub(super) fn remove(&self, tag: Tag) {
        self.remove_resident();
        // Counters that are on disk are counted some time after the start, and may be gone before.
        let less = |count: usize| count.checked_sub(1);
        if let Some(taken) = self.shared.taken_by(tag) {
            let _ = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        if let Some(made) = self.made_by(tag) {
            let less = |count: u32| count.checked_sub(1);
            let _ = made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Counts a counter that has come into memory, and is still counted where it came from.
    pub(super) fn add_resident(&self) {
        self.own.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a counter that has left memory, and is counted still.
    pub(super) fn remove_resident(&self) {
        let _ =
            self.own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |own| own.checked_sub(1));
    }

    /// Replaces the counts of counters in all stores by these, for each tag.
    pub(super) fn recount(&self, by_tag: &[u64]) {
        let mut taken = [0; RANKS];
        for (tag, count) in by_tag.iter().enumerate() {
            let tag = Tag::try_from(tag).unwrap_or(Tag::MAX);
            if tag == MARK {
                self.shared.marks.store(*count as usize, Ordering::Relaxed);
                continue;
            }
            if let Some(taken) = taken.get_mut(rank(tag)) {
                *taken += *count as usize;
            }
            if let Some(made) = self.made_by(tag) {
                made.store(u32::try_from(*count).unwrap_or(u32::MAX), Ordering::Relaxed);
            }
        }
        for (counted, taken) in self.shared.taken.iter().zip(taken) {
            counted.store(taken, Ordering::Relaxed);
        }
    }

    fn taken_from(&self, rank: usize) -> usize {
        self.shared.taken.iter().skip(rank).map(|taken| taken.load(Ordering::Relaxed)).sum()
    }

    /// How many counters the client of a tag has; none if it is not a client's tag.
    fn made_by(&self, tag: Tag) -> Option<&AtomicU32> {
        self.shared.by_client.get(usize::from(tag.checked_sub(FIRST_CLIENT)?))
    }
}

impl SharedRoom {
    /// How many counters of a tag's rank there are, or marks.
    fn taken_by(&self, tag: Tag) -> Option<&AtomicUsize> {
        if tag == MARK { Some(&self.marks) } else { self.taken.get(rank(tag)) }
    }
}

/// Why a counter is refused if the ceiling of a rank is reached.
const REFUSALS: [NoRoom; RANKS] =
    [NoRoom::Full, NoRoom::Addresses, NoRoom::Networks, NoRoom::Unverified];

/// The tag of counters of an origin.
pub(super) fn tag(origin: Origin) -> Tag {
    match origin {
        Origin::Verified => 0,
        Origin::Address => 1,
        Origin::Network => 2,
        Origin::Chosen { by } => FIRST_CLIENT + (by % CLIENTS as u128) as Tag,
        Origin::Mark => MARK,
    }
}

/// Whether counters of this tag are of [`Origin::Verified`].
pub(super) fn is_verified(tag: Tag) -> bool {
    tag == 0
}

/// The rank of a tag; none, a number past the last one, for marks.
fn rank(tag: Tag) -> usize {
    if tag == MARK { RANKS } else { usize::from(tag.min(FIRST_CLIENT)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOSEN: Origin = Origin::Chosen { by: 7 };

    /// A store of 80 counters, of which 40 may be chosen, 10 by each client.
    fn room() -> Room {
        Room::new(MemoryBounds { max_keys: 80, unverified_percent: 50, per_address: 10 })
    }

    /// Adds counters until there is no room. Returns how many fit, and why no more do.
    fn fill(room: &Room, origins: impl Fn(u128) -> Origin) -> (u128, NoRoom) {
        for number in 0.. {
            let tag = tag(origins(number));
            match room.admit(&[tag]) {
                Ok(()) => room.add(tag),
                Err(reason) => return (number, reason),
            }
        }
        unreachable!("there is an end to it")
    }

    #[test]
    fn each_rank_leaves_room_to_those_before_it() {
        let room = room();
        assert_eq!(fill(&room, |by| Origin::Chosen { by }), (40, NoRoom::Unverified));
        assert_eq!(fill(&room, |_| Origin::Network), (20, NoRoom::Networks));
        assert_eq!(fill(&room, |_| Origin::Address), (10, NoRoom::Addresses));
        assert_eq!(fill(&room, |_| Origin::Verified), (10, NoRoom::Full));
    }

    #[test]
    fn rank_before_may_fill_what_those_behind_leave() {
        let room = room();
        assert_eq!(fill(&room, |_| Origin::Verified), (80, NoRoom::Full));
        assert_eq!(room.admit(&[tag(CHOSEN)]), Err(NoRoom::Full));
    }

    #[test]
    fn client_makes_so_many_and_others_go_on() {
        let room = room();
        assert_eq!(fill(&room, |_| CHOSEN), (10, NoRoom::Client));
        assert_eq!(room.admit(&[tag(Origin::Chosen { by: 8 })]), Ok(()));
        room.remove(tag(CHOSEN));
        assert_eq!(room.admit(&[tag(CHOSEN)]), Ok(()));
        assert_eq!(room.admit(&[tag(CHOSEN); 2]), Err(NoRoom::Client));
    }

    #[test]
    fn smallest_store_has_room_for_one_of_any_rank() {
        for origin in [Origin::Verified, Origin::Address, Origin::Network, CHOSEN] {
            assert_eq!(Room::new(1.into()).admit(&[tag(origin)]), Ok(()), "{origin:?}");
        }
    }

    #[test]
    fn spare_copies_of_what_clients_choose_leave_half_of_the_spare_room() {
        let room = room();
        for by in 10..30 {
            assert!(!room.is_half_full(tag(CHOSEN)));
            room.add(tag(Origin::Chosen { by }));
        }
        assert!(room.is_half_full(tag(CHOSEN)));
        assert!(!room.is_half_full(tag(Origin::Verified)));
    }

    #[test]
    fn spare_copies_leave_each_client_half_of_what_it_may_make() {
        let room = room();
        for _ in 0..5 {
            assert!(!room.is_half_full(tag(CHOSEN)));
            room.add(tag(CHOSEN));
        }
        assert!(room.is_half_full(tag(CHOSEN)));
        assert!(!room.is_half_full(tag(Origin::Chosen { by: 8 })));
    }

    #[test]
    fn marks_have_room_of_their_own() {
        let room = room();
        assert_eq!(fill(&room, |_| Origin::Mark), (FEWEST_MARKS as u128, NoRoom::Marks));
        assert_eq!((room.len(), fill(&room, |_| Origin::Verified)), (0, (80, NoRoom::Full)));
        room.remove(tag(Origin::Mark));
        assert_eq!(room.admit(&[tag(Origin::Mark)]), Ok(()));
        assert_eq!(room.len(), 80);
    }

    #[test]
    fn stores_that_share_a_room_fill_it_together() {
        let room = room();
        let other = room.beside();
        for _ in 0..79 {
            other.add(tag(Origin::Verified));
        }
        assert_eq!(fill(&room, |_| Origin::Verified), (1, NoRoom::Full));
        assert_eq!((room.own(), other.own(), room.len(), other.len()), (1, 79, 80, 80));
    }

    #[test]
    fn no_tag_is_that_of_a_free_slot() {
        for by in [0, CLIENTS as u128 - 1, u128::MAX] {
            assert!((FIRST_CLIENT..MARK).contains(&tag(Origin::Chosen { by })), "{by}");
        }
    }
}
