//! Counters in Redis, as one worker reaches them: one script call decides about all charges of a
//! place, and whatever is put right later is sent and not waited for.
//!
//! A charge is executed at most once. An answer that says "not executed" (moved, loading, no such
//! script) is acted on and the charge sent again while there is time; after silence, or a connection
//! that broke, it is not. What a server takes when nobody waits for it any more is given back: the
//! request was decided otherwise.

mod abandoned;
mod announcements;
mod batch;
mod identity;
mod node;
mod peek;
mod refusal;
mod replicas;
mod script;
mod secret;
mod servers;
mod settlements;
mod skew;
mod topology;
mod upkeep;

use std::{cell::Cell, fmt, rc::Rc, sync::Arc, time::Duration};

use redis::{ServerError, Value};
use tokio::time::{Instant, sleep};

use self::{
    abandoned::Pending,
    batch::Request,
    node::CallError,
    refusal::Refusal,
    script::{Call, ScriptClock, ScriptTime},
    settlements::Settlements,
    topology::Topology,
};
use super::{Adjustment, Counts, Unanswered};
use crate::{
    clock::Timestamp,
    limit::{AnyState, Charge, KeptSecret, SecretStatus},
    settings::{RedisSettings, StoreClock},
};

pub(super) use self::{
    batch::Orphan, identity::is_unnamed, peek::Told, script::Reply, secret::NoSecret, skew::Clocks,
    topology::Place,
};
pub use self::{
    servers::{ReplicaLink, ServerHealth, ServerReport, ServerRole, Servers},
    skew::Skew,
};

/// How often in a row a charge is sent where an answer says that it belongs.
const MAX_REDIRECTIONS: usize = 5;

/// Time from one try to the next while a server cannot serve for the moment; each is twice as long
/// as the one before.
const PAUSE: Duration = Duration::from_millis(2);

/// Time between two complaints in the log about what servers answer.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

/// Characters of a server's words that are logged.
const MAX_DETAILS: usize = 200;

/// Redis, as one worker reaches it.
pub(super) struct RedisStore {
    settings: Arc<RedisSettings>,
    topology: Rc<Topology>,
    /// This process' clock beside those of the servers.
    clocks: Arc<Clocks>,
    settlements: Rc<Settlements>,
    /// What counters' names are hashed under, where Redis keeps that.
    secret: Option<Arc<KeptSecret>>,
    counts: Arc<Counts>,
    /// When an error that is nobody's fault but the server's was last told.
    complained: Cell<Option<Instant>>,
}

/// What all workers that reach the same Redis share.
pub(super) struct SharedByWorkers {
    /// What counters' names are hashed under, where Redis keeps that. As long as it is awaited, no
    /// counter can be named, and Redis counts as away.
    pub(super) secret: Option<Arc<KeptSecret>>,
    /// What happened.
    pub(super) counts: Arc<Counts>,
    /// How the servers are.
    pub(super) servers: Arc<Servers>,
    /// This process' clock beside theirs.
    pub(super) clocks: Arc<Clocks>,
}

/// How a call is made.
struct Terms<'t> {
    deadline: Instant,
    /// Which server it is for; none: whichever the place has.
    server: Option<u64>,
    /// What is to become of a reply that comes when nobody waits for it.
    orphan: Option<&'t Rc<Orphan>>,
}

impl RedisStore {
    /// Connects, in the background, from tasks of this thread that end when the store is dropped.
    /// A decision may take `patience`.
    pub(super) fn start(
        settings: &Arc<RedisSettings>,
        patience: Duration,
        shared: SharedByWorkers,
    ) -> Rc<RedisStore> {
        let store = Rc::new(RedisStore {
            settings: Arc::clone(settings),
            topology: Topology::start(Arc::clone(settings), patience, &shared),
            clocks: shared.clocks,
            settlements: Rc::default(),
            secret: shared.secret,
            counts: shared.counts,
            complained: Cell::new(None),
        });
        let settlements = Rc::clone(&store.settlements);
        tokio::task::spawn_local(settlements::send(settlements, Rc::downgrade(&store)));
        store
    }

    /// Where the counters of an owner are: those of one place are decided together.
    pub(super) fn place(&self, owner: u128) -> Place {
        self.topology.place(owner)
    }

    /// Which server a place has, as it is known by the latest connection; zero: by none yet.
    pub(super) fn server(&self, place: Place) -> u64 {
        self.topology.primary(place).map_or(0, |node| node.met())
    }

    /// Takes all `charges`, which are of one place, or none, if the place still has this `server`; if
    /// none is named, whichever it has. What is taken after this has returned, or was dropped, is given
    /// back.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
        server: Option<u64>,
    ) -> Result<Reply, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        let place = self.place(first.key.owner);
        let call = script::charge(&self.settings.prefix, charges, self.clock(place, now));
        let pending = Pending::new(self, charges);
        let terms = Terms { deadline, server, orphan: Some(pending.orphan()) };
        let reply = self.execute_on(place, &call, terms).await;
        let reply = pending.finish(reply)?;
        self.read(charges, &reply)
    }

    /// The whole of what a counter holds, by the latest count; none if that cannot be known.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn state(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Option<AnyState>, Unanswered> {
        let place = self.place(charge.key.owner);
        let call = script::state(&self.settings.prefix, charge, self.clock(place, now));
        let reply = self.execute(place, &call, deadline).await?;
        script::read_state(charge, &reply).map_err(|error| self.bad_reply(&error))
    }

    /// Adds what was taken elsewhere to what a counter holds, if its place still has this server. A
    /// reply that comes after the deadline is the orphan's.
    ///
    /// # Errors
    /// Why it is not known to have it.
    pub(super) async fn add(
        &self,
        charge: &Charge<'_>,
        state: &AnyState,
        (now, deadline): (Timestamp, Instant),
        (server, orphan): (u64, &Rc<Orphan>),
    ) -> Result<(), Unanswered> {
        let place = self.place(charge.key.owner);
        let time = self.clock(place, now);
        let Some(call) = script::add(&self.settings.prefix, charge, state, time) else {
            return Ok(());
        };
        let terms = Terms { deadline, server: Some(server), orphan: Some(orphan) };
        self.execute_on(place, &call, terms).await.map(drop)
    }

    /// Puts right what was charged, soon.
    pub(super) fn settle(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        self.settlements.add(charge, adjustment, now);
    }

    /// Has the counter count what `state` does too; tells whether that is more than it counted.
    ///
    /// # Errors
    /// Why it is not known to count both.
    pub(super) async fn seed(
        &self,
        charge: &Charge<'_>,
        state: &AnyState,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<bool, Unanswered> {
        let place = self.place(charge.key.owner);
        let clock = self.clock(place, now);
        let Some(call) = script::seed(&self.settings.prefix, charge, state, clock) else {
            return Ok(false);
        };
        let reply = self.execute(place, &call, deadline).await?;
        Ok(reply == Value::Int(1))
    }

    /// Waits until it is known which servers are there, or `deadline`.
    pub(super) async fn ready(&self, deadline: Instant) {
        self.topology.ready(deadline).await;
    }

    /// How often another server was found to be primary.
    pub(super) fn elections(&self) -> u64 {
        self.topology.elections()
    }

    /// Waits until all settlements are on their way, or `deadline`.
    pub(super) async fn finish(&self, deadline: Instant) {
        while !self.settlements.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
        self.topology.finish(deadline).await;
    }

    /// What time it is for the scripts of a place when it is `now` here, and what the server's own
    /// clock says then, as far as that is known.
    fn clock(&self, place: Place, now: Timestamp) -> ScriptTime {
        let Some(node) = self.topology.primary(place) else {
            return ScriptTime { clock: ScriptClock::Redis, near: now };
        };
        match node.clock.counts() {
            StoreClock::Redis => {
                ScriptTime { clock: ScriptClock::Redis, near: node.clock.at_server(now) }
            }
            StoreClock::Proxy => ScriptTime { clock: ScriptClock::Proxy(now), near: now },
        }
    }

    fn read(&self, charges: &[Charge<'_>], reply: &Value) -> Result<Reply, Unanswered> {
        script::read(charges, reply).map_err(|error| self.bad_reply(&error))
    }

    fn bad_reply(&self, error: &dyn fmt::Display) -> Unanswered {
        if self.may_complain() {
            tracing::warn!(%error, "redis gave a reply that cannot be read");
        }
        Unanswered::BadReply
    }

    /// Has the server of a place execute a script, wherever the place may have moved to.
    async fn execute(
        &self,
        place: Place,
        call: &Call,
        deadline: Instant,
    ) -> Result<Value, Unanswered> {
        self.execute_on(place, call, Terms { deadline, server: None, orphan: None }).await
    }

    /// The same, on these terms.
    async fn execute_on(
        &self,
        place: Place,
        call: &Call,
        Terms { deadline, server, orphan }: Terms<'_>,
    ) -> Result<Value, Unanswered> {
        self.can_name()?;
        let mut node = self.topology.primary(place).ok_or(Unanswered::Away)?;
        let (mut has_script, mut is_asking) = (true, false);
        let (mut redirections, mut pause) = (0, PAUSE);
        loop {
            let is_known = has_script && !node.introduce(call.sha());
            let command = if is_known { call.evalsha() } else { call.eval() };
            // What is being moved comes along with its slot.
            let server = server.filter(|_| !is_asking);
            let request = Request { command, is_asking, server, orphan: orphan.cloned() };
            let error = match node.call(request, deadline).await {
                Ok(value) => return Ok(value),
                Err(CallError::Refused(error)) => error,
                // It is for a server that is there no more: who decides about it begins anew.
                Err(CallError::Away) if server.is_some_and(|server| server != node.met()) => {
                    return Err(Unanswered::Away);
                }
                // It said that it cannot serve, which then counts as being away. Nothing was sent,
                // and who takes its place is being found out.
                Err(CallError::Away) if pause > PAUSE && Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause *= 2;
                    node = self.topology.primary(place).ok_or(Unanswered::Away)?;
                    continue;
                }
                Err(CallError::Away) => return Err(Unanswered::Away),
                Err(CallError::Busy) => return Err(Unanswered::Busy),
                Err(CallError::Timeout) => return Err(Unanswered::Timeout),
                Err(CallError::Lost) => return Err(Unanswered::Lost),
            };
            let refusal = Refusal::of(&error);
            let has_known_it = std::mem::replace(&mut has_script, refusal != Refusal::NoScript);
            let next = match refusal {
                Refusal::NoScript if has_known_it => continue,
                Refusal::Moved(address) if redirections < MAX_REDIRECTIONS => {
                    redirections += 1;
                    is_asking = false;
                    self.topology.moved(place, address, &node)
                }
                Refusal::Ask(address) if redirections < MAX_REDIRECTIONS => {
                    redirections += 1;
                    is_asking = true;
                    self.topology.asked(address, &node)
                }
                Refusal::NotNow | Refusal::ReadOnly
                    if node.is_worth_waiting_for() && Instant::now() + pause < deadline =>
                {
                    self.topology.doubt();
                    if refusal == Refusal::ReadOnly {
                        // The name may lead to another server by now.
                        node.renew();
                    }
                    sleep(pause).await;
                    (pause, redirections, is_asking) = (pause * 2, 0, false);
                    self.topology.primary(place)
                }
                _ => {
                    self.topology.doubt();
                    node.give_up();
                    if self.complain(&error) && orphan.is_some() {
                        node.server.refuse(error.details().unwrap_or_else(|| error.code()));
                    }
                    return Err(Unanswered::Refused);
                }
            };
            node = next.ok_or(Unanswered::Away)?;
        }
    }

    /// Whether the names of counters are those that other proxies give them.
    fn can_name(&self) -> Result<(), Unanswered> {
        match &self.secret {
            Some(secret) if secret.status() == SecretStatus::Awaited => Err(Unanswered::Away),
            _ => Ok(()),
        }
    }

    /// Tells of an error, unless one was told lately; whether it did.
    fn complain(&self, error: &ServerError) -> bool {
        let is_due = self.may_complain();
        if is_due {
            let details = error.details().unwrap_or_default().chars().take(MAX_DETAILS);
            let (code, details) = (error.code(), details.collect::<String>());
            tracing::warn!(code, details, "redis refused");
        }
        is_due
    }

    fn may_complain(&self) -> bool {
        let is_due = self.complained.get().is_none_or(|at| at.elapsed() >= COMPLAINT_PAUSE);
        if is_due {
            self.complained.set(Some(Instant::now()));
        }
        is_due
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.settlements.close();
    }
}
