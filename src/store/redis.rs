//! Counters in Redis, as one worker reaches them: one script call decides about all charges of a
//! place, and whatever is put right later is sent and not waited for.
//!
//! A charge is executed at most once. An answer that says "not executed" (moved, loading, no such
//! script) is acted on and the charge sent again while there is time; after silence, or a connection
//! that broke, it is not. What a server takes when nobody waits for it any more is given back: the
//! request was decided otherwise.

mod abandoned;
mod batch;
mod breaker;
mod node;
mod refusal;
mod script;
mod secret;
mod settlements;
mod skew;
mod topology;
mod upkeep;

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use redis::{ServerError, Value};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use self::{
    abandoned::Pending,
    batch::Request,
    node::CallError,
    refusal::Refusal,
    script::{Call, ScriptClock},
    settlements::Settlements,
    topology::Topology,
};
use super::{Adjustment, Counts, Unanswered};
use crate::{
    clock::Timestamp,
    limit::{AnyState, Charge, Count, KeptSecret, SecretStanding},
    settings::{RedisSettings, StoreClock},
};

pub use self::skew::Skew;
pub(super) use self::{
    batch::Orphan, script::Reply, secret::NoSecret, skew::Clocks, topology::Place,
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

impl RedisStore {
    /// Connects, in the background, from tasks of this thread that end when the store is dropped.
    /// A decision may take `patience`. As long as `secret` is awaited, no counter can be named, and
    /// Redis counts as away.
    pub(super) fn start(
        settings: &Arc<RedisSettings>,
        patience: Duration,
        (secret, counts, clocks): (Option<Arc<KeptSecret>>, Arc<Counts>, Arc<Clocks>),
    ) -> Rc<RedisStore> {
        let store = Rc::new(RedisStore {
            settings: Arc::clone(settings),
            secret,
            topology: Topology::start(Arc::clone(settings), patience, Arc::clone(&clocks)),
            clocks,
            settlements: Rc::default(),
            counts,
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

    /// Takes all `charges`, which are of one place, or none. What is taken after this has returned,
    /// or was dropped, is given back.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Reply, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        let place = self.place(first.key.owner);
        let call = script::charge(&self.settings.prefix, charges, self.clock(place, now));
        let pending = Pending::new(self, charges);
        let reply = self.execute_or(place, &call, (deadline, Some(pending.orphan()))).await;
        let reply = pending.finish(reply)?;
        self.read(charges, &reply)
    }

    /// How the limits of `charges`, which are of one place, stand; perhaps not by the latest count.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn peek(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Reply, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        let place = self.place(first.key.owner);
        let call = script::peek(&self.settings.prefix, charges, self.clock(place, now));
        self.can_name()?;
        let asked: SmallVec<[Charge<'_>; 2]> =
            charges.iter().map(|charge| Charge { cost: 0, ..*charge }).collect();
        if let Some(replica) = self.topology.replica(place) {
            // There must be time left for the primary.
            let soon = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
            let mut reply = replica.call(call.evalsha(), soon).await;
            if let Err(CallError::Refused(error)) = &reply
                && Refusal::of(error) == Refusal::NoScript
            {
                reply = replica.call(call.eval(), soon).await;
            }
            // A replica that cannot tell is none.
            if let Ok(reply) = reply {
                return self.read(&asked, &reply).map(Reply::told);
            }
        }
        let reply = self.execute(place, &call, deadline).await?;
        self.read(&asked, &reply).map(Reply::told)
    }

    /// What a counter holds, by the latest count.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn count(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Option<Count>, Unanswered> {
        let charges = [Charge { cost: 0, ..*charge }];
        let place = self.place(charge.key.owner);
        let call = script::peek(&self.settings.prefix, &charges, self.clock(place, now));
        let reply = self.execute(place, &call, deadline).await?;
        Ok(self.read(&charges, &reply)?.counts.into_iter().next())
    }

    /// Adds what was taken elsewhere to what a counter holds. A reply that comes after the deadline
    /// is the orphan's.
    ///
    /// # Errors
    /// Why it is not known to have it.
    pub(super) async fn add(
        &self,
        charge: &Charge<'_>,
        state: &AnyState,
        (now, deadline): (Timestamp, Instant),
        orphan: &Rc<Orphan>,
    ) -> Result<(), Unanswered> {
        let place = self.place(charge.key.owner);
        let time = self.clock(place, now);
        let Some(call) = script::add(&self.settings.prefix, charge, state, time) else {
            return Ok(());
        };
        self.execute_or(place, &call, (deadline, Some(orphan))).await.map(drop)
    }

    /// Puts right what was charged, soon.
    pub(super) fn settle(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        self.settlements.add(charge, adjustment, now);
    }

    /// Makes `count` what the counter holds, unless it holds as much; tells whether it did.
    ///
    /// # Errors
    /// Why it is not known to hold either.
    pub(super) async fn seed(
        &self,
        charge: &Charge<'_>,
        count: &Count,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<bool, Unanswered> {
        let place = self.place(charge.key.owner);
        let (clock, _) = self.clock(place, now);
        let Some(call) = script::seed(&self.settings.prefix, charge, count, clock) else {
            return Ok(false);
        };
        let reply = self.execute(place, &call, deadline).await?;
        Ok(reply == Value::Int(1))
    }

    /// Waits until it is known which servers are there, or `deadline`.
    pub(super) async fn ready(&self, deadline: Instant) {
        self.topology.ready(deadline).await;
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
    fn clock(&self, place: Place, now: Timestamp) -> (ScriptClock, Timestamp) {
        let Some(node) = self.topology.primary(place) else { return (ScriptClock::Redis, now) };
        match node.clock.counts() {
            StoreClock::Redis => (ScriptClock::Redis, node.clock.at_server(now)),
            StoreClock::Proxy => (ScriptClock::Proxy(now), now),
        }
    }

    fn read(&self, charges: &[Charge<'_>], reply: &Value) -> Result<Reply, Unanswered> {
        script::read(charges, reply).map_err(|error| {
            if self.may_complain() {
                tracing::warn!(%error, "redis gave a reply that cannot be read");
            }
            Unanswered::BadReply
        })
    }

    /// Has the server of a place execute a script, wherever the place may have moved to.
    async fn execute(
        &self,
        place: Place,
        call: &Call,
        deadline: Instant,
    ) -> Result<Value, Unanswered> {
        self.execute_or(place, call, (deadline, None)).await
    }

    /// The same, with what is to become of a reply that comes when nobody waits for it.
    async fn execute_or(
        &self,
        place: Place,
        call: &Call,
        (deadline, orphan): (Instant, Option<&Rc<Orphan>>),
    ) -> Result<Value, Unanswered> {
        self.can_name()?;
        let mut node = self.topology.primary(place).ok_or(Unanswered::Away)?;
        let (mut has_script, mut is_asking) = (true, false);
        let (mut redirections, mut pause) = (0, PAUSE);
        loop {
            let is_known = has_script && !node.introduce(call.sha());
            let command = if is_known { call.evalsha() } else { call.eval() };
            let request = Request { command, is_asking, orphan: orphan.cloned() };
            let error = match node.call(request, deadline).await {
                Ok(value) => return Ok(value),
                Err(CallError::Refused(error)) => error,
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
                    self.complain(&error);
                    return Err(Unanswered::Refused);
                }
            };
            node = next.ok_or(Unanswered::Away)?;
        }
    }

    /// Whether the names of counters are those that other proxies give them.
    fn can_name(&self) -> Result<(), Unanswered> {
        match &self.secret {
            Some(secret) if secret.standing() == SecretStanding::Awaited => Err(Unanswered::Away),
            _ => Ok(()),
        }
    }

    /// Tells of an error, unless one was told lately.
    fn complain(&self, error: &ServerError) {
        if self.may_complain() {
            let details = error.details().unwrap_or_default().chars().take(MAX_DETAILS);
            let (code, details) = (error.code(), details.collect::<String>());
            tracing::warn!(code, details, "redis refused");
        }
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
