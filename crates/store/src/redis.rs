//! Counters in Redis, as one worker uses them: one script call decides all charges of a partition;
//! later adjustments are sent without waiting for the reply.
//!
//! A charge is executed at most once. After a reply that says "not executed" (moved, loading, no
//! such script) it is sent again while there is time; after a timeout or a broken connection it is
//! not. When a late reply says that a charge was taken, it is given back, because the request was
//! decided without it.

mod announcements;
mod batch;
mod call;
mod connection;
mod execute;
mod info;
mod late_charges;
mod node;
mod peek;
mod refusal;
mod replica_lag;
mod replication_marks;
mod resets;
mod rivals;
mod script;
mod secret;
mod server;
mod server_id;
mod server_report;
mod servers;
mod settlements;
mod skew;
mod topology;
mod traced_call;
mod transport;

use std::{cell::Cell, fmt, rc::Rc, sync::Arc, time::Duration};

use redis::Value;
use tokio::time::{Instant, sleep};
use tollgate_clock::Timestamp;
use tollgate_limit::{AnyState, Charge, KeptSecret};
use tollgate_settings::{RedisSettings, StoreClock};

use self::{
    late_charges::SentCharges,
    script::{ScriptClock, ScriptTime},
    settlements::Settlements,
    topology::Topology,
};
use super::{Adjustment, Counts, Unanswered, call_time::CallTime};

pub(super) use self::{
    announcements::{ProxyAnnouncement, ProxyList},
    call::LateReply,
    execute::CallOptions,
    peek::{PeekReply, PeekSource},
    resets::{ListedReset, ResetList},
    script::Reply,
    secret::CommandError,
    server_id::is_made_up,
    skew::Clocks,
    topology::Partition,
};
pub use self::{
    resets::NotReset,
    rivals::{Rival, Rivals},
    server_report::{ReplicaLink, ServerHealth, ServerReport, ServerRole},
    servers::Servers,
    skew::Skew,
    transport::{OpeningStream, Stream, Transport},
};

/// Redis as one worker uses it.
pub(super) struct RedisStore {
    settings: Arc<RedisSettings>,
    topology: Rc<Topology>,
    /// The skew between this process' clock and the clock of each server.
    clocks: Arc<Clocks>,
    settlements: Rc<Settlements>,
    /// The secret that keys are hashed with, if Redis keeps it.
    secret: Option<Arc<KeptSecret>>,
    counts: Arc<Counts>,
    /// When an error that a server replied was last logged.
    last_logged: Cell<Option<Instant>>,
}

/// What all workers that use the same Redis share.
pub(super) struct SharedByWorkers {
    /// The secret that keys are hashed with, if Redis keeps it. Until it is known, no key can be
    /// made, and Redis counts as away.
    pub(super) secret: Option<Arc<KeptSecret>>,
    /// Totals for metrics.
    pub(super) counts: Arc<Counts>,
    /// The health of the servers.
    pub(super) servers: Arc<Servers>,
    /// The skew between this process' clock and the clock of each server.
    pub(super) clocks: Arc<Clocks>,
    /// How connections are opened.
    pub(super) transport: Transport,
}

/// A state that is copied into a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopiedState<'s> {
    pub(super) state: &'s AnyState,
    /// The latest reset of the counter that was known before the state was read: what was charged
    /// before that is not in it.
    pub(super) reset: Option<u64>,
}

/// What became of a state that was copied into a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeding {
    /// The counter had counted less.
    More,
    /// It had counted as much.
    Equal,
    /// It was reset, and the state may be from before.
    Refused,
}

impl RedisStore {
    /// Connects in the background, from tasks of this thread that end when the store is dropped. A
    /// decision may take `decision_timeout`.
    pub(super) fn start(
        settings: &Arc<RedisSettings>,
        decision_timeout: Duration,
        shared: SharedByWorkers,
    ) -> Rc<RedisStore> {
        let topology = Topology::start(Arc::clone(settings), decision_timeout, &shared);
        tokio::task::spawn_local(replica_lag::watch(Rc::downgrade(&topology)));
        let store = Rc::new(RedisStore {
            settings: Arc::clone(settings),
            topology,
            clocks: shared.clocks,
            settlements: Rc::default(),
            secret: shared.secret,
            counts: shared.counts,
            last_logged: Cell::new(None),
        });
        let settlements = Rc::clone(&store.settlements);
        tokio::task::spawn_local(settlements::send(settlements, Rc::downgrade(&store)));
        store
    }

    /// How many adjustments are still to be made, how many connections are kept up, and how many
    /// calls on them have no reply.
    pub(super) fn census(&self) -> (usize, usize, usize) {
        let (connections, calls) = self.topology.census();
        (self.settlements.len(), connections, calls)
    }

    /// Where the counters of an owner are. One call decides all charges of a partition.
    pub(super) fn partition(&self, owner: u128) -> Partition {
        self.topology.placement.partition(owner)
    }

    /// The identity of a partition's server, as the latest connection has read it; zero: there was
    /// no connection yet.
    pub(super) fn server(&self, partition: Partition) -> u64 {
        self.topology.primary(partition).map_or(0, |node| node.server_id.get())
    }

    /// Takes all `charges`, which are of one partition, or none, if the partition still has this
    /// `server`; without one, any server. What is taken after this has returned, or was dropped,
    /// is given back.
    ///
    /// # Errors
    /// Why there is no reply.
    pub(super) async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        time: CallTime,
        server: Option<u64>,
    ) -> Result<Reply, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        let (partition, clock) = self.place(first, time);
        let call = script::charge(&self.settings.prefix, charges, clock);
        let sent = SentCharges::new(self, charges);
        let late_reply = Some(&sent.late_reply);
        let options = CallOptions { deadline: time.deadline, server, late_reply };
        let reply = self.execute_with(partition, &call, options).await;
        let reply = sent.finish(reply)?;
        self.read(charges, &reply)
    }

    /// The whole state of a counter by its latest count; none if that cannot be known.
    ///
    /// # Errors
    /// Why there is no reply.
    pub(super) async fn state(
        &self,
        charge: &Charge<'_>,
        time: CallTime,
    ) -> Result<Option<AnyState>, Unanswered> {
        let (partition, clock) = self.place(charge, time);
        let call = script::state(&self.settings.prefix, charge, clock);
        let reply = self.execute(partition, &call, time.deadline).await?;
        script::read_state(charge, &reply).map_err(|error| self.bad_reply(&error))
    }

    /// Adds units that were taken locally to a counter, after the `reset` of it that is known.
    ///
    /// # Errors
    /// Why Redis is not known to have them.
    pub(super) async fn add(
        &self,
        charge: &Charge<'_>,
        CopiedState { state, reset }: CopiedState<'_>,
        now: Timestamp,
        options: CallOptions<'_>,
    ) -> Result<(), Unanswered> {
        let partition = self.partition(charge.key.owner);
        let clock = self.clock(partition, now);
        let Some(call) = script::add(&self.settings.prefix, charge, state, clock) else {
            return Ok(());
        };
        let call = call.after_reset(reset);
        self.execute_with(partition, &call, options).await.map(drop)
    }

    /// Sends an adjustment of a charge soon.
    pub(super) fn settle(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        self.settlements.add(charge, adjustment, now);
    }

    /// Makes an adjustment of a charge.
    ///
    /// # Errors
    /// Why Redis is not known to have made it.
    pub(super) async fn settle_now(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        let (partition, clock) = self.place(charge, time);
        let call = script::settle(&self.settings.prefix, charge, adjustment, clock);
        self.execute(partition, &call, time.deadline).await.map(drop)
    }

    /// Makes a counter count at least what a state does.
    ///
    /// # Errors
    /// Why it is not known to do so.
    pub(super) async fn seed(
        &self,
        charge: &Charge<'_>,
        CopiedState { state, reset }: CopiedState<'_>,
        time: CallTime,
    ) -> Result<Seeding, Unanswered> {
        let (partition, clock) = self.place(charge, time);
        let Some(call) = script::seed(&self.settings.prefix, charge, state, clock) else {
            return Ok(Seeding::Equal);
        };
        let reply = self.execute(partition, &call.after_reset(reset), time.deadline).await?;
        Ok(match reply {
            Value::Int(1) => Seeding::More,
            Value::Int(2) => Seeding::Refused,
            _ => Seeding::Equal,
        })
    }

    /// Waits until it is known which servers can be reached, or `deadline`.
    pub(super) async fn ready(&self, deadline: Instant) {
        self.topology.ready(deadline).await;
    }

    /// How often another server became primary.
    pub(super) fn elections(&self) -> u64 {
        self.topology.elections.get()
    }

    /// Waits until all adjustments are sent, or `deadline`.
    pub(super) async fn finish(&self, deadline: Instant) {
        while !self.settlements.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
        self.topology.finish(deadline).await;
    }

    /// The partition of a charge's counter, and the clock there.
    fn place(&self, charge: &Charge<'_>, time: CallTime) -> (Partition, ScriptTime) {
        let partition = self.partition(charge.key.owner);
        (partition, self.clock(partition, time.now))
    }

    /// The clock that the scripts of a partition go by, and the time of the server's own clock, as
    /// far as its skew is known.
    fn clock(&self, partition: Partition, now: Timestamp) -> ScriptTime {
        let Some(node) = self.topology.primary(partition) else {
            return ScriptTime { clock: ScriptClock::Redis, near: now };
        };
        match node.config.clock.in_effect() {
            StoreClock::Redis => {
                ScriptTime { clock: ScriptClock::Redis, near: node.config.clock.at_server(now) }
            }
            StoreClock::Proxy => ScriptTime { clock: ScriptClock::Proxy(now), near: now },
        }
    }

    fn read(&self, charges: &[Charge<'_>], reply: &Value) -> Result<Reply, Unanswered> {
        script::read(charges, reply).map_err(|error| self.bad_reply(&error))
    }

    fn bad_reply(&self, error: &dyn fmt::Display) -> Unanswered {
        if self.may_log() {
            tracing::warn!(%error, "redis sent a reply that cannot be read");
        }
        Unanswered::BadReply
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.settlements.close();
    }
}
