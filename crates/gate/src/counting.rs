//! Counts what was decided about a request, for metrics.
//!
//! A limit of several windows decides once about a request, and takes units once: those of its
//! first window.

use std::{fmt::Write, net::IpAddr, sync::Arc};

use tollgate_clock::Timestamp;
use tollgate_identity::{
    AuthResult, Identifier, Identity, IdentityRules, Prefixes, ResolvedCaller, counted_address,
};
use tollgate_limit::DecidedBy;
use tollgate_observe::{
    metrics::{LimitCounters, LimitDecision, PolicySeries},
    sketch::{Denied, Sighting, WorkerSketch},
};
use tollgate_policy::{KeyPart, Per, Policy};
use tollgate_response::Rejection;
use tollgate_store::Adjustment;
use tollgate_usage::mcp::Messages;

use super::{
    charge_context::{ChargeContext, keys::KeyBuilder},
    charge_plan::ChargeRole,
    judge_input::JudgeInput,
    kept_names::{KeptNames, NameCounter},
    request_state::{Action, RequestState},
    tally::{DecidedCharge, Tally},
};

/// What names an address that a limit counts by.
const CLIENT_IP: &str = "client.ip";

/// Where a request is counted, and who has sent it.
#[derive(Clone, Copy)]
pub(super) struct CountedSender<'c> {
    pub(super) series: &'c PolicySeries,
    /// None: there is no policy for the request.
    pub(super) rules: Option<&'c IdentityRules>,
    pub(super) caller: Option<&'c ResolvedCaller<'c>>,
    /// None: it is not known any more.
    pub(super) address: Option<IpAddr>,
    /// None: they are not known.
    pub(super) names: Option<&'c NameCounter<'c>>,
    /// Whether a program has named all counters: it is no caller itself.
    pub(super) is_program: bool,
}

/// What the counters of a request have their names from, while its head is here.
#[derive(Clone, Copy)]
pub(super) struct NamingRequest<'r> {
    pub(super) identifier: &'r Identifier,
    pub(super) input: &'r JudgeInput<'r>,
}

/// What is noted of a limit's caller.
pub(super) struct CallerNote {
    /// Units that it has used.
    pub(super) units: u32,
    pub(super) decision: LimitDecision,
    pub(super) now: Timestamp,
}

/// Whose counter a charge is on.
enum CallerName<'c> {
    Caller(&'c ResolvedCaller<'c>, &'c IdentityRules),
    Address(IpAddr, &'c Per),
    Values(&'c NameCounter<'c>, DecidedCharge<'c, 'c>),
}

/// Where units are noted that a caller turns out to have used after its request has gone.
pub(super) struct LateUnits {
    sketch: Arc<WorkerSketch>,
    key: Option<u64>,
    tier: u16,
    name: String,
}

/// Counts what the judge has decided about a request from `address`. Returns the names that are
/// needed when it has gone. None for `request`: its form is not sound.
pub(super) fn count_decisions(
    series: &PolicySeries,
    state: &RequestState<'_>,
    action: &Action<'_>,
    address: IpAddr,
    request: Option<NamingRequest<'_>>,
) -> KeptNames {
    let auth = auth_result(state, action);
    if let Some(count) = auth.and_then(|result| series.own.auth.get(result.position())) {
        count.increment();
    }
    let tally = state.tally.as_ref().filter(|tally| tally.is_charge());
    let mut kept = KeptNames::default();
    if let (Some(tally), Some(request)) = (tally, request) {
        let name = |own: &DecidedCharge<'_, '_>, to: &mut String| request.name(state, own, to);
        let sender = CountedSender::of(series, state.policy, state.identity.as_ref(), Some(&name));
        // Also of a request whose sender could not be identified.
        let sender = CountedSender { address: Some(address), ..sender };
        count_charges(&sender, tally, request.input.now);
        kept = KeptNames::of(tally, &name);
    }
    if tally.is_some() || matches!(action, Action::Forward(_)) {
        count_skipped(series, state);
    }
    kept
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

pub(super) fn count_charges(sender: &CountedSender<'_>, tally: &Tally<'_>, now: Timestamp) {
    let series = sender.series;
    let is_charge = |own: &DecidedCharge<'_, '_>| own.planned.role != ChargeRole::Refund;
    let mut all = tally.all().filter(is_charge).peekable();
    while let Some(first) = all.next() {
        let Some(counters) = first.counters(series, tally.tier()) else { continue };
        let mut decision = first.decision();
        while let Some(window) = all.next_if(|own| own.is_of_same_counter(&first)) {
            decision = worse(decision, window.decision());
        }
        let units = tally.cost_of(&first);
        counters.count(decision);
        counters.charged.add(units.into());
        sender.note(&first, tally.tier(), CallerNote { units, decision, now });
    }
}

impl<'c> CountedSender<'c> {
    pub(super) fn of(
        series: &'c PolicySeries,
        policy: Option<&'c Policy>,
        identity: Option<&'c Identity<'_>>,
        names: Option<&'c NameCounter<'c>>,
    ) -> Self {
        CountedSender {
            names,
            is_program: false,
            series,
            rules: policy.map(|policy| &policy.identity),
            caller: identity.and_then(|identity| identity.caller.as_ref()),
            address: identity.map(|identity| identity.address),
        }
    }

    /// Notes what a limit has decided, with the caller whose counter it is. What rates that are
    /// tried out decide is not noted.
    pub(super) fn note(
        &self,
        own: &DecidedCharge<'_, '_>,
        tier: usize,
        CallerNote { units, decision, now }: CallerNote,
    ) {
        let limit = own.planned.limit;
        let is_noted = own.planned.role != ChargeRole::Candidate && decision != LimitDecision::Skip;
        let Some(sketch) = self.series.callers(limit.position).filter(|_| is_noted) else { return };
        let key = own.counter();
        let name = self.name(own);
        let seen = Sighting {
            key: name.is_some().then_some(key),
            tier: self.series.tier_number(tier),
            units: units.into(),
            denied: match decision {
                LimitDecision::Deny => Denied::Yes,
                LimitDecision::WouldDeny => Denied::Would,
                LimitDecision::Allow | LimitDecision::Near | LimitDecision::Skip => Denied::No,
            },
            is_near: decision == LimitDecision::Near,
        };
        let write = |to: &mut String| name.iter().for_each(|name| name.write(to));
        sketch.note(now, &seen, &write);
    }

    /// Where to note units of a charge that become known when the request has gone.
    pub(super) fn late_units(&self, own: &DecidedCharge<'_, '_>, tier: usize) -> Option<LateUnits> {
        let limit = own.planned.limit;
        let series = self.series.limits.get(limit.position)?;
        let sketch =
            series.callers.as_ref().filter(|_| own.planned.role != ChargeRole::Candidate)?;
        let mut name = String::new();
        let key = self.name(own).map(|own_name| {
            own_name.write(&mut name);
            own.counter()
        });
        let tier = self.series.tier_number(tier);
        Some(LateUnits { sketch: Arc::clone(sketch), key, tier, name })
    }

    /// Whose counter a charge is on. None: that is not known any more.
    fn name<'n>(&self, own: &DecidedCharge<'n, 'n>) -> Option<CallerName<'n>>
    where
        'c: 'n,
    {
        let per = &own.planned.limit.per;
        match per.parts.as_slice() {
            _ if self.is_program => Some(CallerName::Values(self.names?, *own)),
            [KeyPart::Caller] => Some(CallerName::Caller(self.caller?, self.rules?)),
            [KeyPart::ClientIp] => Some(CallerName::Address(self.address?, per)),
            parts if self.caller.is_none() && parts.contains(&KeyPart::Caller) => None,
            _ => Some(CallerName::Values(self.names?, *own)),
        }
    }
}

impl NamingRequest<'_> {
    /// Writes the name of the counter that a charge of this request is on.
    pub(super) fn name(
        &self,
        state: &RequestState<'_>,
        own: &DecidedCharge<'_, '_>,
        to: &mut String,
    ) {
        let (NamingRequest { identifier, input }, Some(policy)) = (*self, state.policy) else {
            return;
        };
        let route = state.route;
        let whole = ChargeContext { identifier, policy, route, input, message: None };
        let unidentified = identifier.unidentified(&policy.identity, input.client.address);
        let identity = state.identity.as_ref().unwrap_or(&unidentified);
        let per = &own.planned.limit.per;
        let messages = whole.messages().map(Messages::each).unwrap_or_default();
        let tuple = own.charge.key.tuple(own.planned.allowance.id);
        let is_its = |context: &ChargeContext<'_, '_>| {
            KeyBuilder { context, per, identity }.hash().is_some_and(|(_, entry)| entry == tuple)
        };
        let mut each =
            messages.iter().map(|message| ChargeContext { message: Some(message), ..whole });
        let context = match per.parts.iter().any(KeyPart::is_in_messages) {
            true => each.find(is_its),
            false => None,
        };
        let context = &context.unwrap_or(whole);
        KeyBuilder { context, per, identity }.write_name(to);
    }
}

impl CallerName<'_> {
    /// As `tollgate look` takes it.
    fn write(&self, to: &mut String) {
        match self {
            CallerName::Caller(caller, rules) => {
                // Writing to a `String` never fails.
                let _ = write!(to, "{}", caller.name(rules));
            }
            CallerName::Address(address, per) => {
                let prefixes = Prefixes { ipv4: per.ipv4_prefix, ipv6: per.ipv6_prefix };
                let _ = write!(to, "{CLIENT_IP}:{}", counted_address(*address, prefixes));
            }
            CallerName::Values(name, own) => name(own, to),
        }
    }
}

impl LateUnits {
    /// Notes what the response has cost more.
    pub(super) fn note(&self, adjustment: Adjustment, units: u32, now: Timestamp) {
        let LateUnits { sketch, key, tier, name } = self;
        if let Adjustment::Take = adjustment {
            let units = units.into();
            let seen =
                Sighting { key: *key, tier: *tier, units, denied: Denied::No, is_near: false };
            sketch.note(now, &seen, &|to| to.push_str(name));
        }
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

    /// What sketches know its counter by: half of a keyed hash, which is enough to tell a few
    /// hundred apart. All windows of a limit have the same.
    pub(super) fn counter(&self) -> u64 {
        self.charge.key.tuple(self.planned.allowance.id) as u64
    }

    /// Whether both are windows of one limit, or of one limit's candidate, for one caller or key: a
    /// program may charge several at once.
    pub(super) fn is_of_same_counter(&self, other: &DecidedCharge<'_, '_>) -> bool {
        let is_candidate = |own: &DecidedCharge<'_, '_>| own.planned.role == ChargeRole::Candidate;
        self.planned.limit.position == other.planned.limit.position
            && is_candidate(self) == is_candidate(other)
            && self.counter() == other.counter()
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
