//! Calls that are no requests to be judged: those of programs, and of Envoy about descriptors.
//!
//! Who answers a call decides what it charges. Here it gets what a request gets: its numbers, its
//! line in the log, and its place among the latest denials.

use std::{net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Request};
use tollgate_clock::Timestamp;
use tollgate_observe::{
    metrics::{MethodLabel, RequestMeter},
    sketch::{Denied, Sighting},
};
use tollgate_policy::{Limit, Policy};
use tollgate_response::{Account, Rejection};
use tollgate_store::{Adjustment, StoreError};

use super::{
    Arrival, Gate, Snapshot,
    counting::{CountedSender, count_adjustment, count_charges},
    denials::DeniedRequest,
    kept_names::{CounterNames, NameCounter},
    request_guard::{LoggedRequest, RequestGuard, RequestLine, ResponseNote},
    request_state::Action,
    stamp::stamp,
    tally::Tally,
};

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub struct Program<'r> {
    /// Its address.
    pub address: IpAddr,
    /// The protocol, as the log names it.
    pub protocol: &'static str,
    /// What it calls itself.
    pub user_agent: Option<&'r HeaderValue>,
}

/// A call as it came in.
pub struct CallHead<'g, 'p> {
    /// What counts and logs it.
    pub gate: &'g Gate,
    /// As the log has it, whatever the protocol.
    pub method: Method,
    /// As the log has it.
    pub path: &'g str,
    /// Who calls.
    pub program: Program<'g>,
    /// When it came.
    pub arrival: Arrival,
    /// What was in force then.
    pub snapshot: &'p Snapshot,
    /// Its id.
    pub request_id: &'g HeaderValue,
}

/// A counter of which units are taken or given back later.
pub struct Corrected<'c> {
    /// Whose limit it is.
    pub policy: &'c Policy,
    /// The limit.
    pub limit: &'c Limit,
    /// What its keys are of: the same in all windows.
    pub tuple: u128,
    /// Writes its name. None: that is not known any more.
    pub name: Option<&'c dyn Fn(&mut String)>,
}

/// A call that has no answer yet. If this is dropped before there is one, because the program goes
/// away, the log reports that.
pub struct OpenCall<'c, 'g, 'p> {
    head: &'c CallHead<'g, 'p>,
    guard: RequestGuard<'g, 'p>,
    rejection: Option<Rejection>,
}

impl<'g, 'p> CallHead<'g, 'p> {
    /// Opens the call, which is about limits of this policy. The log has the names of its counters.
    pub fn open(
        &self,
        policy: &'p Policy,
        names: impl FnOnce() -> CounterNames,
    ) -> OpenCall<'_, 'g, 'p> {
        let mut guard = self.guard(Some(policy), names);
        guard.state.policy = Some(policy);
        OpenCall { head: self, guard, rejection: None }
    }

    /// Ends a call that has charged nothing. Returns what ends with its response. None for `about`:
    /// it is about no limit that there is; else the policy, and the names of counters.
    pub fn end_uncharged(
        &self,
        about: Option<(&Policy, CounterNames)>,
        status: u16,
        error: Option<String>,
    ) -> Option<Account> {
        let (policy, names) = about.unzip();
        let mut guard = self.guard(policy, || names.unwrap_or_default());
        guard.account(status, &ResponseNote { error, ..ResponseNote::default() })
    }

    /// Counts that what had reserved some units of a limit has cost others.
    pub fn count_settlement(&self, corrected: &Corrected<'_>, reserved: u32, cost: u32) {
        let Corrected { policy, limit, .. } = corrected;
        let series = self.gate.series(self.snapshot, Some(policy));
        if let Some(counters) = series.limit(limit.position, policy.identity.tiers.default, false) {
            counters.settle(reserved, cost);
        }
    }

    /// Counts a correction of what a counter has taken, and notes what is taken more.
    pub fn count_adjustment(
        &self,
        Corrected { policy, limit, tuple, name }: Corrected<'_>,
        adjustment: Adjustment,
        units: u32,
    ) {
        let series = self.gate.series(self.snapshot, Some(policy));
        let tier = policy.identity.tiers.default;
        if let Some(counters) = series.limit(limit.position, tier, false) {
            count_adjustment(counters, adjustment, units);
        }
        if let (Adjustment::Take, Some(sketch)) = (adjustment, series.callers(limit.position)) {
            let seen = Sighting {
                key: name.is_some().then_some(tuple as u64),
                tier: series.tier_number(tier),
                units: units.into(),
                denied: Denied::No,
                is_near: false,
            };
            sketch.note(self.arrival.now, &seen, name.unwrap_or(&|_| {}));
        }
    }

    fn guard(
        &self,
        policy: Option<&Policy>,
        names: impl FnOnce() -> CounterNames,
    ) -> RequestGuard<'g, 'p> {
        let &CallHead { gate, ref method, path, program, arrival, snapshot, request_id } = self;
        let Program { address, protocol, user_agent } = program;
        let logged = gate.log.as_ref().map(|log| {
            let user_agent = user_agent.cloned();
            (log, LoggedRequest::of_call(method.clone(), path, address, user_agent, names()))
        });
        let series = gate.series(snapshot, policy);
        let line = RequestLine {
            meter: RequestMeter::begin(series, MethodLabel::of(method), arrival.started),
            log: logged,
            request_id,
            stores: &gate.shared().stores,
            traced: None,
            arrival,
            asked_by: Some(protocol),
            panicked: &gate.panicked,
        };
        RequestGuard::new(line, &gate.abandoned)
    }
}

impl<'p> OpenCall<'_, '_, 'p> {
    /// Counts what the store has decided, and keeps a denial. `who` names whose charges they are,
    /// and `name` the counter of each.
    pub fn conclude(
        &mut self,
        tally: Result<Tally<'p>, StoreError>,
        who: String,
        name: &NameCounter<'_>,
        now: Timestamp,
    ) {
        let state = &mut self.guard.state;
        let rejection = match tally {
            Ok(tally) => {
                let rejection = tally.denial_of(|| who, now, Duration::ZERO);
                if let Some(line) = &self.guard.line {
                    let sender =
                        CountedSender::of(line.meter.series(), state.policy, None, Some(name));
                    let sender = CountedSender { is_program: true, ..sender };
                    count_charges(&sender, &tally, now);
                }
                state.tally = Some(tally);
                rejection
            }
            Err(error) => Some(error.into()),
        };
        let action = rejection.map_or(Action::Options, Action::Refuse);
        // Also if it was admitted: a limit that only counts may have denied it.
        self.note_denial(&action, name, now);
        self.rejection = match action {
            Action::Refuse(rejection) => Some(rejection),
            _ => None,
        };
    }

    /// Notes how limits stand that the call only asks about.
    pub fn note_standings(&mut self, tally: Tally<'p>) {
        self.guard.state.tally = Some(tally);
    }

    /// What was decided; none: nothing was charged.
    pub fn tally(&self) -> Option<&Tally<'p>> {
        self.guard.state.tally.as_ref()
    }

    /// Why it was denied, if it was.
    pub fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }

    /// The limit headers of its response.
    pub fn limit_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        stamp(&mut headers, &self.guard.state, self.head.gate.shared());
        headers
    }

    /// Ends the call. Returns what ends with its response. `error` says what went wrong, if that is
    /// not why it was denied.
    pub fn end(mut self, status: u16, error: Option<String>) -> Option<Account> {
        let note = ResponseNote::of(self.rejection.as_ref());
        let error = note.error.or(error);
        self.guard.account(status, &ResponseNote { error, ..note })
    }

    fn note_denial(&self, action: &Action<'p>, name: &NameCounter<'_>, now: Timestamp) {
        let &CallHead { gate, ref method, path, program, request_id, .. } = self.head;
        let request = Request::builder().method(method).uri(path).body(());
        let Ok((parts, ())) = request.map(Request::into_parts) else { return };
        let (state, address) = (&self.guard.state, program.address);
        let parts = &parts;
        let denied = DeniedRequest { parts, state, action, address, request_id, name };
        gate.shared().denials.note(&gate.denials, &denied, now);
    }
}
