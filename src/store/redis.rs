//! Counters in Redis, as one worker reaches them: one script call decides about all charges of a
//! place, and whatever is put right later is sent and not waited for.
//!
//! A charge is executed at most once. An answer that says "not executed" (moved, loading, no such
//! script) is acted on and the charge sent again while there is time; after silence, or a connection
//! that broke, it is not.

mod breaker;
mod node;
mod script;
mod settlements;
mod topology;

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use redis::{ServerError, ServerErrorKind, Value};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use self::{
    node::{CallError, Orphan, Request},
    script::{Call, ScriptClock},
    settlements::Settlements,
    topology::Topology,
};
use super::{Adjustment, Unanswered};
use crate::{
    clock::Timestamp,
    limit::{Charge, Count, OwnedCharge, Quota},
    settings::{RedisSettings, StoreClock},
};

pub(super) use self::{script::Reply, topology::Place};

/// How often a charge is sent again after answers that say that it was not executed.
const MAX_TRIES: usize = 8;

/// Time between two tries while a server cannot serve for the moment.
const PAUSE: Duration = Duration::from_millis(4);

/// Time between two complaints in the log about what servers answer.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

/// Redis, as one worker reaches it.
pub(super) struct RedisStore {
    settings: Arc<RedisSettings>,
    topology: Rc<Topology>,
    settlements: Rc<Settlements>,
    /// When an error that is nobody's fault but the server's was last told.
    complained: Cell<Option<Instant>>,
}

impl RedisStore {
    /// Connects, in the background, from tasks of this thread that end when the store is dropped.
    pub(super) fn start(settings: &Arc<RedisSettings>) -> Rc<RedisStore> {
        let store = Rc::new(RedisStore {
            settings: Arc::clone(settings),
            topology: Topology::start(Arc::clone(settings)),
            settlements: Rc::default(),
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

    /// Takes all `charges`, which are of one place, or none.
    ///
    /// # Errors
    /// Why there is no answer; what was taken then is not known.
    pub(super) async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Reply, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        let call = script::charge(&self.settings.prefix, charges, self.clock(now), now);
        let place = self.place(first.key.owner);
        let orphan = || self.release_leases(charges);
        let reply = self.execute(place, &call, (deadline, &orphan)).await?;
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
        let call = script::peek(&self.settings.prefix, charges, self.clock(now), now);
        let place = self.place(first.key.owner);
        let asked: SmallVec<[Charge<'_>; 2]> =
            charges.iter().map(|charge| Charge { cost: 0, ..*charge }).collect();
        if let Some(replica) = self.topology.replica(place) {
            let mut reply = replica.call(call.evalsha(), deadline).await;
            if let Err(CallError::Refused(error)) = &reply
                && error.kind() == Some(ServerErrorKind::NoScript)
            {
                reply = replica.call(call.eval(), deadline).await;
            }
            // A replica that cannot tell is none.
            if let Ok(reply) = reply {
                return self.read(&asked, &reply);
            }
        }
        let reply = self.execute(place, &call, (deadline, &|| None)).await?;
        self.read(&asked, &reply)
    }

    /// What a counter holds, by the latest count; none if it holds nothing.
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
        let call = script::peek(&self.settings.prefix, &charges, self.clock(now), now);
        let place = self.place(charge.key.owner);
        let reply = self.execute(place, &call, (deadline, &|| None)).await?;
        Ok(self.read(&charges, &reply)?.counts.into_iter().next())
    }

    /// Puts right what was charged, soon.
    pub(super) fn settle(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        self.settlements.add(charge, adjustment, now);
    }

    /// Makes `count` what the counter holds, unless it holds something.
    ///
    /// # Errors
    /// Why it is not known to hold either.
    pub(super) async fn seed(
        &self,
        charge: &Charge<'_>,
        count: &Count,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<(), Unanswered> {
        let Some(call) = script::seed(&self.settings.prefix, charge, count, self.clock(now)) else {
            return Ok(());
        };
        let place = self.place(charge.key.owner);
        self.execute(place, &call, (deadline, &|| None)).await.map(drop)
    }

    /// Waits until it is known which servers are there, or `deadline`.
    pub(super) async fn ready(&self, deadline: Instant) {
        self.topology.ready(deadline).await;
    }

    /// Waits until all settlements are on their way, or `deadline`.
    pub(super) async fn finish(&self, deadline: Instant) {
        while !self.settlements.is_empty() && Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        self.topology.finish(deadline).await;
    }

    fn clock(&self, now: Timestamp) -> ScriptClock {
        match self.settings.clock {
            StoreClock::Redis => ScriptClock::Redis,
            StoreClock::Proxy => ScriptClock::Proxy(now),
        }
    }

    fn read(&self, charges: &[Charge<'_>], reply: &Value) -> Result<Reply, Unanswered> {
        script::read(charges, reply).map_err(|error| {
            tracing::warn!(%error, "redis gave a reply that cannot be read");
            Unanswered::BadReply
        })
    }

    /// Has the server of a place execute a script, wherever the place may have moved to.
    async fn execute(
        &self,
        place: Place,
        call: &Call,
        (deadline, orphan): (Instant, &dyn Fn() -> Option<Orphan>),
    ) -> Result<Value, Unanswered> {
        let mut node = self.topology.primary(place).ok_or(Unanswered::Away)?;
        let (mut has_script, mut is_asking) = (true, false);
        for _ in 0..MAX_TRIES {
            let command = if has_script { call.evalsha() } else { call.eval() };
            let request = Request { command, is_asking, orphan: orphan() };
            let refusal = match node.call(request, deadline).await {
                Ok(value) => return Ok(value),
                Err(CallError::Refused(error)) => error,
                Err(CallError::Away) => return Err(Unanswered::Away),
                Err(CallError::Busy) => return Err(Unanswered::Busy),
                Err(CallError::Timeout) => return Err(Unanswered::Timeout),
                Err(CallError::Lost) => return Err(Unanswered::Lost),
            };
            match refusal.kind() {
                Some(ServerErrorKind::NoScript) => {
                    has_script = false;
                    continue;
                }
                Some(ServerErrorKind::Moved) => {
                    let moved = address(&refusal);
                    let moved =
                        moved.and_then(|address| self.topology.moved(place, address, &node));
                    node = moved.ok_or(Unanswered::Refused)?;
                    is_asking = false;
                }
                Some(ServerErrorKind::Ask) => {
                    let asked = address(&refusal);
                    let asked = asked.and_then(|address| self.topology.asked(address, &node));
                    node = asked.ok_or(Unanswered::Refused)?;
                    is_asking = true;
                }
                Some(
                    ServerErrorKind::TryAgain
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::BusyLoading
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ReadOnly,
                ) => {
                    self.topology.doubt();
                    if !node.is_worth_waiting_for() || Instant::now() + PAUSE >= deadline {
                        node.give_up();
                        self.complain(&refusal);
                        return Err(Unanswered::Refused);
                    }
                    sleep(PAUSE).await;
                    node = self.topology.primary(place).ok_or(Unanswered::Away)?;
                    is_asking = false;
                }
                _ => {
                    self.complain(&refusal);
                    return Err(Unanswered::Refused);
                }
            }
            has_script = true;
        }
        Err(Unanswered::Refused)
    }

    /// Tells of an error, unless one was told lately.
    fn complain(&self, error: &ServerError) {
        if self.complained.get().is_none_or(|at| at.elapsed() >= COMPLAINT_PAUSE) {
            self.complained.set(Some(Instant::now()));
            let (code, details) = (error.code(), error.details().unwrap_or_default());
            tracing::warn!(code, details, "redis refused");
        }
    }

    /// What to do with a late reply to a charge: leases that nobody holds are ended.
    fn release_leases(self: &Rc<Self>, charges: &[Charge<'_>]) -> Option<Orphan> {
        let is_lease = |charge: &Charge<'_>| matches!(charge.quota, Quota::Concurrency(_));
        if !charges.iter().any(is_lease) {
            return None;
        }
        let owned: Vec<OwnedCharge> = charges.iter().map(OwnedCharge::from).collect();
        let store = Rc::downgrade(self);
        Some(Box::new(move |reply| {
            let charges: Vec<Charge<'_>> = owned.iter().map(OwnedCharge::charge).collect();
            let (Some(store), Ok(reply)) = (store.upgrade(), script::read(&charges, &reply)) else {
                return;
            };
            let decision = reply.decision;
            for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
                if is_lease(charge)
                    && let Some(receipt) = outcome.receipt
                {
                    store.settle(charge, Adjustment::GiveBack(receipt), decision.now);
                }
            }
        }))
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.settlements.close();
    }
}

/// The address in a redirection: `slot host:port`.
fn address(error: &ServerError) -> Option<&str> {
    error.details()?.split_ascii_whitespace().nth(1)
}
