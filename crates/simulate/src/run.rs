//! Reads a history and judges it: from the first request to the answers.

use std::{collections::BTreeMap, time::Instant};

use rustc_hash::FxHashMap;
use tollgate_clock::Timestamp;
use tollgate_history::{HistoryAhead, HistorySummary, ReadOptions, Record};
use tollgate_policy::Policies;
use tollgate_preview::{Judgement, PastRequest, PastVerdict};
use tollgate_settings::Settings;

use super::{
    Need, Outcome, Read, Report, SimulationError,
    caller_id::CallerIds,
    callers::CallerCounts,
    costs::CostCounts,
    curve::share,
    describe::{describe, name_of},
    limits::LimitCounts,
    notes::{Needs, notes},
    order::{finish, in_order},
    past_judge::PastJudge,
    timeline::Moments,
    translate::{CallerField, Translator, duration, stands_for},
};

/// The version of the report's form.
const VERSION: u32 = 1;

/// The most reasons for refusals that are counted separately.
const MAX_REASONS: usize = 50;

/// Lines between two reports of progress.
const LINES_A_REPORT: u64 = 1 << 13;

/// Bytes of memory that a counter takes in the process, with room for what its table keeps free.
const BYTES_A_KEY: u64 = 64;

/// What is to be simulated.
pub struct Simulation<'q> {
    /// The logs.
    pub read: ReadOptions,
    /// Where they have the names of callers. [`ReadOptions::wanted`] has the same fields.
    pub callers: Vec<CallerField>,
    /// The host of requests whose log has none.
    pub host: Option<String>,
    /// The policies to judge by.
    pub candidate: PolicySet<'q>,
    /// Other policies, for comparison.
    pub against: Option<PolicySet<'q>>,
}

/// Policies to judge by.
#[derive(Clone, Copy)]
pub struct PolicySet<'q> {
    /// The policies.
    pub policies: &'q Policies,
    /// Settings, if any were read with them.
    pub settings: Option<&'q Settings>,
    /// What they were called on the command line.
    pub name: &'q str,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Requests that were judged.
    pub requests: u64,
    /// Bytes of the logs that were read.
    pub bytes: u64,
    /// Bytes of all logs; none: not known.
    pub all_bytes: Option<u64>,
}

impl Simulation<'_> {
    /// Judges all requests of the logs.
    ///
    /// # Errors
    /// [`SimulationError`].
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Report, SimulationError> {
        self.run_naming(&mut Names::default(), progress)
    }

    /// The same, and finds the names of those whose counters are in `names`.
    pub(super) fn run_naming(
        &self,
        names: &mut Names,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Report, SimulationError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())?;
        // What would be logged of real clients is of no interest here.
        let quiet = tracing::subscriber::NoSubscriber::new();
        tracing::subscriber::with_default(quiet, || {
            in_order(&self.read, |read| runtime.block_on(self.judge_all(read, names, progress)))
        })
    }

    async fn judge_all(
        &self,
        read: &ReadOptions,
        names: &mut Names,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Report, SimulationError> {
        let begun = Instant::now();
        let mut history = HistoryAhead::open(read)?;
        let mut counts = Counts::new(self, names);
        let mut past = Translator::blank();
        let mut judged = Judgement::default();
        let mut lines: u64 = 0;
        while let Some(mut record) = history.next_record() {
            counts.judge(&mut past, &mut record, &mut judged).await;
            lines += 1;
            if lines.is_multiple_of(LINES_A_REPORT) {
                let (bytes, all_bytes) = history.progress();
                progress(Progress { requests: counts.outcome.requests, bytes, all_bytes });
            }
        }
        let mut report = counts.report(self, finish(history)?);
        report.read.took_seconds = begun.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// The names of those whose counters these are, by the hash of the counter; none: it is not known
/// yet.
pub(super) type Names = FxHashMap<u128, Option<String>>;

/// All that is counted.
struct Counts<'s, 'q> {
    simulation: &'s Simulation<'q>,
    names: &'s mut Names,
    judge: PastJudge<'q>,
    against: Option<PastJudge<'q>>,
    translator: Translator,
    caller_ids: CallerIds,
    outcome: Outcome,
    limits: LimitCounts<'q>,
    callers: CallerCounts,
    moments: Moments,
    costs: CostCounts<'q>,
    calls: Calls,
    first: Option<Timestamp>,
    last: Timestamp,
}

/// Calls of a store, second by second.
#[derive(Default)]
struct Calls {
    second: u64,
    in_second: u64,
    most: u64,
    all: u64,
}

impl<'s, 'q> Counts<'s, 'q> {
    fn new(simulation: &'s Simulation<'q>, names: &'s mut Names) -> Counts<'s, 'q> {
        let Simulation { candidate, against, callers, host, .. } = simulation;
        Counts {
            simulation,
            names,
            judge: PastJudge::new(candidate.policies, candidate.settings),
            against: against.map(|against| PastJudge::new(against.policies, against.settings)),
            translator: Translator::new(callers, host.as_deref(), candidate.policies),
            caller_ids: CallerIds::new(callers, candidate.policies),
            outcome: Outcome::default(),
            limits: LimitCounts::default(),
            callers: CallerCounts::default(),
            moments: Moments::default(),
            costs: CostCounts::default(),
            calls: Calls::default(),
            first: None,
            last: Timestamp::default(),
        }
    }

    /// Judges what a line tells of: mostly one request.
    async fn judge(
        &mut self,
        past: &mut PastRequest,
        record: &mut Record,
        judged: &mut Judgement<'q>,
    ) {
        let now = record.time;
        self.first.get_or_insert(now);
        self.last = now;
        let times = stands_for(record);
        self.outcome.requests += u64::from(times);
        self.moments.at(now).requests += u64::from(times);
        let caller = self.caller_ids.of(record);
        self.callers.add(caller, times);
        let filled = self.translator.fill(past, record, times);
        for _ in 0..times {
            match filled {
                Ok(()) => self.judge_request(past, record, caller, judged).await,
                Err(reason) => self.refuse(reason),
            }
        }
    }

    async fn judge_request(
        &mut self,
        past: &mut PastRequest,
        record: &Record,
        caller: u64,
        judged: &mut Judgement<'q>,
    ) {
        let now = record.time;
        let took = duration(record);
        self.judge.judge(past, now, took, judged).await;
        self.count(past, now, caller, judged);
        let policies = self.simulation.candidate.name;
        if let Some(against) = &mut self.against {
            against.judge(past, now, took, judged).await;
            if judged.would_deny_enforced() {
                let describe = || describe(policies, past, now, judged);
                self.callers.add_denial_against(caller, describe);
            }
        }
    }

    fn count(&mut self, past: &PastRequest, now: Timestamp, caller: u64, judged: &Judgement<'q>) {
        let policies = self.simulation.candidate.name;
        if let Some(policy) = judged.policy {
            if judged.charges.iter().any(|charge| charge.limit.count_when.is_some()) {
                self.limits.tries.add(caller, past.answer.status());
            }
            for charge in &judged.charges {
                self.limits.add(policy, charge, now, caller);
                if let Some(name @ None) = self.names.get_mut(&charge.key) {
                    *name = Some(name_of(charge, past, judged));
                }
            }
            self.costs.add(policy, &judged.charges);
            let tier = judged.identity.as_ref().map(|identity| identity.tier);
            for limit in judged.unkeyed.iter().filter_map(|at| policy.limits.get(*at)) {
                self.limits.not_judged.add(policy, limit, tier);
            }
        }
        if !judged.charges.is_empty() {
            self.calls.add(now);
        }
        match &judged.verdict {
            PastVerdict::Denied => {
                self.outcome.denied += 1;
                self.moments.at(now).denied += 1;
                let describe = || describe(policies, past, now, judged);
                self.callers.add_denial(caller, judged, describe);
            }
            PastVerdict::Admitted => {
                self.outcome.admitted += 1;
                if judged.would_deny() {
                    self.outcome.would_deny += 1;
                    self.moments.at(now).would_deny += 1;
                    let describe = || describe(policies, past, now, judged);
                    self.callers.add_denial(caller, judged, describe);
                }
            }
            PastVerdict::NoKey(limit) => {
                self.refuse(&format!("the log does not have what limit {limit} counts by"));
            }
            PastVerdict::NoCaller => {
                if let Some((policy, route)) = judged.policy.zip(judged.route) {
                    self.limits.not_judged.add_route(policy, route);
                }
                self.refuse("the log does not say who called, and the route needs a token");
            }
            PastVerdict::Refused(reason) => {
                let reason = reason.clone();
                self.refuse(&reason);
            }
        }
    }

    fn refuse(&mut self, reason: &str) {
        let refused: &mut BTreeMap<String, u64> = &mut self.outcome.refused;
        let known = refused.contains_key(reason) || refused.len() < MAX_REASONS;
        let reason = if known { reason } else { "other reasons" };
        *refused.entry(reason.to_owned()).or_default() += 1;
    }

    fn report(mut self, simulation: &Simulation<'_>, mut summary: HistorySummary) -> Report {
        self.callers.count_waiting();
        let of_logs = std::mem::take(&mut summary.notes);
        let mut read = Read::from(summary);
        let outcome = &mut self.outcome;
        outcome.denied_share = share(outcome.denied, outcome.requests);
        outcome.denied_in_log = self.translator.lacks.denied;
        outcome.callers = self.callers.len();
        outcome.callers_denied = self.callers.denied();
        let seconds =
            self.first.map_or(0.0, |first| self.last.saturating_since(first).as_secs_f64());
        read.first = self.first.map(|first| first.to_string());
        read.last = self.first.map(|_| self.last.to_string());
        read.seconds = seconds;
        let needs = Needs::of(simulation.candidate.policies);
        let mut notes = notes(&read, &self.translator.lacks, needs, outcome);
        notes.extend(self.costs.notes(simulation.candidate.policies));
        notes.extend(of_logs);
        let (limits, curves) = self.limits.report(simulation.candidate.policies);
        let peak_keys = self.judge.peak_keys();
        Report {
            version: VERSION,
            read,
            notes,
            limits,
            worst: self.callers.worst(),
            curves,
            timeline: self.moments.report(),
            against: simulation.against.map(|against| {
                self.callers.against(against.name.to_owned(), self.outcome.requests)
            }),
            outcome: self.outcome,
            store: Need {
                peak_keys,
                memory_bytes: peak_keys * BYTES_A_KEY,
                peak_redis_calls_per_second: self.calls.most,
                mean_redis_calls_per_second: self.calls.all as f64 / seconds.max(1.0),
            },
        }
    }
}

impl Calls {
    fn add(&mut self, now: Timestamp) {
        let second = now.as_micros() / 1_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second += 1;
        self.all += 1;
        self.most = self.most.max(self.in_second);
    }
}
