//! Calls of programs, whatever the protocol: charge, settle, release, reset, and how a limit stands.
//!
//! Each call has its line in the log, and its charges are counted like those of requests.

mod call;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue, Method, Request, Response};

pub use self::call::{Answer, Call, CallAnswer, CallError, DeniedCall, NamedStanding, Program};
pub(super) use self::call::{DENIED, Operation};
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Outcome, Retry, Standing};
use tollgate_observe::metrics::{MethodLabel, RequestMeter};
use tollgate_policy::Policy;
use tollgate_response::{Account, Body, Rejection, reported_reset};
use tollgate_store::{Adjustment, StoreError};

use super::{
    Arrival, Gate, Snapshot,
    charge_plan::ChargeRole,
    counting::{CountedSender, count_adjustment, count_charges},
    denials::DeniedRequest,
    named::{
        ChargeTime, NamedCharge, NamedPlan, Part, ReceiptCharge, RedeemRequest, Redemption, redeem,
        sign,
    },
    request_guard::{DeniedBy, LoggedRequest, RequestGuard, RequestLine, ResponseNote},
    request_state::{Action, RequestState},
    stamp::stamp,
    tally::{DecidedCharge, Tally, adjustment},
};

impl Gate {
    /// Answers a call of a program.
    pub async fn answer(&self, call: Call<'_>, program: Program<'_>) -> CallAnswer {
        let now = self.shared().clock.now();
        let arrival = Arrival { now, started: Instant::now() };
        let snapshot = self.shared().snapshot();
        let request_id = &self.request_ids.fresh();
        let operation = call.operation();
        let (method, path) = (operation.method(), operation.path());
        let open_call =
            &OpenCall { method, path, program, arrival, snapshot: &snapshot, request_id };
        let end = self.carry_out(call, open_call).await;
        let end = end.unwrap_or_else(|error| self.end_uncharged(open_call, None, Err(error)));
        let (answer, headers, account) = end;
        CallAnswer { answer, headers, account, request_id: request_id.clone() }
    }

    async fn carry_out(
        &self,
        call: Call<'_>,
        open_call: &OpenCall<'_, '_>,
    ) -> Result<CallEnd, CallError> {
        let (policies, now) = (&open_call.snapshot.policies, open_call.arrival.now);
        let hasher = &self.shared().identifier.hasher;
        Ok(match call {
            Call::Charge(charges, time) => {
                let plan = NamedPlan::of(policies, hasher, charges, time.at(), now)?;
                self.charge_named(open_call, plan, time).await
            }
            Call::Standing(limit, key, at) => {
                let query = [NamedCharge { limit, key, cost: Some(0) }];
                let plan = NamedPlan::of(policies, hasher, &query, at, now)?;
                self.look_at(open_call, plan, at).await
            }
            Call::Settle(receipt, limit, cost) => {
                let request = RedeemRequest { receipt, part: Part::Units, limit };
                self.correct(open_call, request, cost).await?
            }
            Call::Release(receipt) => {
                let request = RedeemRequest { receipt, part: Part::Slots, limit: None };
                self.correct(open_call, request, 0).await?
            }
            Call::Reset(limit, key) => {
                let counters = [NamedCharge { limit, key, cost: Some(0) }];
                let plan = NamedPlan::of(policies, hasher, &counters, None, now)?;
                let reset = self.reset_named(&plan).await;
                self.end_uncharged(open_call, Some(plan.policy), reset)
            }
        })
    }

    async fn charge_named<'p>(
        &self,
        open_call: &OpenCall<'_, 'p>,
        named: NamedPlan<'p>,
        time: ChargeTime,
    ) -> CallEnd {
        let NamedPlan { policy, plan, who } = named;
        let shared = self.shared();
        let store = &self.judge.store;
        // From here on the program may go away during a wait.
        let mut guard = self.guard(open_call, Some(policy));
        guard.state.policy = Some(policy);
        let charges = &plan.charges;
        let decision = match time {
            ChargeTime::Now(wait) => {
                shared.waiting.charge(store, &shared.clock, charges, wait).await
            }
            ChargeTime::At(at) => store.charge_at(charges, at, open_call.arrival.now),
        };
        let now = shared.clock.now();
        let tally = decision.map(|decision| Tally::charged(plan, decision, now, store.unsettled()));
        let rejection = self.conclude_charge(open_call, &mut guard, tally, who, now);
        let mut response = Response::new(Body::empty());
        stamp(&mut response, &guard.state, shared);
        let tally = guard.state.tally.as_ref();
        let answer = match (&rejection, tally) {
            (Some(Rejection::Store(error)), _) => Err((*error).into()),
            (_, Some(tally)) => Ok(Answer {
                denied: rejection.as_ref().map(|_| denied_call(tally, now)),
                standings: tally.charges().map(|own| standing_of(&own)).collect(),
                receipt: match rejection {
                    None => sign(&shared.identifier.hasher, policy, tally, time.at(), now),
                    Some(_) => None,
                },
            }),
            // There was nothing to charge: the limit is unlimited for this key.
            (_, None) => Ok(Answer::default()),
        };
        let account = guard.account(status_of(&answer), &note_of(rejection.as_ref()));
        (answer, std::mem::take(response.headers_mut()), account)
    }

    async fn look_at<'p>(
        &self,
        open_call: &OpenCall<'_, 'p>,
        named: NamedPlan<'p>,
        at: Option<Timestamp>,
    ) -> CallEnd {
        let NamedPlan { policy, plan, .. } = named;
        let mut guard = self.guard(open_call, Some(policy));
        guard.state.policy = Some(policy);
        let now = open_call.arrival.now;
        let store = &self.judge.store;
        let decision = match at {
            None => store.peek_latest(&plan.charges, now).await,
            Some(at) => store.client_timed().peek(&plan.charges, at),
        };
        let tally = guard.state.tally.insert(Tally::peeked(plan, decision, now));
        let standings = tally.charges().map(|own| standing_of(&own)).collect();
        let mut response = Response::new(Body::empty());
        stamp(&mut response, &guard.state, self.shared());
        let answer = Ok(Answer { standings, ..Answer::default() });
        let account = guard.account(status_of(&answer), &ResponseNote::default());
        (answer, std::mem::take(response.headers_mut()), account)
    }

    /// Corrects what a receipt is for.
    async fn correct(
        &self,
        open_call: &OpenCall<'_, '_>,
        request: RedeemRequest<'_>,
        cost: u32,
    ) -> Result<CallEnd, CallError> {
        let (shared, now) = (self.shared(), open_call.arrival.now);
        let store = &self.judge.store;
        let policies = &open_call.snapshot.policies;
        let hasher = &shared.identifier.hasher;
        let Redemption { policy, charges: all, at } =
            redeem(request, policies, hasher, store, now).await?;
        let charges: Vec<Charge<'_>> = all.iter().map(|own| own.charge).collect();
        let looked = match at {
            None => store.peek_latest(&charges, now).await,
            Some(at) => store.client_timed().peek(&charges, at),
        };
        let series = self.series(open_call.snapshot, Some(policy));
        let tier = policy.identity.tiers.default;
        let mut standings = Vec::new();
        for (own, outcome) in all.iter().zip(&looked.outcomes) {
            let ReceiptCharge { limit, window_secs, charge, receipt, decided_by } = own;
            let outcome = Outcome { decided_by: *decided_by, ..*outcome };
            let mut standing = outcome.standing;
            if let Some((adjustment, units)) = adjustment(charge.cost, cost, Some(*receipt)) {
                let settling = Charge { cost: units, ..*charge };
                let settled = match at {
                    None => store.settle(&settling, &outcome, adjustment, now),
                    Some(at) => store.client_timed().settle(&settling, adjustment, at, now),
                };
                standing = settled.unwrap_or(standing);
                if let Some(counters) = series.limit(limit.position, tier, false) {
                    count_adjustment(counters, adjustment, units);
                }
                if let Adjustment::GiveBack(_) = adjustment {
                    shared.waiting.given_back(charge.key.entry);
                }
            }
            standings.push(named_standing(&limit.name, *window_secs, charge, &standing));
        }
        let answer = Ok(Answer { standings, ..Answer::default() });
        Ok(self.end_uncharged(open_call, Some(policy), answer))
    }

    async fn reset_named(&self, named: &NamedPlan<'_>) -> Result<Answer, CallError> {
        let keys: Vec<_> = named.plan.charges.iter().map(|charge| charge.key).collect();
        self.judge.store.reset(&keys).await?;
        keys.iter().for_each(|key| self.shared().waiting.given_back(key.entry));
        // A crash must not bring the counters back; and writing them must not hold up a worker.
        let stores = Arc::clone(&self.shared().stores);
        let _ = tokio::task::spawn_blocking(move || stores.save()).await;
        Ok(Answer::default())
    }

    /// An answer without charges, with its line in the log.
    fn end_uncharged(
        &self,
        open_call: &OpenCall<'_, '_>,
        policy: Option<&Policy>,
        answer: Result<Answer, CallError>,
    ) -> CallEnd {
        let guard = self.guard(open_call, policy);
        let error = answer.as_ref().err().map(ToString::to_string);
        let note = ResponseNote { error, ..ResponseNote::default() };
        let account = guard.account(status_of(&answer), &note);
        (answer, HeaderMap::new(), account)
    }

    /// Counts a charge and keeps a denial. Returns why it was denied, if it was.
    pub(super) fn conclude_charge<'p>(
        &self,
        open_call: &OpenCall<'_, '_>,
        guard: &mut RequestGuard<'_, 'p>,
        tally: Result<Tally<'p>, StoreError>,
        who: String,
        now: Timestamp,
    ) -> Option<Rejection> {
        let rejection = match tally {
            Ok(tally) => {
                let rejection = tally.denial_of(|| who, now, Duration::ZERO);
                if let Some(line) = &guard.line {
                    let sender = CountedSender::of(line.meter.series(), guard.state.policy, None);
                    count_charges(&sender, &tally, now);
                }
                guard.state.tally = Some(tally);
                rejection
            }
            Err(error) => Some(error.into()),
        };
        let action = rejection.map_or(Action::Options, Action::Refuse);
        // Also if it was admitted: a limit that only counts may have denied it.
        self.note_denial(open_call, &guard.state, &action, now);
        match action {
            Action::Refuse(rejection) => Some(rejection),
            _ => None,
        }
    }

    pub(super) fn guard<'g, 'p>(
        &'g self,
        open_call: &OpenCall<'g, 'p>,
        policy: Option<&Policy>,
    ) -> RequestGuard<'g, 'p> {
        let &OpenCall { ref method, path, program, arrival, snapshot, request_id } = open_call;
        let series = self.series(snapshot, policy);
        let label = MethodLabel::of(method);
        let logged = self.log.as_ref().map(|log| {
            let user_agent = program.user_agent.cloned();
            (log, LoggedRequest::of_call(method.clone(), path, program.address, user_agent))
        });
        let line = RequestLine {
            meter: RequestMeter::begin(series, label, arrival.started),
            log: logged,
            request_id,
            stores: &self.shared().stores,
            traced: None,
            arrival,
            asked_by: Some(program.protocol),
            panicked: &self.panicked,
        };
        RequestGuard::new(line, &self.abandoned)
    }

    /// Keeps a denied call among the latest denials.
    fn note_denial<'p>(
        &self,
        open_call: &OpenCall<'_, '_>,
        state: &RequestState<'p>,
        action: &Action<'p>,
        now: Timestamp,
    ) {
        let &OpenCall { ref method, path, program, request_id, .. } = open_call;
        let request = Request::builder().method(method).uri(path).body(());
        let Ok((parts, ())) = request.map(Request::into_parts) else { return };
        let address = program.address;
        let denied = DeniedRequest { parts: &parts, state, action, address, request_id };
        self.shared().denials.note(&self.denials, &denied, now);
    }
}

/// A call that is being answered.
pub(super) struct OpenCall<'g, 'p> {
    /// As the log has it.
    pub(super) method: Method,
    pub(super) path: &'g str,
    pub(super) program: Program<'g>,
    pub(super) arrival: Arrival,
    pub(super) snapshot: &'p Snapshot,
    pub(super) request_id: &'g HeaderValue,
}

/// How a call ends: its answer, the limit headers, and what ends with the response.
type CallEnd = (Result<Answer, CallError>, HeaderMap, Option<Account>);

/// What the log has of a charge that was denied or admitted.
pub(super) fn note_of(rejection: Option<&Rejection>) -> ResponseNote {
    ResponseNote {
        error: rejection.map(ToString::to_string),
        denied: rejection.and_then(DeniedBy::of),
        is_undecided: rejection.is_some_and(Rejection::is_undecided),
        upstream_time: None,
    }
}

fn status_of(answer: &Result<Answer, CallError>) -> u16 {
    match answer {
        Ok(Answer { denied: Some(_), .. }) => DENIED,
        Ok(_) => 200,
        Err(error) => error.status(),
    }
}

fn denied_call(tally: &Tally<'_>, now: Timestamp) -> DeniedCall {
    let Some(own) = tally.reported() else {
        return DeniedCall { by: "".into(), retry_after: None };
    };
    DeniedCall {
        by: own.planned.limit.name.clone(),
        retry_after: match own.standing().retry {
            Retry::At(instant) => Some(instant.saturating_since(tally.store_time(now))),
            Retry::Now | Retry::Never => None,
        },
    }
}

fn standing_of(own: &DecidedCharge<'_, '_>) -> NamedStanding {
    debug_assert!(own.planned.role != ChargeRole::Candidate, "none is planned");
    let planned = own.planned;
    named_standing(&planned.limit.name, planned.allowance.window_secs, own.charge, own.standing())
}

fn named_standing(
    limit: &str,
    window_secs: Option<u64>,
    charge: &Charge<'_>,
    standing: &Standing,
) -> NamedStanding {
    let is_window = !charge.quota.holds_leases();
    NamedStanding {
        limit: limit.into(),
        window_seconds: window_secs.filter(|_| is_window),
        of: standing.limit,
        used: standing.used,
        remaining: standing.remaining,
        reset: is_window.then(|| reported_reset(standing).ceil_secs()),
    }
}
