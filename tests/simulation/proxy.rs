//! A proxy: a real gate over a real store with real connections, on a clock of its own. It ends as
//! a process does: at once with all its tasks, or after it has sent what it still had.

use std::{collections::BTreeSet, path::Path, rc::Rc, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, LocalSet, spawn_local},
    time::{Instant, MissedTickBehavior, interval},
};
use tollgate_gate::Gate;
use tollgate_limit::{Decision, Outcome};
use tollgate_policy::Policies;
use tollgate_settings::{MemoryBounds, RedisAddress, Settings, StoreSettings};
use tollgate_store::{
    Adjustment, Census, MemoryStore, NotReset, ServerRole, StoreError, Stores, Transport,
    Unanswered,
};
use tollgate_yaml::Sources;

use crate::{
    gate::{self, Answer, PolicyFile, Question},
    host::address_of,
    limits::{KEY_SECRET, Limit},
    machine::MachineClock,
    memory::HighWater,
    moving::Plan,
    network::Network,
};

/// How often a worker does its periodic work.
const TICK: Duration = Duration::from_millis(100);

/// A running proxy.
pub(crate) struct Proxy {
    orders: mpsc::UnboundedSender<Order>,
    running: JoinHandle<()>,
    stores: Arc<Stores>,
}

/// What a proxy is asked to do.
pub(crate) enum Order {
    /// Charge these limits, and say what was decided.
    Charge(Vec<(Limit, u32)>, oneshot::Sender<Decided>),
    /// What its gate says to this.
    Ask(Question, oneshot::Sender<Answer>),
    /// Put these policies in force.
    Reload(Policies),
    /// Give a charge back.
    GiveBack(Limit, u32, Outcome),
    /// Take so many units more.
    Take(Limit, u32, Outcome),
    /// Make counters as never used.
    Reset(Vec<Limit>, oneshot::Sender<Result<(), NotReset>>),
    /// How much is used of a limit, by the server that has it.
    Read(Limit, oneshot::Sender<Result<Decision, StoreError>>),
    /// How much it holds.
    Count(oneshot::Sender<Census>),
    /// Send what is left, and end.
    Finish(oneshot::Sender<()>),
}

/// What was decided about a request.
pub(crate) struct Decided {
    pub(crate) decision: Result<Decision, StoreError>,
    /// How long that has taken.
    pub(crate) took: Duration,
}

/// How to start one.
#[derive(Clone)]
pub(crate) struct Recipe {
    /// Its place among the proxies.
    pub(crate) number: usize,
    pub(crate) settings: StoreSettings,
    pub(crate) clock: MachineClock,
    pub(crate) network: Network,
    /// The policy of its gate, if callers ask that.
    pub(crate) policy: Option<PolicyFile>,
    /// Which callers are moved to the next store.
    pub(crate) plan: Plan,
    /// The most that its processes have held.
    pub(crate) high_water: HighWater,
}

impl Recipe {
    pub(crate) fn start(&self) -> Proxy {
        let memory = MemoryStore::new(MemoryBounds::from(10_000), KEY_SECRET);
        let clock = self.clock.as_clock();
        let (network, number) = (self.network.clone(), self.number);
        let open = move |address: &RedisAddress| network.open((number, server_of(address)));
        let stores = Stores::new(self.settings.clone(), memory, clock)
            .connecting_by(Transport::Streams(Arc::new(open)));
        let stores = Arc::new(stores);
        self.plan.put_in_force(&stores);
        let (orders, received) = mpsc::unbounded_channel();
        // Its tasks end with it, as those of a process do.
        let process = LocalSet::new();
        let working = work(Arc::clone(&stores), self.clone(), received);
        let running = spawn_local(async move { process.run_until(working).await });
        Proxy { orders, running, stores }
    }
}

impl Proxy {
    /// Tells it to do something. One that has ended does not.
    pub(crate) fn tell(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        self.running.abort();
    }

    /// The servers that it takes for primaries.
    pub(crate) fn primaries(&self) -> BTreeSet<String> {
        let servers = self.stores.current_servers.report().into_iter();
        let primaries = servers.filter(|server| server.role == ServerRole::Primary);
        primaries.map(|server| server.server).collect()
    }

    /// Charges of which it does not know whether a server has them: their replies were lost, or
    /// came late.
    pub(crate) fn unknown_charges(&self) -> u64 {
        let counts = &self.stores.counts;
        counts.unknown.get() + counts.unanswered(Unanswered::Timeout)
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }
}

/// The work of a proxy's only worker.
async fn work(stores: Arc<Stores>, recipe: Recipe, mut orders: mpsc::UnboundedReceiver<Order>) {
    let gate = gate::start(&stores, recipe.clock.as_clock(), recipe.policy.as_ref());
    gate.ready().await;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(Order::Finish(done)) => {
                    gate.finish().await;
                    let _ = done.send(());
                    return;
                }
                Some(order) => drop(spawn_local(obey(Rc::clone(&gate), order))),
                None => return,
            },
            _ = ticks.tick() => {
                recipe.high_water.note(gate.store().census());
                gate.tick();
            }
        }
    }
}

async fn obey(gate: Rc<Gate>, order: Order) {
    let (store, now) = (gate.store(), gate.shared().clock.now());
    match order {
        Order::Charge(limits, reply) => {
            let charges: Vec<_> = limits.iter().map(|(limit, cost)| limit.charge(*cost)).collect();
            let begun = Instant::now();
            let decision = store.charge(&charges, now).await;
            let _ = reply.send(Decided { decision, took: begun.elapsed() });
        }
        Order::Ask(question, reply) => {
            let _ = reply.send(question.ask(&gate).await);
        }
        Order::Reload(policies) => drop(gate.shared().install(policies)),
        Order::GiveBack(limit, cost, outcome) => {
            let Some(receipt) = outcome.receipt else { return };
            store.settle(&limit.charge(cost), &outcome, Adjustment::GiveBack(receipt), now);
        }
        Order::Take(limit, cost, outcome) => {
            store.settle(&limit.charge(cost), &outcome, Adjustment::Take, now);
        }
        Order::Reset(limits, reply) => {
            let keys: Vec<_> = limits.iter().map(|limit| limit.key).collect();
            let _ = reply.send(store.reset(&keys).await);
        }
        Order::Read(limit, reply) => {
            let _ = reply.send(store.peek_known(&[limit.charge(0)], now).await);
        }
        Order::Count(reply) => {
            let _ = reply.send(store.census());
        }
        Order::Finish(_) => {}
    }
}

/// The settings of all proxies, with what is given of the `store` section.
pub(crate) fn settings(store: &str, instances: usize, deadline: Duration) -> StoreSettings {
    let deadline = deadline.as_millis();
    let text = format!(
        "version: 1\nlisteners: [{{ address: 127.0.0.1:1 }}]\n\
         store: {{ {store}, instances: {instances}, deadline: {deadline}ms, \
         fallback_header: true }}\n"
    );
    let file = Path::new("tollgate.yaml");
    let settings = Settings::parse(file, &text, &Sources::system());
    let settings = settings.unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    StoreSettings { key_secret: Some(KEY_SECRET), ..settings.store }
}

/// The name of a server in reports of proxies.
pub(crate) fn name_of(server: usize) -> String {
    address_of(server).to_string()
}

/// The address of a server.
pub(crate) fn url_of(server: usize) -> String {
    format!("redis://{}", name_of(server))
}

fn server_of(address: &RedisAddress) -> usize {
    let number = address.host.strip_prefix("redis-").and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no server is at {address}"))
}
