//! Which charges are left out if there is no room for all of their counters.

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, WhenFull};

use super::{
    LockedShards, MemoryStore,
    room::{Needs, tag},
};
use crate::NoRoom;

/// Positions of charges that find no room and are left out.
pub(super) type Omissions = SmallVec<[usize; 4]>;

impl MemoryStore {
    /// Whether there is room for each counter that a charge needs, if it may be left out.
    ///
    /// # Errors
    /// Why there is none for one that may not be left out.
    pub fn room_for(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<impl Iterator<Item = bool> + use<>, NoRoom> {
        let mut shards = self.lock(charges);
        let left_out = self.find_room(charges, &mut shards, now)?;
        Ok((0..charges.len()).map(move |position| !left_out.contains(&position)))
    }

    /// Makes room for the counters that `charges` need, and returns which charges are left out
    /// because there is none: those that only observe, and those of limits that are open in that
    /// case.
    ///
    /// # Errors
    /// Why there is no room for one that may not be left out.
    pub(super) fn find_room(
        &self,
        charges: &[Charge<'_>],
        shards: &mut LockedShards<'_>,
        now: Timestamp,
    ) -> Result<Omissions, NoRoom> {
        let mut left_out = Omissions::new();
        let needs = |charge: &&Charge<'_>| charge.needs_counter();
        if self.make_room(charges.iter().filter(needs), shards, now).is_ok() {
            return Ok(left_out);
        }
        let needed = charges.iter().filter(needs).filter(|charge| need(charge) == Need::Must);
        self.make_room(needed.clone(), shards, now)?;
        let is_new = |charge: &Charge<'_>, shards: &mut LockedShards<'_>| {
            shards.of(charge).is_ok_and(|shard| !shard.knows(charge))
        };
        let mut new: SmallVec<[&Charge<'_>; 4]> =
            needed.filter(|charge| is_new(charge, shards)).collect();
        for need_now in [Need::MayPass, Need::Counts] {
            for (position, charge) in charges.iter().enumerate() {
                let is_due = charge.needs_counter() && need(charge) == need_now;
                if !is_due || !is_new(charge, shards) {
                    continue;
                }
                new.push(charge);
                let needs: Needs = new.iter().map(|charge| tag(charge.origin)).collect();
                match self.admit(&new, &needs, shards) {
                    Ok(()) => continue,
                    Err(reason) if need_now == Need::MayPass && !reason.is_for_all() => {
                        return Err(reason);
                    }
                    Err(_) => left_out.push(position),
                }
                new.pop();
            }
        }
        Ok(left_out)
    }
}

/// Whether a request can do without one of its counters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Without it, the request is refused.
    Must,
    /// Without it, the request passes, unless the client itself used up the room.
    MayPass,
    /// It only counts.
    Counts,
}

fn need(charge: &Charge<'_>) -> Need {
    match (charge.must_have_counter(), charge.full) {
        (false, _) => Need::Counts,
        (true, WhenFull::Open) => Need::MayPass,
        (true, WhenFull::Closed | WhenFull::OpenWhileAlone) => Need::Must,
    }
}
