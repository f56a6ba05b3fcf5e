//! The answers of a simulation, in the form in which they are printed as JSON.
//!
//! Times are text in UTC as RFC 3339 has them; parts of a whole are numbers from 0 to 1.

use schemars::JsonSchema;
use serde::Serialize;

/// All answers of a simulation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// The version of this form: 1.
    pub version: u32,
    /// What was read.
    pub read: Read,
    /// What the log does not say, what biases the result, and how far its clock can be trusted:
    /// a sentence each, for the first lines of a report.
    pub notes: Vec<String>,
    /// What became of the requests.
    pub outcome: Outcome,
    /// What each limit would have done, for each tier and window: the one that denies most first.
    pub limits: Vec<LimitAnswer>,
    /// The callers that would be denied most, at most ten.
    pub worst: Vec<WorstCaller>,
    /// How many a limit would deny, were it another one. One for each entry of `limits` that counts
    /// in windows.
    pub curves: Vec<Curve>,
    /// Requests and denials over time.
    pub timeline: Timeline,
    /// In comparison with other policies; none: they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// What counters would have to be kept.
    pub store: Need,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Read {
    /// The files, in the order in which they were named.
    pub files: Vec<FileRead>,
    /// Lines of all files, without empty ones.
    pub lines: u64,
    /// Requests that were read.
    pub requests: u64,
    /// Lines that were understood and are no requests of clients, by the reason.
    pub skipped: std::collections::BTreeMap<String, u64>,
    /// Lines that could not be read.
    pub bad: u64,
    /// The first of these, at most ten.
    pub bad_lines: Vec<BadLine>,
    /// Requests that came in another order than the lines, and were put in order.
    pub reordered: u64,
    /// Requests that came so much earlier than the line says by its place that they were judged at
    /// a later time than their own: more than ten seconds.
    pub late: u64,
    /// When the first request came.
    pub first: Option<String>,
    /// When the last one came.
    pub last: Option<String>,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// How long it took to read and judge, in seconds.
    pub took_seconds: f64,
}

/// A file that was read.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FileRead {
    /// Its name.
    pub file: String,
    /// Its format, such as `combined`.
    pub format: String,
    /// Lines, without empty ones.
    pub lines: u64,
    /// Of these, lines that could not be read.
    pub bad: u64,
    /// The grain of its times, in seconds: 1, or less.
    pub grain_seconds: f64,
}

/// A line that could not be read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BadLine {
    /// The name of its file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u64,
    /// Why, and what to do.
    pub reason: String,
    /// The line, its first 200 characters.
    pub text: String,
}

/// What became of the requests.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Outcome {
    /// Requests that were judged.
    pub requests: u64,
    /// Those that no limit and nothing else refused.
    pub admitted: u64,
    /// Those that an enforced limit denied.
    pub denied: u64,
    /// `denied` of `requests`.
    pub denied_share: f64,
    /// Those that a limit in shadow mode, or a candidate, would have denied, and no enforced one.
    pub would_deny: u64,
    /// Those that the policy refuses for another reason, by that reason, such as `no route`.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// Those that the log says were denied by a limit then, or with 429.
    pub denied_in_log: u64,
    /// Callers: users, keys or addresses, as the policy names them.
    pub callers: u64,
    /// Callers that an enforced limit denied at least once.
    pub callers_denied: u64,
}

/// What a limit would have done to callers of a tier.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitAnswer {
    /// The limit's name.
    pub limit: String,
    /// The tier; `override` for those who have an override.
    pub tier: String,
    /// `enforce`, `shadow` or `candidate`.
    pub mode: String,
    /// Its algorithm, as policies name it.
    pub algorithm: String,
    /// The length of its window; none: it counts requests in flight.
    pub window_seconds: Option<u64>,
    /// What it allows in its window, or at once.
    pub allows: u32,
    /// Requests that it was asked about.
    pub requests: u64,
    /// Of these, requests that it denied, or would have.
    pub denied: u64,
    /// `denied` of `requests`.
    pub denied_share: f64,
    /// Callers, or other keys, that it counted.
    pub callers: u64,
    /// Of these, those that it denied at least once.
    pub callers_denied: u64,
    /// The longest time during which a caller was denied without a break, in seconds.
    pub longest_lockout_seconds: f64,
    /// Requests of its routes and tier that it could not be judged for, since the log does not say
    /// what it counts by.
    pub not_judged: u64,
}

/// A caller that would be denied.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WorstCaller {
    /// Kind and value: `user:42`.
    pub caller: String,
    /// Its tier.
    pub tier: String,
    /// The limit that denied it most.
    pub limit: String,
    /// Its requests.
    pub requests: u64,
    /// Of these, those that were denied, or would have been by limits that only count.
    pub denied: u64,
    /// `denied` of `requests`.
    pub denied_share: f64,
    /// When it was denied for the first time.
    pub first_denied: String,
    /// A command that explains the first denied request.
    pub explain: String,
}

/// How many callers and requests a limit would deny, were it another one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Curve {
    /// The limit's name.
    pub limit: String,
    /// The tier.
    pub tier: String,
    /// The length of its window, in seconds.
    pub window_seconds: u64,
    /// Whether the points are exact. Else they are those of fixed windows of the same length, which
    /// begin with a caller's first request: the nearest that can be told without another run.
    pub is_exact: bool,
    /// Whether callers of other tiers use some of the same counters: what they use is not in the
    /// points, which are too low for it.
    pub shares_counters: bool,
    /// What the limit allows now.
    pub present: u32,
    /// What is suggested: the 99.9th percentile of the callers' peaks, and no more than the most of
    /// a caller who is no outlier; rounded up to a number that people write.
    pub suggested: u32,
    /// What would be suggested if outliers counted: callers who used far more than all others.
    pub suggested_with_outliers: u32,
    /// The outliers, by the hash of their counter, with their peaks: those with the highest ones.
    #[serde(skip)]
    pub outliers: Vec<(u128, u32)>,
    /// How many outliers there are.
    pub outlier_callers: u64,
    /// How many of them had credentials that mostly did not pass.
    #[serde(skip)]
    pub refused_callers: u64,
    /// Why the number may be that of a few callers; none: it is of many.
    #[serde(skip)]
    pub doubt: Option<Doubt>,
    /// Callers that were counted.
    pub callers: u64,
    /// Requests that were counted.
    pub requests: u64,
    /// In ascending order of the limit; the last one denies nothing.
    pub points: Vec<CurvePoint>,
}

/// Why a suggested number may be that of a few callers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// Callers who used far more than all others, and are too many to be left out; 0: there are
    /// too few callers to tell.
    pub apart: u64,
    /// The counter of the one with the most requests, by its hash.
    pub busiest: u128,
    /// Its part of the requests.
    pub share: f64,
    /// What would be suggested with them.
    pub with: u32,
    /// What would be suggested without them; none: there are no others.
    pub without: Option<u32>,
}

/// What a limit would do, were it this one.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CurvePoint {
    /// What it would allow.
    pub allows: u32,
    /// Callers that it would deny at least once.
    pub callers_denied: u64,
    /// `callers_denied` of all that were counted.
    pub callers_share: f64,
    /// Requests that it would deny.
    pub requests_denied: u64,
    /// `requests_denied` of all that were counted.
    pub requests_share: f64,
}

/// Requests and denials over time.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Timeline {
    /// When the first bucket begins.
    pub begins: String,
    /// The length of each bucket, in seconds.
    pub bucket_seconds: u64,
    /// The buckets, at most 240, without a gap.
    pub buckets: Vec<Moment>,
}

/// A bucket of a timeline.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Moment {
    /// Requests that came in it.
    pub requests: u64,
    /// Of these, those that an enforced limit denied.
    pub denied: u64,
    /// Of these, those that a limit in shadow mode, or a candidate, would have denied.
    pub would_deny: u64,
}

/// In comparison with other policies, by caller.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Against {
    /// The other policies, as they were named.
    pub policies: String,
    /// Requests that the other ones deny. Here and below, limits in shadow mode are taken as if
    /// they were enforced, and candidates are left out.
    pub denied: u64,
    /// Requests that these deny.
    pub denied_by_these: u64,
    /// `denied` of all requests.
    pub denied_share: f64,
    /// Callers that are denied less by these policies than by the others.
    pub callers_better: u64,
    /// Callers that are denied more.
    pub callers_worse: u64,
    /// Callers for whom nothing changes.
    pub callers_same: u64,
    /// Those that gain most, at most ten.
    pub better: Vec<CallerChange>,
    /// Those that lose most, at most ten.
    pub worse: Vec<CallerChange>,
}

/// What changes for a caller.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CallerChange {
    /// Kind and value: `user:42`.
    pub caller: String,
    /// Its requests.
    pub requests: u64,
    /// Requests that these policies deny.
    pub denied: u64,
    /// Requests that the others deny.
    pub denied_against: u64,
}

/// What counters would have to be kept.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Need {
    /// The most counters in use at once.
    pub peak_keys: u64,
    /// Memory for these in the process, in bytes.
    pub memory_bytes: u64,
    /// Calls of a Redis: for each request that is charged, in its busiest second.
    pub peak_redis_calls_per_second: u64,
    /// The same on average.
    pub mean_redis_calls_per_second: f64,
}
