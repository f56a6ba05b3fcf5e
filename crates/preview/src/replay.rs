//! Requests of the past, judged and charged by the code that judges real ones.

use http::Response;
use smallvec::SmallVec;
use tollgate_gate::{
    charge_plan::ChargeRole,
    dry_run::DryRun,
    past_costs::{CostInLog, PastCosts},
    request_state::{Action, RequestState},
    tally::{DecidedCharge, Tally},
};
use tollgate_identity::{AssumedCaller, Identity};
use tollgate_keyword::keywords;
use tollgate_limit::{Retry, Standing};
use tollgate_policy::{Allowance, Limit, Policies, Policy, Route};
use tollgate_response::Rejection;
use tollgate_store::HeldLeases;
use tollgate_usage::logged::LoggedUse;

use super::{Draft, Rehearsal};

/// A request of the past. It is filled anew for each one, so that it needs no new memory.
pub struct PastRequest {
    /// Its head and its sender, without credentials.
    pub draft: Draft,
    /// What the upstream has answered.
    pub answer: Response<()>,
    dry_run: DryRun,
}

/// What would have become of a request of the past. It is filled anew for each one, because
/// returning it takes longer.
#[derive(Default)]
pub struct Judgement<'p> {
    /// The policy for its host.
    pub policy: Option<&'p Policy>,
    /// Its route.
    pub route: Option<&'p Route>,
    /// Who has sent it; none: it was refused before that was known.
    pub identity: Option<Identity<'p>>,
    /// What it was charged to.
    pub charges: SmallVec<[JudgedCharge<'p>; 4]>,
    /// The positions of limits of its policy that it was not charged to because the log does not
    /// have what they count by.
    pub unkeyed: SmallVec<[usize; 2]>,
    /// What would have been done with it.
    pub verdict: PastVerdict,
    /// What it holds of limits of requests in flight, until this is dropped.
    pub leases: Option<HeldLeases>,
    /// What is to be settled when its response has ended.
    pub costs: PastCosts,
}

/// What would have been done with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PastVerdict {
    /// It would have been forwarded, or answered by the proxy itself.
    #[default]
    Admitted,
    /// A limit that is enforced has no room.
    Denied,
    /// It would have been refused for another reason.
    Refused(String),
    /// The route needs a caller, and the log does not say who it was.
    NoCaller,
    /// A limit of this name refuses requests without what it counts by, and the log does not have
    /// it.
    NoKey(Box<str>),
}

impl Judgement<'_> {
    /// Whether it was denied, or would have been, were limits in shadow mode enforced. Candidates
    /// stand beside a rate that is in force, and do not count.
    pub fn would_deny_enforced(&self) -> bool {
        let is_rate = |charge: &JudgedCharge<'_>| charge.mode != ChargeMode::Candidate;
        self.verdict == PastVerdict::Denied
            || self.verdict == PastVerdict::Admitted
                && self.charges.iter().any(|charge| is_rate(charge) && !charge.fits)
    }

    /// Whether it would have been denied, were all limits enforced, and was not.
    pub fn would_deny(&self) -> bool {
        let is_observed = |charge: &JudgedCharge<'_>| charge.mode != ChargeMode::Enforce;
        self.verdict == PastVerdict::Admitted
            && self.charges.iter().any(|charge| is_observed(charge) && !charge.fits)
    }
}

/// A charge of a request of the past.
#[derive(Clone, Copy)]
pub struct JudgedCharge<'p> {
    /// The limit.
    pub limit: &'p Limit,
    /// What it allows this caller.
    pub allowance: &'p Allowance,
    /// Whether it may deny.
    pub mode: ChargeMode,
    /// The position of the tier that it is for.
    pub tier: usize,
    /// Which of the limit's counters.
    pub key: u128,
    /// Units that the request has asked for.
    pub asked: u32,
    /// Units that it has come to, were it not denied: after refunds and costs that a response
    /// tells.
    pub cost: u32,
    /// Whether the log says what it came to.
    pub cost_in_log: CostInLog,
    /// Whether there was room.
    pub fits: bool,
    /// When there would have been.
    pub retry: Retry,
}

/// Whether a charge may deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChargeMode {
    /// It may.
    Enforce,
    /// It only counts.
    Shadow,
    /// It is of a candidate rate, which only counts.
    Candidate,
}

keywords! { ChargeMode { Enforce = "enforce", Shadow = "shadow", Candidate = "candidate" } }

impl PastRequest {
    /// With this head and sender.
    pub fn new(draft: Draft) -> PastRequest {
        let dry_run = DryRun { is_charged: true, ..DryRun::default() };
        PastRequest { draft, answer: Response::new(()), dry_run }
    }

    /// Who has sent it; none: nothing but the address is known. Returns who had sent the one
    /// before.
    pub fn set_caller(&mut self, caller: Option<AssumedCaller>) -> Option<AssumedCaller> {
        std::mem::replace(&mut self.dry_run.caller, caller)
    }

    /// What it has used. It is filled anew for each one.
    pub fn used_mut(&mut self) -> &mut LoggedUse {
        &mut self.dry_run.used
    }

    /// Whether it is known who has sent it.
    pub fn has_caller(&self) -> bool {
        self.dry_run.caller.is_some()
    }
}

impl Rehearsal {
    /// Judges a request of the past, and charges it. A response of the upstream corrects the
    /// charges, as it would have.
    pub async fn replay<'p>(
        &self,
        policies: &'p Policies,
        past: &mut PastRequest,
        judged: &mut Judgement<'p>,
    ) {
        let now = self.now();
        // Each policy looks for something else in the body.
        past.dry_run.body_facts.take();
        past.dry_run.unkeyed.borrow_mut().clear();
        let past = &*past;
        let mut state = RequestState::default();
        let action = self.decide(policies, &past.draft, &past.dry_run, now, &mut state).await;
        if matches!(action, Action::Standings) {
            // Who asks how limits stand uses nothing of any.
            state.tally = None;
        }
        judged.verdict = match action {
            Action::Refuse(rejection) => verdict(&rejection, past.has_caller()),
            _ => PastVerdict::Admitted,
        };
        std::mem::swap(&mut judged.unkeyed, &mut past.dry_run.unkeyed.borrow_mut());
        judged.charges.clear();
        let judged_charges = |tally| judged_charges(tally, past);
        judged.charges.extend(state.tally.iter().flat_map(judged_charges));
        (judged.leases, judged.costs) = (None, PastCosts::default());
        if judged.verdict == PastVerdict::Admitted {
            self.settle_past(&mut state, &past.answer);
            judged.costs = self.past_costs(&state, &past.dry_run.used);
            let granted = state.tally.as_ref().map(Tally::granted);
            judged.leases = granted.and_then(|granted| self.leases.hold(granted, now));
            note_settled(judged, &state);
        }
        (judged.policy, judged.route) = (state.policy, state.route);
        judged.identity = state.identity.take();
    }
}

/// Notes by what the head of the response has corrected the charges of an admitted request.
fn note_settled(judged: &mut Judgement<'_>, state: &RequestState<'_>) {
    let settled = state.tally.iter().flat_map(Tally::charges);
    for (judged, settled) in judged.charges.iter_mut().zip(settled) {
        let units = settled.charge.cost;
        if units != judged.asked {
            judged.cost = units;
            // What was refunded has cost nothing, whatever its response told.
            if judged.cost_in_log == CostInLog::Lacking {
                judged.cost_in_log = CostInLog::Fixed;
            }
        }
    }
}

fn judged_charges<'t, 'p: 't>(
    tally: &'t Tally<'p>,
    past: &'t PastRequest,
) -> impl Iterator<Item = JudgedCharge<'p>> + 't {
    let tier = tally.tier();
    tally.charges().map(move |own: DecidedCharge<'_, 'p>| {
        let Standing { retry, .. } = *own.standing();
        let cost_in_log = own.cost_in_log(&past.dry_run.used, past.answer.headers());
        JudgedCharge {
            limit: own.planned.limit,
            allowance: own.planned.allowance,
            mode: mode(own.planned.role),
            tier,
            key: own.charge.key.entry,
            asked: own.charge.cost,
            cost: match cost_in_log {
                CostInLog::Reported(units) => units,
                CostInLog::Fixed | CostInLog::Lacking => own.charge.cost,
            },
            cost_in_log,
            fits: own.outcome.fits(),
            retry,
        }
    })
}

fn mode(role: ChargeRole) -> ChargeMode {
    match role {
        ChargeRole::Primary | ChargeRole::Secondary => ChargeMode::Enforce,
        ChargeRole::Shadow | ChargeRole::Refund => ChargeMode::Shadow,
        ChargeRole::Candidate => ChargeMode::Candidate,
    }
}

fn verdict(rejection: &Rejection, has_caller: bool) -> PastVerdict {
    match rejection {
        // Which scopes and claims a token had is in no log. It was admitted then, or its status
        // says so.
        Rejection::Scope(_) | Rejection::Claim(_) => PastVerdict::Admitted,
        Rejection::Identity(_) if !has_caller => PastVerdict::NoCaller,
        Rejection::MissingKey(limit) => PastVerdict::NoKey(limit.clone()),
        rejection if rejection.limit().is_some() => PastVerdict::Denied,
        rejection => PastVerdict::Refused(rejection.to_string()),
    }
}
