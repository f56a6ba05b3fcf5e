//! Calls of programs, whatever the protocol: charge, settle, release, reset, and how a limit
//! stands.
//!
//! Each call has its line in the log, and its charges are counted like those of requests.

mod call;
mod reason;
mod reset;

use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tollgate_clock::Timestamp;
use tollgate_gate::{
    Arrival, CallHead, Corrected, CounterNames, Gate, OpenCall, Program,
    charge_plan::ChargeRole,
    tally::{DecidedCharge, Tally, adjustment},
};
use tollgate_limit::{Charge, DecidedBy, Outcome, Retry};
use tollgate_policy::{Policies, Policy};
use tollgate_response::{Account, Rejection};
use tollgate_store::Adjustment;

use super::named_limits::{
    Asker, ChargeTime, NamedCharge, NamedPlan, Part, ReceiptCharge, ReceiptError, ReceiptTerms,
    RedeemRequest, Redemption, SettledCost, redeem, sign,
};

pub(super) use self::{
    call::{Answer, Call, CallAnswer, CallError, DENIED, DeniedCall, Operation, WindowStanding},
    reason::Reason,
};

/// A call that is not carried out, because of what is wrong with it.
pub(super) struct RefusedCall {
    pub(super) method: Method,
    pub(super) operation: Operation,
    pub(super) status: StatusCode,
    pub(super) error: String,
}

/// What a receipt was taken for.
struct Settled<'p> {
    policy: &'p Policy,
    standings: Vec<WindowStanding>,
    names: CounterNames,
}

/// All of a charge is given back.
const NOTHING: SettledCost<'static> = SettledCost::Units(0);

/// Answers a call of a program.
pub(super) async fn answer(gate: &Gate, call: Call<'_>, program: Program<'_>) -> CallAnswer {
    let arrival = Arrival { now: gate.shared().clock.now(), started: Instant::now() };
    let snapshot = &gate.shared().snapshot();
    let request_id = &gate.request_ids().fresh();
    let operation = call.operation();
    let (method, path) = (operation.method(), operation.path());
    let head = &CallHead { gate, method, path, program, arrival, snapshot, request_id };
    let answered = carry_out(call, head).await;
    answered.unwrap_or_else(|error| end_uncharged(head, None, Err(error)))
}

/// Ends a call that is not carried out, with its line in the log. Returns what ends with its
/// response, and its id.
pub(super) fn refuse(
    gate: &Gate,
    program: Program<'_>,
    refused: RefusedCall,
) -> (Option<Account>, HeaderValue) {
    let RefusedCall { method, operation, status, error } = refused;
    let arrival = Arrival { now: gate.shared().clock.now(), started: Instant::now() };
    let snapshot = &gate.shared().snapshot();
    let request_id = gate.request_ids().fresh();
    let path = operation.path();
    let head = CallHead { gate, method, path, program, arrival, snapshot, request_id: &request_id };
    (head.end_uncharged(None, status.as_u16(), Some(error)), request_id)
}

async fn carry_out(call: Call<'_>, head: &CallHead<'_, '_>) -> Result<CallAnswer, CallError> {
    let (policies, now) = (&head.snapshot.policies, head.arrival.now);
    let asker = asker_of(head);
    Ok(match call {
        Call::Charge(charges, time) => {
            let plan = NamedPlan::of(policies, asker, charges, time.at(), now)?;
            charge(head, plan, time).await
        }
        Call::Standing(of, at) => {
            let query = [NamedCharge { cost: Some(0), ..of }];
            let plan = NamedPlan::of(policies, asker, &query, at, now)?;
            peek(head, plan, at).await
        }
        Call::Settle(receipt, limit, cost) => {
            let request = RedeemRequest { receipt, part: Part::Units, limit, cost };
            end_settled(head, correct(head, request).await?)
        }
        Call::Release(receipt) => {
            let request = RedeemRequest { receipt, part: Part::Slots, limit: None, cost: NOTHING };
            end_settled(head, correct(head, request).await?)
        }
        Call::GiveBack(receipt) => end_settled(head, give_back(head, receipt).await?),
        Call::Reset(of, why) => {
            let counters = [NamedCharge { cost: Some(0), ..of }];
            let plan = NamedPlan::of(policies, asker, &counters, None, now)?;
            plan.check_reset(of.limit)?;
            let answer = reset::reset(head, &plan, of.limit, why).await;
            end_uncharged(head, Some((plan.policy, plan.names)), answer)
        }
    })
}

async fn charge<'p>(head: &CallHead<'_, 'p>, named: NamedPlan<'p>, time: ChargeTime) -> CallAnswer {
    let NamedPlan { policy, plan, who, names } = named;
    let (shared, store) = (head.gate.shared(), head.gate.store());
    // From here on the program may go away during a wait.
    let mut call = head.open(policy, || names.clone());
    let charges = &plan.charges;
    let decision = match time {
        ChargeTime::Now(wait) => store.charge_in_turn(charges, &shared.clock, wait).await,
        ChargeTime::At(at) => store.charge_at(charges, at, head.arrival.now),
    };
    let now = shared.clock.now();
    let tally = decision.map(|decision| Tally::charged(plan, decision, now, store.unsettled()));
    let write = |own: &DecidedCharge<'_, '_>, to: &mut String| {
        names.of(own).iter().for_each(|name| to.push_str(name));
    };
    call.conclude(tally, who, &write, now);
    let answer = match (call.rejection(), call.tally()) {
        (Some(Rejection::Store(error)), _) => Err((*error).into()),
        (rejection, Some(tally)) => Ok(Answer {
            denied: rejection.map(|_| denied_call(tally, now)),
            standings: tally.charges().map(|own| standing_of(&own)).collect(),
            receipt: match rejection {
                None => {
                    let terms = ReceiptTerms { policy, names: &names, at: time.at(), now };
                    sign(&shared.identifier.hasher, tally, terms)
                }
                Some(_) => None,
            },
        }),
        // There was nothing to charge: the limit is unlimited for this key.
        (_, None) => Ok(Answer::default()),
    };
    end(head, call, answer)
}

async fn peek<'p>(
    head: &CallHead<'_, 'p>,
    named: NamedPlan<'p>,
    at: Option<Timestamp>,
) -> CallAnswer {
    let NamedPlan { policy, plan, names, .. } = named;
    let mut call = head.open(policy, || names);
    let now = head.arrival.now;
    let store = head.gate.store();
    let decision = match at {
        None => store.peek_known(&plan.charges, now).await,
        Some(at) => Ok(store.client_timed().peek(&plan.charges, at)),
    };
    let answer = decision.map_err(CallError::from).map(|decision| {
        let tally = Tally::peeked(plan, decision, now);
        let standings = tally.charges().map(|own| standing_of(&own)).collect();
        call.note_standings(tally);
        Answer { standings, ..Answer::default() }
    });
    end(head, call, answer)
}

/// Gives back what a receipt is for, units and slots alike, but for a part that was settled before.
async fn give_back<'p>(head: &CallHead<'_, 'p>, receipt: &str) -> Result<Settled<'p>, CallError> {
    let mut settled: Result<Settled<'p>, CallError> =
        Err(ReceiptError::Nothing("give back").into());
    for part in [Part::Units, Part::Slots] {
        let request = RedeemRequest { receipt, part, limit: None, cost: NOTHING };
        match (correct(head, request).await, &mut settled) {
            (Ok(more), Ok(all)) => all.standings.extend(more.standings),
            (Ok(first), _) => settled = Ok(first),
            (Err(CallError::Receipt(ReceiptError::Nothing(_))), _) => {}
            (Err(used @ CallError::Receipt(ReceiptError::Used)), Err(_)) => settled = Err(used),
            (Err(CallError::Receipt(ReceiptError::Used)), Ok(_)) => {}
            (Err(error), _) => return Err(error),
        }
    }
    settled
}

/// Corrects what a receipt is for.
async fn correct<'p>(
    head: &CallHead<'_, 'p>,
    request: RedeemRequest<'_>,
) -> Result<Settled<'p>, CallError> {
    let (shared, now) = (head.gate.shared(), head.arrival.now);
    let store = head.gate.store();
    let policies: &'p Policies = &head.snapshot.policies;
    let Redemption { policy, charges: all, at, room } =
        redeem(request, policies, asker_of(head), store, now).await?;
    let charges: Vec<Charge<'_>> = all.iter().map(|own| own.charge).collect();
    let peek = async || match at {
        None => store.peek_latest(&charges, now).await,
        Some(at) => store.client_timed().peek(&charges, at),
    };
    let mut standings = peek().await.outcomes;
    let mut is_elsewhere = false;
    let mut latest = None;
    for (own, outcome) in all.iter().zip(&mut standings) {
        let ReceiptCharge { limit, tuple, charge, settled_cost, receipt, decided_by, .. } = own;
        let counter = (limit.position, tuple);
        let is_first_window = latest.replace(counter) != Some(counter);
        is_elsewhere |= store.is_decided_elsewhere(charge, *decided_by);
        let write = own.name.as_ref().map(|name| move |to: &mut String| to.push_str(name));
        let name = write.as_ref().map(|write| write as &dyn Fn(&mut String));
        let corrected = Corrected { policy, limit, tuple: *tuple, name };
        if is_first_window {
            head.count_settlement(&corrected, charge.cost, *settled_cost);
        }
        if let Some((adjustment, units)) = adjustment(charge.cost, *settled_cost, Some(*receipt)) {
            let settling = Charge { cost: units, ..*charge };
            let charged = Outcome { decided_by: *decided_by, ..*outcome };
            let settled = match at {
                None => store.settle(&settling, &charged, adjustment, now),
                Some(at) => store.client_timed().settle(&settling, adjustment, at, now),
            };
            outcome.standing = settled.unwrap_or(outcome.standing);
            if is_first_window {
                head.count_adjustment(corrected, adjustment, units);
            }
            if let Adjustment::GiveBack(_) = adjustment {
                shared.stores.waiting.given_back(charge.key.entry);
            }
        }
    }
    drop(room);
    if is_elsewhere {
        // By now the counters that have the charges were corrected, or will be when they answer.
        standings = peek().await.outcomes;
    }
    let known = all.iter().zip(&standings);
    let known = known.filter(|(_, outcome)| outcome.decided_by != DecidedBy::NoStore);
    let standings = known.map(|(own, outcome)| WindowStanding {
        limit: own.limit.name.clone(),
        window_seconds: own.window_secs,
        standing: outcome.standing,
    });
    let standings = standings.collect();
    let mut names = CounterNames::default();
    all.into_iter()
        .for_each(|own| own.name.into_iter().for_each(|name| names.add(own.tuple, name)));
    Ok(Settled { policy, standings, names })
}

fn end_settled(head: &CallHead<'_, '_>, settled: Settled<'_>) -> CallAnswer {
    let Settled { policy, standings, names } = settled;
    let answer = Ok(Answer { standings, ..Answer::default() });
    end_uncharged(head, Some((policy, names)), answer)
}

fn asker_of<'g>(head: &CallHead<'g, '_>) -> Asker<'g> {
    Asker { identifier: &head.gate.shared().identifier, address: head.program.address }
}

/// Ends a call that was about limits with this answer.
fn end(
    head: &CallHead<'_, '_>,
    call: OpenCall<'_, '_, '_>,
    answer: Result<Answer, CallError>,
) -> CallAnswer {
    let headers = call.limit_headers();
    let error = answer.as_ref().err().map(ToString::to_string);
    let account = call.end(status_of(&answer), error);
    CallAnswer { answer, headers, account, request_id: head.request_id.clone() }
}

/// Ends a call that has charged nothing, with its line in the log.
fn end_uncharged(
    head: &CallHead<'_, '_>,
    about: Option<(&Policy, CounterNames)>,
    answer: Result<Answer, CallError>,
) -> CallAnswer {
    let error = answer.as_ref().err().map(ToString::to_string);
    let account = head.end_uncharged(about, status_of(&answer), error);
    let headers = HeaderMap::new();
    CallAnswer { answer, headers, account, request_id: head.request_id.clone() }
}

fn status_of(answer: &Result<Answer, CallError>) -> u16 {
    let status = match answer {
        Ok(Answer { denied: Some(_), .. }) => DENIED,
        Ok(_) => StatusCode::OK,
        Err(error) => error.status(),
    };
    status.as_u16()
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

fn standing_of(own: &DecidedCharge<'_, '_>) -> WindowStanding {
    debug_assert!(own.planned.role != ChargeRole::Candidate, "none is planned");
    WindowStanding {
        limit: own.planned.limit.name.clone(),
        window_seconds: own.planned.allowance.window_secs,
        standing: *own.standing(),
    }
}
