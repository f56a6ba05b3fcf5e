//! One simulation, from its seed to what the judge says of it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    thread,
    time::Duration,
};

use tokio::{
    runtime::Builder,
    sync::Notify,
    task::{LocalSet, spawn_local},
    time::{Instant, sleep},
};

use crate::{
    chance::Chance,
    course::Course,
    disk_world, faults,
    gate::PolicyFile,
    host::{Host, Machine},
    judge::{Facts, Review, judge, review},
    layout::Layout,
    ledger::Ledger,
    limits::{limits, short_quota},
    machine::MachineClock,
    memory::HighWater,
    moving::{self, Plan},
    network::Network,
    proxy::{self, Recipe},
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

/// Draws of their own for what came later (gates, and callers and slots that move), so that worlds
/// without it are what they were.
const LATER: u64 = 0x6761_7465_7300_0000;

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
    let mut later_chance = Chance::new(seed ^ LATER);
    let world = build(seed, &mut chance, &mut later_chance);
    let course = Course::choose(seed, &world, &mut chance, &mut later_chance);
    let causing = course.begin(&world, &mut chance, later_chance);
    spawn_local(replicate(Rc::clone(&world), chance.part()));
    workload::send_requests(Rc::clone(&world), chance.part(), course.end).await;
    causing.join_all().await;
    faults::heal(&world);
    sleep(SETTLING).await;
    let mut broken = Vec::new();
    if !moving::wait_until_moved(&world).await {
        broken.push("callers are not moved".to_owned());
    }
    let facts = course.gather(&world, &mut broken).await;
    broken.extend(judge(&world.limits, &world.ledger.borrow(), &facts));
    if course.is_plain {
        broken.extend(compute_again(&world, &facts));
    }
    for what in &broken {
        world.story.tell(&"the judge", format_args!("{what}"));
    }
    Outcome { story: world.story.lines(), counts: world.story.counts(), broken }
}

fn build(seed: u64, chance: &mut Chance, later_chance: &mut Chance) -> Rc<World> {
    let begun = Instant::now();
    let story = Story::new();
    let network = Network::new(chance.part(), story.clone());
    let proxies = 2 + chance.below(2);
    let deadline = Duration::from_millis(*chance.pick(&[25, 50, 100]));
    let clock = || MachineClock::new(begun);
    let written = Rc::new(Notify::new());
    let layout = Layout::choose(seed, chance, later_chance);
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
    let has_gates = later_chance.is_one_in(3) && layout != Layout::Moving;
    let policy = has_gates.then(|| {
        let align = *later_chance.pick(&["first_request", "epoch"]);
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
