//! One simulation, from its seed to what the judge says of it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::{Notify, oneshot},
    task::{JoinSet, LocalSet, spawn_local},
    time::{Instant, sleep},
};

use crate::{
    chance::Chance,
    disk_world,
    faults::{self, Fault},
    gate::PolicyFile,
    host::{Host, Machine},
    judge::{Facts, Review, Room, judge, review},
    layout::Layout,
    ledger::Ledger,
    limits::{limits, short_quota},
    machine::MachineClock,
    memory::{Held, HighWater},
    moving::{self, Plan},
    network::Network,
    proxy::{self, Order, Proxy, Recipe},
    replication::replicate,
    sentinels::Watcher,
    story::Story,
    workload,
    world::World,
};

/// How long callers send requests and faults strike.
pub(crate) const LENGTH: Duration = Duration::from_secs(20);

/// How long a healed world takes to settle what is left: adjustments are sent for so long.
const SETTLING: Duration = Duration::from_secs(12);

/// Draws of their own for gates, so that worlds without them are what they were. Of the seeds that
/// are kept, none has gates.
const GATES: u64 = 0x6761_7465_7300_0000;

/// Of so many seeds, this one has no faults.
const CALM: (u64, u64) = (10, 9);

/// What the second judge has looked at, as it is counted.
pub(crate) const EXACT: &str = "answers that the second judge has computed";
pub(crate) const AT_LEAST: &str = "answers that the second judge has held to the least";
pub(crate) const AT_MOST: &str = "answers that the second judge has held to the most";

/// What came of a seed.
pub(crate) struct Outcome {
    pub(crate) story: String,
    /// How often each thing happened.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// What was not as promised.
    pub(crate) broken: Vec<String>,
}

/// Simulates what follows from a seed. It has a thread of its own: what the standard library takes
/// for random is decided when a thread first asks for it.
pub(crate) fn run(seed: u64) -> Outcome {
    let simulating = thread::spawn(move || {
        tollgate_unreliable::seed_thread(seed);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O can be built");
        LocalSet::new().block_on(&runtime, async move {
            match disk_world::is_of(seed) {
                true => disk_world::simulate(seed).await,
                false => simulate(seed).await,
            }
        })
    });
    simulating.join().unwrap_or_else(|_| Outcome {
        story: String::new(),
        counts: BTreeMap::new(),
        broken: vec!["panicked".to_owned()],
    })
}

async fn simulate(seed: u64) -> Outcome {
    let mut chance = Chance::new(seed);
    let mut gate_chance = Chance::new(seed ^ GATES);
    let world = build(seed, &mut chance, &mut gate_chance);
    let is_moving = world.layout == Layout::Moving;
    let length = if is_moving { LENGTH + moving::LONGEST } else { LENGTH };
    let end = world.begun + length;
    let mut kinds = faults::choose(&mut chance);
    if is_moving && gate_chance.is_one_in(2) {
        kinds = Fault::OF_PROXIES.to_vec();
    }
    let is_plain = world.policy.is_none() && !is_moving;
    let is_calm = seed % CALM.0 == CALM.1 && is_plain;
    if is_calm {
        world.story.count("calm");
        kinds.clear();
    }
    world
        .story
        .tell(&"the world", format_args!("seed {seed}, {:?}, faults {kinds:?}", world.layout));
    let mut causing = JoinSet::new();
    for _ in 0..if is_calm { 0 } else { 2 } {
        let cause = faults::cause(Rc::clone(&world), kinds.clone(), chance.part(), end);
        causing.spawn_local(cause);
    }
    causing.spawn_local(moving::move_callers(Rc::clone(&world), gate_chance.part()));
    if world.layout == Layout::Cluster && gate_chance.is_one_in(2) && !is_calm {
        let moving = faults::move_slots(Rc::clone(&world), gate_chance.part(), end);
        causing.spawn_local(moving);
    }
    if world.policy.is_some() {
        causing.spawn_local(faults::reload(Rc::clone(&world), gate_chance, end));
    }
    spawn_local(replicate(Rc::clone(&world), chance.part()));
    workload::send_requests(Rc::clone(&world), chance.part(), end).await;
    causing.join_all().await;
    faults::heal(&world);
    sleep(SETTLING).await;
    let mut broken = Vec::new();
    if !moving::wait_until_moved(&world).await {
        broken.push("callers are not moved".to_owned());
    }
    let used = read_counters(&world, &mut broken).await;
    let held = held(&world).await;
    let facts = Facts {
        is_calm,
        has_odd_clocks: kinds.iter().any(|kind| kind.is_of_clocks()),
        instances: world.recipes.len() as u32,
        lives: world.lives.borrow().iter().sum(),
        has_lost_data: world.has_lost_data.get(),
        was_replaced: world.was_replaced.get(),
        were_moved: is_moving,
        may_decide_twice: is_moving && kinds != Fault::OF_PROXIES,
        has_set_clock: world.has_set_clock.get(),
        has_lost_pending: world.has_lost_pending.get(),
        doubts: world.network.doubts(),
        unknown_charges: unknown_charges(&world),
        used,
        primaries: primaries(&world),
        in_use: world.proxies.borrow().iter().map(Proxy::primaries).collect(),
        connections: (0..held.len()).map(|it| world.network.connections_of(it)).sum(),
        carriers: Handle::current().metrics().num_alive_tasks(),
        room: room(&world),
        held,
    };
    broken.extend(judge(&world.limits, &world.ledger.borrow(), &facts));
    // Gates tell no instant, and stores that share a caller no order.
    if is_plain {
        broken.extend(compute_again(&world, &facts));
    }
    for what in &broken {
        world.story.tell(&"the judge", format_args!("{what}"));
    }
    Outcome { story: world.story.lines(), counts: world.story.counts(), broken }
}

fn build(seed: u64, chance: &mut Chance, gate_chance: &mut Chance) -> Rc<World> {
    let begun = Instant::now();
    let story = Story::new();
    let network = Network::new(chance.part(), story.clone());
    let proxies = 2 + chance.below(2);
    let deadline = Duration::from_millis(*chance.pick(&[25, 50, 100]));
    let clock = || MachineClock::new(begun);
    let written = Rc::new(Notify::new());
    let layout = Layout::choose(seed, chance, gate_chance);
    let machine = |number| Machine { number, seed: chance.draw(), clock: clock() };
    let hosts: Vec<_> = (0..layout.servers())
        .map(machine)
        .map(|machine| Host::new(machine, &network, &written))
        .collect();
    let watchers: Vec<_> =
        layout.sentinels().map(|number| Watcher::start(number, chance.draw(), &network)).collect();
    let short = short_quota(chance);
    let hourly = chance.within(30..90) as u32;
    let mut limits = limits(4, &short, hourly);
    let has_gates = gate_chance.is_one_in(3) && layout != Layout::Moving;
    let policy = has_gates.then(|| {
        let align = *gate_chance.pick(&["first_request", "epoch"]);
        let policy = PolicyFile::new(hourly, align);
        limits.iter_mut().enumerate().for_each(|(caller, own)| own[0] = policy.limit_of(caller));
        policy
    });
    let settings = proxy::settings(&layout.settings(), proxies, deadline);
    let recipe = |number| Recipe {
        number,
        settings: settings.clone(),
        clock: clock(),
        network: network.clone(),
        policy: policy.clone(),
        plan: Plan::default(),
        high_water: HighWater::default(),
    };
    let recipes: Vec<_> = (0..proxies).map(recipe).collect();
    layout.replicas().for_each(|(replica, primary)| hosts[replica].follow(primary));
    hosts.iter().for_each(|host| host.start());
    let running = recipes.iter().map(Recipe::start).collect();
    let world = Rc::new(World {
        begun,
        story,
        network,
        hosts,
        watchers,
        named: Cell::new(0),
        written,
        layout,
        recipes,
        proxies: RefCell::new(running),
        lives: RefCell::new(vec![1; proxies]),
        limits,
        policy,
        ledger: RefCell::new(Ledger::default()),
        deadline,
        has_lost_data: Cell::new(false),
        was_replaced: Cell::new(false),
        has_set_clock: Cell::new(false),
        has_lost_pending: Cell::new(false),
        unknown: Cell::new(0),
        epoch: Cell::new(0),
        moved_slots: RefCell::default(),
    });
    world.announce_slots(None);
    world.story.count(layout.name());
    world
}

/// What the second judge has found.
fn compute_again(world: &World, facts: &Facts) -> Vec<String> {
    let Review { broken, exact, at_least, at_most, unjudged } =
        review(&world.limits, &world.ledger.borrow(), facts);
    let counts = [
        (EXACT, exact),
        (AT_LEAST, at_least),
        (AT_MOST, at_most),
        ("bounds of answers that the second judge has left out", unjudged),
    ];
    counts.into_iter().for_each(|(kind, times)| world.story.count_many(kind, times));
    broken
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
