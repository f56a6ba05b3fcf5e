//! Slots of a cluster that are moved from one pair of servers to another, key by key, as
//! `redis-cli --cluster reshard` does it.

use std::rc::Rc;

use tokio::time::{Instant, sleep};

use super::Fault;
use crate::{chance::Chance, host::address_of, world::World};

/// A slot on its way.
struct Journey {
    slot: u16,
    from: usize,
    to: usize,
    /// The pair of the latter.
    to_pair: usize,
}

/// Moves slots that have keys, one after the other, until `end`.
pub(crate) async fn move_slots(world: Rc<World>, mut chance: Chance, end: Instant) {
    while Instant::now() < end {
        sleep(chance.millis(200..4000)).await;
        if let Some(journey) = Journey::choose(&world, &mut chance) {
            world.story.count(Fault::MovedSlots.name());
            journey.make(&world, &mut chance).await;
        }
    }
}

impl Journey {
    fn choose(world: &World, chance: &mut Chance) -> Option<Journey> {
        let pairs = world.hosts.len() / 2;
        let [from_pair, to_pair] = [chance.below(pairs), chance.below(pairs)];
        let [from, to] = [from_pair, to_pair].map(|pair| world.primary_of(pair, None));
        let slots: Vec<u16> = (0..16_384)
            .filter(|slot| world.pair_of(*slot) == from_pair)
            .map(|slot| slot as u16)
            .filter(|slot| !world.hosts[from].server.borrow().keys_in_slot(*slot).is_empty())
            .collect();
        let is_possible = from != to && !slots.is_empty();
        is_possible.then(|| Journey { slot: *chance.pick(&slots), from, to, to_pair })
    }

    /// Whether both are still the primaries of their pairs, and answer.
    fn goes_on(&self, world: &World) -> bool {
        [self.from, self.to].iter().all(|at| {
            let host = &world.hosts[*at];
            host.is_awake() && host.follows.get().is_none()
        })
    }

    async fn make(&self, world: &World, chance: &mut Chance) {
        let &Journey { slot, from, to, to_pair } = self;
        let who = format!("slot {slot}");
        world.story.tell(&who, format_args!("is moved from server {from} to server {to}"));
        self.announce(world, true);
        let mut is_whole = true;
        loop {
            sleep(chance.millis(0..300)).await;
            let key = world.hosts[from].server.borrow().keys_in_slot(slot).into_iter().next();
            let Some(key) = key else { break };
            if !self.goes_on(world) {
                is_whole = false;
                break;
            }
            let mut destination = world.hosts[to].server.borrow_mut();
            world.hosts[from].server.borrow_mut().move_key(&key, &mut destination);
            world.written.notify_one();
        }
        world.story.tell(&who, format_args!("is moved as a whole: {is_whole}"));
        self.announce(world, false);
        // What is left behind where one of them was replaced meanwhile is lost.
        world.has_lost_data.set(world.has_lost_data.get() || !is_whole);
        world.moved_slots.borrow_mut().insert(slot.into(), to_pair);
        world.announce_slots(None);
    }

    /// Tells both that the slot is on its way, or is no more.
    fn announce(&self, world: &World, is_on_its_way: bool) {
        let &Journey { slot, from, to, .. } = self;
        if let Some(view) = &mut world.hosts[from].server.borrow_mut().cluster {
            view.migrating.remove(&slot);
            view.migrating.extend(is_on_its_way.then(|| (slot, address_of(to))));
        }
        if let Some(view) = &mut world.hosts[to].server.borrow_mut().cluster {
            view.importing.remove(&slot);
            view.importing.extend(is_on_its_way.then_some(slot));
        }
    }
}
