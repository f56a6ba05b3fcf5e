//! What happens in a simulation besides requests, and what is to be known of it in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use tokio::{runtime::Handle, sync::oneshot, task::JoinSet, time::Instant};

use crate::{
    chance::Chance,
    faults::{self, Fault},
    judge::{Facts, Room},
    layout::Layout,
    memory::Held,
    moving,
    proxy::{self, Order, Proxy},
    run::LENGTH,
    workload,
    world::World,
};

/// Of so many seeds, this one has no faults.
const CALM: (u64, u64) = (10, 9);

/// What happens in a simulation.
pub(crate) struct Course {
    /// The faults that strike.
    kinds: Vec<Fault>,
    /// Whether each request has an answer with an instant of the one store that decides: those of
    /// gates have none, and of two stores nobody knows the order.
    pub(crate) is_plain: bool,
    /// Whether nothing goes wrong.
    is_calm: bool,
    /// Until when callers send requests, and faults strike.
    pub(crate) end: Instant,
}

impl Course {
    pub(crate) fn choose(
        seed: u64,
        world: &World,
        chance: &mut Chance,
        later_chance: &mut Chance,
    ) -> Course {
        let is_moving = world.layout == Layout::Moving;
        let length = if is_moving { LENGTH + moving::LONGEST } else { LENGTH };
        let is_plain = world.policy.is_none() && !is_moving;
        let is_calm = seed % CALM.0 == CALM.1 && is_plain;
        let mut kinds = faults::choose(chance);
        if is_moving && later_chance.is_one_in(2) {
            kinds = Fault::OF_PROXIES.to_vec();
        }
        if is_calm {
            world.story.count("calm");
            kinds.clear();
        }
        let what = format!("seed {seed}, {:?}, faults {kinds:?}", world.layout);
        world.story.tell(&"the world", format_args!("{what}"));
        Course { kinds, is_plain, is_calm, end: world.begun + length }
    }

    /// Begins what happens besides requests.
    pub(crate) fn begin(
        &self,
        world: &Rc<World>,
        chance: &mut Chance,
        mut later_chance: Chance,
    ) -> JoinSet<()> {
        let mut causing = JoinSet::new();
        for _ in 0..if self.is_calm { 0 } else { 2 } {
            let (world, kinds) = (Rc::clone(world), self.kinds.clone());
            causing.spawn_local(faults::cause(world, kinds, chance.part(), self.end));
        }
        causing.spawn_local(moving::move_callers(Rc::clone(world), later_chance.part()));
        if world.layout == Layout::Cluster && later_chance.is_one_in(2) && !self.is_calm {
            let moving = faults::move_slots(Rc::clone(world), later_chance.part(), self.end);
            causing.spawn_local(moving);
        }
        causing.spawn_local(faults::reload(Rc::clone(world), later_chance, self.end));
        causing
    }

    /// What the judges have to know of the end, in a world that is healed.
    pub(crate) async fn gather(&self, world: &World, broken: &mut Vec<String>) -> Facts {
        let used = read_counters(world, broken).await;
        let held = held(world).await;
        let is_moving = world.layout == Layout::Moving;
        Facts {
            is_calm: self.is_calm,
            has_odd_clocks: self.kinds.iter().any(|kind| kind.is_of_clocks()),
            instances: world.recipes.len() as u32,
            lives: world.lives.borrow().iter().sum(),
            has_lost_data: world.has_lost_data.get(),
            was_replaced: world.was_replaced.get(),
            were_moved: is_moving,
            may_decide_twice: is_moving && self.kinds != Fault::OF_PROXIES,
            has_set_clock: world.has_set_clock.get(),
            has_lost_pending: world.has_lost_pending.get(),
            doubts: world.network.doubts(),
            unknown_charges: unknown_charges(world),
            used,
            primaries: primaries(world),
            in_use: world.proxies.borrow().iter().map(Proxy::primaries).collect(),
            connections: (0..held.len()).map(|it| world.network.connections_of(it)).sum(),
            carriers: Handle::current().metrics().num_alive_tasks(),
            room: room(world),
            held,
        }
    }
}

/// What each proxy holds.
async fn held(world: &World) -> Vec<Held> {
    let mut held = Vec::new();
    for number in 0..world.recipes.len() {
        let (sender, reply) = oneshot::channel();
        world.proxies.borrow()[number].tell(Order::Count(sender));
        let rest = reply.await.expect("the proxies of a healed world live");
        let most = world.recipes[number].high_water.most();
        held.push(Held { most, rest, connections: world.network.connections_of(number) });
    }
    held
}

/// How much a proxy may hold.
fn room(world: &World) -> Room {
    let ledger = world.ledger.borrow();
    Room {
        counters: world.limits.len() * 2,
        servers: world.machines(),
        requests: (world.deadline.as_micros() / workload::SHORTEST_PAUSE.as_micros()) as usize + 1,
        // What was admitted may be given back once, and what was decided without Redis too.
        refunds: ledger.answers.len() * 2,
    }
}

/// Charges of which some proxy does not know whether a server has them.
fn unknown_charges(world: &World) -> u32 {
    let living: u64 = world.proxies.borrow().iter().map(Proxy::unknown_charges).sum();
    (world.unknown.get() + living) as u32
}

/// The servers that are no replicas.
fn primaries(world: &World) -> BTreeSet<String> {
    let hosts = world.hosts.iter().filter(|host| host.follows.get().is_none());
    hosts.map(|host| proxy::name_of(host.number)).collect()
}

/// What is used of each hourly limit.
async fn read_counters(world: &World, broken: &mut Vec<String>) -> BTreeMap<usize, u32> {
    let mut used = BTreeMap::new();
    for (caller, [hourly, _]) in world.limits.iter().enumerate() {
        let (sender, reply) = oneshot::channel();
        world.proxies.borrow()[0].tell(Order::Read(hourly.clone(), sender));
        match reply.await {
            Ok(Ok(decision)) => {
                used.extend(decision.outcomes.first().map(|it| (caller, it.standing.used)));
            }
            other => broken.push(format!("{} cannot be read: {other:?}", hourly.name)),
        }
    }
    for (number, proxy) in world.proxies.borrow().iter().enumerate() {
        match proxy.stores().pending() {
            0 => {}
            pending => broken.push(format!("proxy {number} still has {pending} pending counters")),
        }
    }
    used
}
