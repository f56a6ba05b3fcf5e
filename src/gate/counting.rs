//! Counts what was decided about a request, for metrics.
//!
//! A limit of several windows decides once about a request, and takes units once: those of its
//! first window.

use super::{
    charge_plan::ChargeRole,
    request_state::{Action, RequestState},
    tally::{DecidedCharge, Tally},
};
use crate::{
    identity::AuthResult,
    limit::DecidedBy,
    metrics::{LimitCounters, LimitDecision, PolicySeries},
    response::Rejection,
    store::Adjustment,
};

/// Counts what the judge has decided.
pub(super) fn count_decisions(
    series: &PolicySeries,
    state: &RequestState<'_>,
    action: &Action<'_>,
) {
    let auth = auth_result(state, action);
    if let Some(count) = auth.and_then(|result| series.own.auth.get(result.position())) {
        count.increment();
    }
    let tally = state.tally.as_ref().filter(|tally| tally.is_charge());
    if let Some(tally) = tally {
        count_charges(series, tally);
    }
    if tally.is_some() || matches!(action, Action::Forward(_)) {
        count_skipped(series, state);
    }
}

/// Counts a correction of what a limit has taken.
pub(super) fn count_adjustment(counters: &LimitCounters, adjustment: Adjustment, units: u32) {
    let count = match adjustment {
        Adjustment::GiveBack(_) => &counters.refunded,
        Adjustment::Take | Adjustment::Renew(_) => &counters.charged,
    };
    count.add(units.into());
}

/// What came of looking for the sender; none: nothing has looked.
fn auth_result(state: &RequestState<'_>, action: &Action<'_>) -> Option<AuthResult> {
    match action {
        Action::Refuse(Rejection::Identity(error)) => Some(error.into()),
        Action::Refuse(Rejection::Certificate(_)) => Some(AuthResult::BadCertificate),
        _ => Some(AuthResult::of(state.identity.as_ref()?, &state.policy?.identity)),
    }
}

fn count_charges(series: &PolicySeries, tally: &Tally<'_>) {
    let is_charge = |own: &DecidedCharge<'_, '_>| own.planned.role != ChargeRole::Refund;
    let mut all = tally.all().filter(is_charge).peekable();
    while let Some(first) = all.next() {
        let Some(counters) = first.counters(series, tally.tier()) else { continue };
        let mut decision = first.decision();
        while let Some(window) = all.next_if(|own| own.is_of_same_limit(&first)) {
            decision = worse(decision, window.decision());
        }
        counters.count(decision);
        counters.charged.add(tally.cost_of(&first).into());
    }
}

/// Counts the limits of the route that do not apply to the request.
fn count_skipped(series: &PolicySeries, state: &RequestState<'_>) {
    let (Some(route), Some(identity)) = (state.route, &state.identity) else { return };
    for position in &route.limits {
        let is_planned =
            |tally: &Tally<'_>| tally.all().any(|own| own.planned.limit.position == *position);
        if !state.tally.as_ref().is_some_and(is_planned)
            && let Some(counters) = series.limit(*position, identity.tier, false)
        {
            counters.count(LimitDecision::Skip);
        }
    }
}

/// Of the decisions of two windows, the one that decides.
fn worse(one: LimitDecision, other: LimitDecision) -> LimitDecision {
    let rank = |decision| match decision {
        LimitDecision::Skip => 0,
        LimitDecision::Allow => 1,
        LimitDecision::Near => 2,
        LimitDecision::WouldDeny => 3,
        LimitDecision::Deny => 4,
    };
    if rank(other) > rank(one) { other } else { one }
}

impl DecidedCharge<'_, '_> {
    /// Where its limit is counted; none: it is no limit of the policy.
    pub(super) fn counters<'s>(
        &self,
        series: &'s PolicySeries,
        tier: usize,
    ) -> Option<&'s std::sync::Arc<LimitCounters>> {
        series.limit(self.planned.limit.position, tier, self.planned.role == ChargeRole::Candidate)
    }

    /// Whether both are windows of one limit, or of one limit's candidate.
    pub(super) fn is_of_same_limit(&self, other: &DecidedCharge<'_, '_>) -> bool {
        let is_candidate = |own: &DecidedCharge<'_, '_>| own.planned.role == ChargeRole::Candidate;
        self.planned.limit.position == other.planned.limit.position
            && is_candidate(self) == is_candidate(other)
    }

    fn decision(&self) -> LimitDecision {
        let standing = self.standing();
        let is_near = u64::from(standing.used) * 5 > u64::from(standing.limit) * 4;
        match self.outcome.fits() {
            _ if self.outcome.decided_by == DecidedBy::NoStore => LimitDecision::Skip,
            true if is_near => LimitDecision::Near,
            true => LimitDecision::Allow,
            false if self.planned.role.is_enforced() => LimitDecision::Deny,
            false => LimitDecision::WouldDeny,
        }
    }
}
