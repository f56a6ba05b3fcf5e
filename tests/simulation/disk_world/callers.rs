//! Callers: they charge their limits at any proxy, give some of it back, and are reset now and
//! then.

use std::{rc::Rc, time::Duration};

use tokio::{
    task::spawn_local,
    time::{Instant, sleep},
};
use tollgate_limit::{Outcome, Verdict};

use super::DiskWorld;
use crate::{chance::Chance, workload::summary};

/// How long after a request what it was charged may be given back.
pub(super) const LONGEST_REQUEST: Duration = Duration::from_secs(4);

/// Which limits of a caller a request charges.
const CHOICES: [&[usize]; 4] = [&[0, 1], &[0], &[0], &[1]];

/// Sends requests until `end`, one after the other.
pub(super) async fn send_requests(world: Rc<DiskWorld>, mut chance: Chance, end: Instant) {
    let has_resets = chance.is_one_in(2);
    while Instant::now() < end {
        sleep(chance.millis(5..120)).await;
        let callers = world.limits.len();
        let caller = if chance.is_one_in(3) { 0 } else { chance.below(callers) };
        let number = chance.below(world.proxies.len());
        let mut proxy = world.proxies[number].lock().await;
        if has_resets && chance.is_one_in(60) {
            world.story.count("resets");
            world.story.tell(&proxy.who, format_args!("resets caller {caller}"));
            proxy.reset(&world, caller).await;
            continue;
        }
        let which = *chance.pick(&CHOICES);
        let cost = if chance.is_one_in(5) { 2 } else { 1 };
        let decided = proxy.charge(&world, caller, which, cost).await;
        let what = format!("caller {caller} {which:?} cost {cost}");
        match decided {
            None => world.story.tell(&proxy.who, format_args!("{what}: ended before it answered")),
            Some(Err(error)) => {
                world.story.count("requests refused");
                world.story.tell(&proxy.who, format_args!("{what}: {error}"));
            }
            Some(Ok(decision)) => {
                world.story.tell(&proxy.who, format_args!("{what}: {}", summary(&decision)));
                let life = (number, proxy.lives);
                let is_admitted = decision.verdict == Verdict::Allow;
                for (at, outcome) in which.iter().zip(&decision.outcomes).filter(|_| is_admitted) {
                    let place = (caller, *at);
                    if chance.is_one_in(5) && world.limits[caller][*at].limit.can_be_refunded() {
                        let given = Given { place, cost, outcome: *outcome, life };
                        let wait = chance.millis(1..LONGEST_REQUEST.as_millis() as u64);
                        spawn_local(given.back(Rc::clone(&world), wait));
                    }
                }
            }
        }
    }
}

/// A charge that is given back.
struct Given {
    place: (usize, usize),
    cost: u32,
    outcome: Outcome,
    /// The proxy that has it, and which of its lives.
    life: (usize, u32),
}

impl Given {
    async fn back(self, world: Rc<DiskWorld>, wait: Duration) {
        sleep(wait).await;
        let Given { place, cost, outcome, life } = self;
        let mut proxy = world.proxies[life.0].lock().await;
        // A process that has ended gives nothing back.
        if proxy.lives != life.1 {
            return;
        }
        world.story.count("refunds");
        let name = &world.limits[place.0][place.1].limit.name;
        world.story.tell(&proxy.who, format_args!("gives back {cost} of {name}"));
        proxy.give_back(&world, place, cost, &outcome).await;
    }
}
