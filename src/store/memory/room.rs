//! Room for counters: how many there may be, and how many of those that cost a client little.
//!
//! A client can have as many counters as it likes of those whose names it writes itself. So counters
//! are ranked by whose word it takes to have one, each rank may fill the store up to a ceiling with
//! those behind it, and the last rank is bounded by client besides. No live counter is evicted for
//! another: what does not fit is refused, and a rank that is full takes nothing from those before it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use smallvec::SmallVec;

use crate::{limit::Origin, settings::MemoryBounds, store::NoRoom};

/// Verified, addresses, networks, chosen: see [`Origin`].
const RANKS: usize = 4;

/// A counter's rank, or, of one that a client chose, which client: kept with the counter, to be told
/// when it goes.
pub(super) type Tag = u16;

/// The first tag of a client.
const FIRST_CLIENT: Tag = RANKS as Tag - 1;

/// Clients are told apart by a part of a hash: one shares its bound with one in so many others. That
/// is what keeps it small whoever comes.
const CLIENTS: usize = (Tag::MAX - FIRST_CLIENT) as usize;

/// What part of the store addresses leave to verified callers, and networks to addresses.
const RESERVE: usize = 8;

/// How many counters a store has, and may have beside those that it shares its room with.
pub(super) struct Room {
    shared: Arc<Shared>,
    /// Counters of this store alone.
    own: AtomicUsize,
}

/// How many counters there are, and may be.
struct Shared {
    /// How many there may be of a rank and those behind it.
    ceilings: [usize; RANKS],
    taken: [AtomicUsize; RANKS],
    per_address: u32,
    /// How many each client has made of those by what clients choose.
    by_client: Box<[AtomicU32]>,
}

/// The tags of the counters that a request needs.
pub(super) type Needs = SmallVec<[Tag; 4]>;

impl Room {
    pub(super) fn new(bounds: MemoryBounds) -> Room {
        let MemoryBounds { max_keys, unverified_percent, per_address } = bounds;
        let reserve = max_keys / RESERVE;
        let (addresses, networks) = (max_keys - reserve, max_keys - 2 * reserve);
        let chosen = (max_keys as u128 * u128::from(unverified_percent)).div_ceil(100) as usize;
        let shared = Shared {
            ceilings: [max_keys, addresses, networks, chosen.min(networks)],
            taken: Default::default(),
            per_address,
            by_client: (0..CLIENTS).map(|_| AtomicU32::new(0)).collect(),
        };
        Room { shared: Arc::new(shared), own: AtomicUsize::new(0) }
    }

    /// The same room, for another store: its bounds hold for both together.
    pub(super) fn beside(&self) -> Room {
        Room { shared: Arc::clone(&self.shared), own: AtomicUsize::new(0) }
    }

    /// Counters of this store alone.
    pub(super) fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Counters of all ranks, of all stores that share the room.
    pub(super) fn len(&self) -> usize {
        self.taken_from(0)
    }

    /// Counters by what clients choose.
    pub(super) fn chosen(&self) -> usize {
        self.taken_from(RANKS - 1)
    }

    /// Whether so many more counters fit.
    ///
    /// # Errors
    /// Why one of them does not.
    pub(super) fn admit(&self, needs: &[Tag]) -> Result<(), NoRoom> {
        let mut needed = [0; RANKS];
        for tag in needs {
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
        let (mut there, mut more) = (0, 0);
        let Shared { taken, ceilings, .. } = &*self.shared;
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

    /// Whether counters that nobody needs yet would take room from those that somebody will.
    pub(super) fn is_half_full(&self, tag: Tag) -> bool {
        let mut ceilings = self.shared.ceilings.iter().enumerate().take(rank(tag) + 1);
        let half = self.shared.per_address / 2;
        ceilings.any(|(rank, ceiling)| self.taken_from(rank) >= ceiling / 2)
            || self.made_by(tag).is_some_and(|made| made.load(Ordering::Relaxed) >= half)
    }

    /// There is one more.
    pub(super) fn add(&self, tag: Tag) {
        self.own.fetch_add(1, Ordering::Relaxed);
        if let Some(taken) = self.shared.taken.get(rank(tag)) {
            taken.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(made) = self.made_by(tag) {
            made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many counters are another store's from now on, with which it is shared.
    pub(super) fn hand_over(&self, other: &Room, count: usize) {
        self.own.fetch_sub(count, Ordering::Relaxed);
        other.own.fetch_add(count, Ordering::Relaxed);
    }

    /// There is one less.
    pub(super) fn remove(&self, tag: Tag) {
        self.own.fetch_sub(1, Ordering::Relaxed);
        if let Some(taken) = self.shared.taken.get(rank(tag)) {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(made) = self.made_by(tag) {
            made.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn taken_from(&self, rank: usize) -> usize {
        self.shared.taken.iter().skip(rank).map(|taken| taken.load(Ordering::Relaxed)).sum()
    }

    /// How many counters the client of a tag has made; none: it is the tag of no client.
    fn made_by(&self, tag: Tag) -> Option<&AtomicU32> {
        self.shared.by_client.get(usize::from(tag.checked_sub(FIRST_CLIENT)?))
    }
}

/// Why a counter is refused whose rank is full.
const REFUSALS: [NoRoom; RANKS] =
    [NoRoom::Full, NoRoom::Addresses, NoRoom::Networks, NoRoom::Unverified];

/// What is remembered of where a counter comes from.
pub(super) fn tag(origin: Origin) -> Tag {
    match origin {
        Origin::Verified => 0,
        Origin::Address => 1,
        Origin::Network => 2,
        Origin::Chosen { by } => FIRST_CLIENT + (by % CLIENTS as u128) as Tag,
    }
}

/// Whether counters of this tag are as many as somebody vouches for.
pub(super) fn is_verified(tag: Tag) -> bool {
    tag == 0
}

fn rank(tag: Tag) -> usize {
    usize::from(tag.min(FIRST_CLIENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOSEN: Origin = Origin::Chosen { by: 7 };

    /// A store of 80 counters, of which 40 may be chosen, 10 by each client.
    fn room() -> Room {
        Room::new(MemoryBounds { max_keys: 80, unverified_percent: 50, per_address: 10 })
    }

    /// Adds counters until there is no room, and tells how many there was room for, and why no more.
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
            assert!((FIRST_CLIENT..Tag::MAX).contains(&tag(Origin::Chosen { by })), "{by}");
        }
    }
}
