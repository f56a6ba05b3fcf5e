//! Envoy's rate limit filter: have these descriptors room for so many hits?
//!
//! All descriptors are charged or none. There is no request to judge: the policy's `rls` says which
//! limits a descriptor is charged to, and from the plan on all is as for requests.

use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, Response, header, request::Parts};
use tollgate_clock::Timestamp;
use tollgate_gate::{
    Arrival, CallHead, Corrected, Gate, Program,
    charge_plan::ChargePlan,
    rate_limit_fields, stamp_family,
    tally::{DecidedCharge, Tally},
};
use tollgate_limit::{Charge, DecidedBy, Later, Outcome, Stance, Standing, Verdict};
use tollgate_policy::{HeaderFamily, HeaderProfile, Policy};
use tollgate_response::{Account, Body, GrpcCode, Rejection, call_error, call_response};
use tollgate_store::{Adjustment, StoreError};
use tollgate_upstream::downstream::Peer;
use tollgate_wire::envoy::{
    HeaderValue as EnvoyField, frame,
    rate_limit::{
        Code, DescriptorStatus, Duration, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
    },
};

use super::Fault;
use crate::decisions::named_limits::{
    Afterwards, Asker, DescriptorCounters, DescriptorError, DescriptorPart, DescriptorPlan,
};

/// The path of the method.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How the log names who asks so.
const PROTOCOL: &str = "rls";

/// An answer, and what goes with it.
pub(super) struct RateLimitAnswer {
    pub(super) answer: Result<RateLimitResponse, LimitError>,
    /// To be ended with the response.
    pub(super) account: Option<Account>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LimitError {
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LimitError {
    fn code(&self) -> GrpcCode {
        match self {
            LimitError::Descriptors(_) => GrpcCode::InvalidArgument,
            LimitError::Store(_) => GrpcCode::Unavailable,
        }
    }
}

/// Takes or gives back hits of a request that need not fit.
struct Correcting<'c, 'g, 'p> {
    head: &'c CallHead<'g, 'p>,
    policy: &'c Policy,
    counters: &'c DescriptorCounters<'c, 'c>,
}

/// How a counter of a descriptor stands.
struct CounterStanding<'t, 'p> {
    own: DecidedCharge<'t, 'p>,
    /// After all corrections.
    standing: Standing,
    has_room: bool,
}

/// Answers by gRPC.
pub(super) async fn rate_limit_by_grpc(
    gate: &Gate,
    parts: &Parts,
    message: &[u8],
    peer: &Peer,
) -> Result<Response<Body>, Fault> {
    let request: RateLimitRequest = frame::read(message)?;
    let RateLimitAnswer { answer, account } = rate_limit(gate, &request, PATH, parts, peer).await;
    let mut response = match answer {
        Ok(answer) => call_response(frame::written(&answer)),
        Err(error) => call_error(error.code(), &error.to_string()),
    };
    response.body_mut().set_account(account);
    Ok(response)
}

/// Charges descriptors.
pub(super) async fn rate_limit(
    gate: &Gate,
    request: &RateLimitRequest,
    path: &'static str,
    parts: &Parts,
    peer: &Peer,
) -> RateLimitAnswer {
    let shared = gate.shared();
    let now = shared.clock.now();
    let snapshot = &shared.snapshot();
    let head = CallHead {
        gate,
        method: Method::POST,
        path,
        program: Program {
            address: peer.address,
            protocol: PROTOCOL,
            user_agent: parts.headers.get(header::USER_AGENT),
        },
        arrival: Arrival { now, started: Instant::now() },
        snapshot,
        request_id: &gate.request_ids().of(&parts.headers, peer.is_trusted),
    };
    let asker = Asker { identifier: &shared.identifier, address: peer.address };
    match DescriptorPlan::of(&snapshot.policies, asker, request, now) {
        Ok(Some(plan)) => charge(&head, plan).await,
        Ok(None) => RateLimitAnswer {
            answer: Ok(answer_with(vec![unlimited(); request.descriptors.len()])),
            account: head.end_uncharged(None, 200, None),
        },
        Err(error) => RateLimitAnswer {
            account: head.end_uncharged(None, 400, Some(error.to_string())),
            answer: Err(error.into()),
        },
    }
}

async fn charge<'p>(head: &CallHead<'_, 'p>, planned: DescriptorPlan<'p, '_>) -> RateLimitAnswer {
    let DescriptorPlan { policy, plan, parts, afterwards, who, counters } = planned;
    let (shared, store) = (head.gate.shared(), head.gate.store());
    // From here on Envoy may go away during a wait.
    let hasher = &shared.identifier.hasher;
    let mut call = head.open(policy, || counters.names(hasher));
    let now = head.arrival.now;
    let decision = store.charge(&plan.charges, now).await;
    let mut standings: Vec<Option<Standing>> = vec![None; plan.charges.len()];
    let mut is_overdrawn = false;
    let correcting = Correcting { head, policy, counters: &counters };
    if let Err(StoreError::NoRoom(_)) = &decision {
        correcting.take_alone(&plan, &afterwards).await;
    }
    let tally = decision.map(|decision| {
        let is_allowed = decision.verdict == Verdict::Allow;
        let tally = Tally::charged(plan, decision, now, store.unsettled());
        for (at, later) in afterwards {
            // What has happened is counted whatever becomes of the others.
            let is_due = is_allowed || matches!(later, Afterwards::Take(_));
            if is_due && let Some(place) = standings.get_mut(at) {
                *place = correcting.correct(&tally, at, later, *place).or(*place);
            }
        }
        is_overdrawn = is_allowed && has_overdrawn(&tally, &parts, &standings);
        if is_overdrawn {
            correcting.give_back(&tally, &mut standings);
        }
        tally
    });
    call.conclude(tally, who, &|own, to| counters.write(own, hasher, to), now);
    let answer = match (call.rejection(), call.tally()) {
        // Others are served: Envoy must not let this one pass as if nobody had answered.
        (Some(Rejection::Store(StoreError::NoRoom(reason))), _) if reason.is_clients_fault() => {
            Ok(answer_with(parts.iter().map(DescriptorPart::without_room).collect()))
        }
        (Some(Rejection::Store(error)), _) => Err((*error).into()),
        (_, Some(tally)) => {
            let mut answer = response_of(tally, &parts, &standings, is_overdrawn, now);
            let mut fields = HeaderMap::new();
            let profile = policy.responses.headers;
            for family in profile.families() {
                match family {
                    // The filter writes these itself, if it is told to.
                    HeaderFamily::Github | HeaderFamily::Envoy | HeaderFamily::Apisix => {}
                    HeaderFamily::Ietf
                    | HeaderFamily::Draft03
                    | HeaderFamily::Kong
                    | HeaderFamily::OpenAi => {
                        stamp_family(&mut fields, *family, tally, shared);
                    }
                }
            }
            let is_told = !fields.is_empty() || profile == HeaderProfile::None;
            if !is_told
                && has_nameless_window(tally)
                && let Some(own) = rate_limit_fields(tally, shared)
            {
                own.stamp(&mut fields);
            }
            if let Some(seconds) = tally.retry_after(now, std::time::Duration::ZERO) {
                fields.insert(header::RETRY_AFTER, seconds.into());
            }
            answer.response_headers_to_add = fields.iter().filter_map(field).collect();
            Ok(answer)
        }
        (_, None) => Ok(answer_with(vec![unlimited(); parts.len()])),
    };
    let status = match (call.rejection(), &answer) {
        (_, Err(_)) => 503,
        (Some(_), _) => 429,
        (None, _) => 200,
    };
    RateLimitAnswer { account: call.end(status, None), answer }
}

impl Correcting<'_, '_, '_> {
    /// Takes hits that have happened where the counter of another charge finds no room: those whose
    /// own counter has it.
    async fn take_alone<'p>(&self, plan: &ChargePlan<'p>, afterwards: &[(usize, Afterwards)]) {
        let (store, now) = (self.head.gate.store(), self.head.arrival.now);
        let due = afterwards.iter().filter_map(|(at, later)| match later {
            Afterwards::Take(units @ 1..) => {
                Some((*at, plan.limits.get(*at)?, plan.charges.get(*at)?, *units))
            }
            Afterwards::Take(0) | Afterwards::GiveBack(_) => None,
        });
        // One without room is left out, and denies none of the others.
        let alone = |charge: &Charge<'p>| Charge {
            cost: 0,
            stance: Stance::Observe,
            later: Later::Cost,
            ..*charge
        };
        let charges: Vec<Charge<'p>> = due.clone().map(|(_, _, own, _)| alone(own)).collect();
        let Ok(decision) = store.charge(&charges, now).await else { return };
        for ((at, planned, charge, units), outcome) in due.zip(&decision.outcomes) {
            if outcome.decided_by == DecidedBy::NoStore {
                continue;
            }
            store.settle(&Charge { cost: units, ..*charge }, outcome, Adjustment::Take, now);
            self.count(at, DecidedCharge { planned, charge, outcome }, Adjustment::Take, units);
        }
    }

    /// Takes or gives back hits of the charge at this position, after earlier ones have brought its
    /// limit to a `standing`. Returns how it stands then; none if that is not known, or there was
    /// nothing to do.
    fn correct(
        &self,
        tally: &Tally<'_>,
        at: usize,
        later: Afterwards,
        standing: Option<Standing>,
    ) -> Option<Standing> {
        let own = tally.at(at)?;
        let now = self.head.arrival.now;
        let outcome = Outcome { standing: standing.unwrap_or(*own.standing()), ..*own.outcome };
        let (adjustment, units) = match later {
            Afterwards::Take(units) => (Adjustment::Take, units),
            Afterwards::GiveBack(units) => {
                let (quota, time) = (own.charge.quota, tally.store_time(now));
                let receipt = quota.open_receipt(&outcome.standing, units, time)?;
                (Adjustment::GiveBack(receipt), units)
            }
        };
        if units == 0 {
            return None;
        }
        let charge = Charge { cost: units, ..*own.charge };
        let standing = self.head.gate.store().settle(&charge, &outcome, adjustment, now);
        self.count(at, own, adjustment, units);
        standing
    }

    /// Gives back what was admitted of a request that is denied by what has happened: all
    /// descriptors are charged or none.
    fn give_back(&self, tally: &Tally<'_>, standings: &mut [Option<Standing>]) {
        for (at, place) in standings.iter_mut().enumerate() {
            let Some(own) = tally.at(at) else { continue };
            let Some(receipt) = own.outcome.receipt else { continue };
            let adjustment = Adjustment::GiveBack(receipt);
            let (store, now) = (self.head.gate.store(), self.head.arrival.now);
            let outcome = Outcome { standing: place.unwrap_or(*own.standing()), ..*own.outcome };
            *place = store.settle(own.charge, &outcome, adjustment, now).or(*place);
            self.count(at, own, adjustment, own.charge.cost);
        }
    }

    /// Counts what was corrected of the charge at this position: once of all windows of a limit.
    fn count(&self, at: usize, own: DecidedCharge<'_, '_>, adjustment: Adjustment, units: u32) {
        if self.counters.has_first_window(at) {
            let hasher = &self.head.gate.shared().identifier.hasher;
            let name = |to: &mut String| self.counters.write(&own, hasher, to);
            let corrected = Corrected {
                policy: self.policy,
                limit: own.planned.limit,
                tuple: own.charge.key.owner,
                name: Some(&name),
            };
            self.head.count_adjustment(corrected, adjustment, units);
        }
    }
}

/// Whether hits that have happened are more than an enforced limit allows: then the request is
/// denied.
fn has_overdrawn(
    tally: &Tally<'_>,
    parts: &[DescriptorPart],
    standings: &[Option<Standing>],
) -> bool {
    let happened = parts.iter().filter(|part| part.has_happened).flat_map(|part| &part.charges);
    happened.into_iter().any(|at| {
        let standing = standings.get(*at).copied().flatten();
        let is_over = standing.is_some_and(|standing| standing.used > standing.limit);
        is_over && tally.at(*at).is_some_and(|own| own.planned.role.is_enforced())
    })
}

/// The answer for each descriptor. If what has happened `is_overdrawn`, nothing else was charged.
fn response_of(
    tally: &Tally<'_>,
    parts: &[DescriptorPart],
    standings: &[Option<Standing>],
    is_overdrawn: bool,
    now: Timestamp,
) -> RateLimitResponse {
    let counted = |at: &usize, has_happened: bool| {
        let own = tally.at(*at)?;
        let standing = standings.get(*at).copied().flatten().unwrap_or(*own.standing());
        let has_room = match own.planned.role.is_enforced() {
            false => true,
            true if has_happened => standing.used <= standing.limit,
            // It was given back where hits that have happened leave no room for it.
            true if is_overdrawn => standing.remaining >= own.charge.cost,
            true => own.outcome.fits(),
        };
        Some(CounterStanding { own, standing, has_room })
    };
    let status = |part: &DescriptorPart| {
        let all = part.charges.iter().filter_map(|at| counted(at, part.has_happened));
        // What denies comes first, then what has the least left.
        let tightest = all.min_by_key(|it| {
            (it.has_room, std::cmp::Reverse(it.standing.retry), it.standing.remaining)
        });
        tightest.map_or_else(unlimited, |it| it.status(tally.store_time(now)))
    };
    answer_with(parts.iter().map(status).collect())
}

impl DescriptorPart {
    /// The status if there is no room for its counters.
    fn without_room(&self) -> DescriptorStatus {
        match self.charges.is_empty() {
            true => unlimited(),
            false => DescriptorStatus { code: Code::OverLimit.into(), ..unlimited() },
        }
    }
}

/// A descriptor without a limit.
fn unlimited() -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() }
}

/// Never the code UNKNOWN, which Envoy treats as OK.
fn answer_with(statuses: Vec<DescriptorStatus>) -> RateLimitResponse {
    let is_over = statuses.iter().any(|status| status.code() == Code::OverLimit);
    let overall = if is_over { Code::OverLimit } else { Code::Ok };
    RateLimitResponse {
        overall_code: overall.into(),
        statuses,
        response_headers_to_add: Vec::new(),
    }
}

impl CounterStanding<'_, '_> {
    fn status(&self, now: Timestamp) -> DescriptorStatus {
        let CounterStanding { own, standing, has_room } = self;
        let unit = own.planned.allowance.window_secs.and_then(Unit::of_seconds);
        let reset = standing.reset.saturating_since(now);
        DescriptorStatus {
            code: if *has_room { Code::Ok } else { Code::OverLimit }.into(),
            current_limit: unit.map(|unit| RateLimit {
                requests_per_unit: standing.limit,
                unit: unit.into(),
                name: own.planned.limit.name.to_string(),
            }),
            limit_remaining: standing.remaining,
            duration_until_reset: Some(Duration {
                seconds: i64::try_from(reset.as_secs()).unwrap_or(i64::MAX),
                nanos: i32::try_from(reset.subsec_nanos()).unwrap_or_default(),
            }),
        }
    }
}

/// Whether a window has no unit, so that Envoy's own fields cannot show it.
fn has_nameless_window(tally: &Tally<'_>) -> bool {
    tally
        .enforced()
        .any(|own| own.planned.allowance.window_secs.and_then(Unit::of_seconds).is_none())
}

fn field((name, value): (&header::HeaderName, &HeaderValue)) -> Option<EnvoyField> {
    Some(EnvoyField::new(name.as_str(), value.to_str().ok()?))
}
