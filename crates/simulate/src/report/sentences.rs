//! The few sentences that begin a report, the same in each form.

use super::{
    choice::Choice,
    safe, times,
    words::{self, count, duration, number, share},
};
use crate::{Against, Curve, Need, Outcome, Read, Report};

/// What was read, from when to when.
pub(super) fn read(read: &Read) -> String {
    let files = count(read.files.len() as u64, "file", "files");
    let lines = count(read.lines, "line", "lines");
    let requests = count(read.requests, "request", "requests");
    let mut text = format!("{files} with {lines}: {requests}");
    if let (Some(first), Some(last)) = (&read.first, &read.last) {
        let (first, last) = (times::instant(first), times::instant(last));
        text += &format!(" in {}, from {first} to {last}", duration(read.seconds));
    }
    text + "."
}

/// How long it took; none, if that says nothing.
pub(super) fn took(read: &Read) -> Option<String> {
    let rate = read.lines as f64 / read.took_seconds;
    let is_told = rate.is_finite() && read.lines > 0;
    is_told.then(|| {
        let took = duration(read.took_seconds);
        format!("Read and judged in {took}: {} lines a second.", words::decimal(rate))
    })
}

/// What has to be known before the numbers are read, a sentence each.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let faults = faults(&report.read);
    report.notes.iter().cloned().chain(faults).chain(not_judged(report)).collect()
}

/// What of the log is not as it should be, a sentence each.
fn faults(read: &Read) -> Vec<String> {
    let mut faults = Vec::new();
    if read.bad > 0 {
        let lines = count(read.bad, "line", "lines");
        let part = share(read.bad as f64 / read.lines as f64);
        faults.push(format!("{lines} ({part}) could not be read: not counted here."));
    }
    if read.reordered > 0 {
        let requests = count(read.reordered, "request was", "requests were");
        faults.push(format!("{requests} in another order than that of arrival, and put in order."));
    }
    if read.late > 0 {
        let requests = count(read.late, "request was", "requests were");
        faults.push(format!(
            "{requests} more than 10 s out of order, and judged at a later time than their own."
        ));
    }
    faults
}

/// What became of the requests: the sentence that everything else explains.
pub(super) fn verdict(outcome: &Outcome) -> String {
    if outcome.requests == 0 {
        return "No request was judged, so nothing can be said of these limits.".into();
    }
    let requests = count(outcome.requests, "request", "requests");
    if outcome.denied == 0 {
        return format!("These limits would deny none of {requests}.");
    }
    format!(
        "These limits would deny {} of {requests} ({}), and {} of {} ({}) at least once.",
        number(outcome.denied),
        share(outcome.denied_share),
        number(outcome.callers_denied),
        count(outcome.callers, "caller", "callers"),
        share(outcome.callers_denied as f64 / outcome.callers as f64),
    )
}

/// What else became of them, a sentence each.
pub(super) fn besides(outcome: &Outcome) -> Vec<String> {
    let mut sentences = Vec::new();
    if outcome.would_deny > 0 {
        let more = if outcome.denied > 0 { " more" } else { "" };
        sentences.push(format!(
            "Limits in shadow mode and candidates would deny {}{more} if they were enforced.",
            number(outcome.would_deny),
        ));
    }
    if !outcome.refused.is_empty() {
        let reason = |(reason, requests): (&String, &u64)| {
            format!("{} for {}", number(*requests), safe::name(reason))
        };
        let reasons: Vec<String> = outcome.refused.iter().map(reason).collect();
        sentences.push(format!("The policy refuses for other reasons: {}.", reasons.join(", ")));
    }
    if outcome.denied_in_log > 0 {
        let requests = count(outcome.denied_in_log, "request", "requests");
        sentences.push(format!(
            "{requests} were denied by a limit, or with 429, when the log was written."
        ));
    }
    sentences
}

/// What a suggestion is.
pub(super) const SUGGESTION: &str = "The suggestion is the lowest round number that at least \
    99.9 % of callers never exceed in a window.";

/// What a lock-out is.
pub(super) const LOCKOUT: &str =
    "Lock-out is the longest time during which a caller was denied without a break.";

/// What comes before commands.
pub(super) const EXPLAINED: &str = "The first denial of each, explained by:";

/// What is said where no limit is to be shown.
pub(super) const NO_LIMITS: &str = "No limit was asked about a request.";

/// What is said where there is nothing to choose.
pub(super) const NO_CURVES: &str =
    "No limit counted a request in a window, so there is nothing to suggest.";

/// How the points of a curve were found; none, if they are what would have happened.
pub(super) fn inexact(choice: &Choice<'_>) -> Option<&'static str> {
    let Curve { is_exact, shares_counters, .. } = choice.curve;
    match (is_exact, shares_counters) {
        (true, _) => None,
        (false, true) => Some(
            "Not exact, too low: callers of other tiers use the same counters, and are not in here.",
        ),
        (false, false) => Some(
            "Close, not exact: counted in fixed windows that begin with a caller's first request.",
        ),
    }
}

/// In comparison with other policies.
pub(super) fn against(own: &Against, outcome: &Outcome) -> String {
    format!(
        "The other policies would deny {} ({}); these deny {} ({}). Of the callers, {} are denied \
         less by these, {} more, and {} the same.",
        count(own.denied, "request", "requests"),
        share(own.denied_share),
        number(own.denied_by_these),
        share(own.denied_by_these as f64 / outcome.requests.max(1) as f64),
        number(own.callers_better),
        number(own.callers_worse),
        number(own.callers_same),
    )
}

/// What the store needs.
pub(super) fn need(need: &Need) -> String {
    format!(
        "At most {} in use at once: {} of memory in the process. With Redis: {} a second at most, \
         {} on average.",
        count(need.peak_keys, "counter", "counters"),
        words::bytes(need.memory_bytes),
        count(need.peak_redis_calls_per_second, "call", "calls"),
        words::decimal(need.mean_redis_calls_per_second),
    )
}

/// Limits of which it is said how many requests they could not be judged for.
const NOT_JUDGED: usize = 20;

/// Requests of limits that could not be judged, for limits that have some.
fn not_judged(report: &Report) -> Vec<String> {
    let limits = report.limits.iter().filter(|limit| limit.not_judged > 0);
    let more = limits.clone().count().saturating_sub(NOT_JUDGED);
    let more = (more > 0).then(|| {
        let limits = count(more as u64, "more limit", "more limits");
        format!("Not judged: {limits}: see the answers as JSON.")
    });
    limits
        .take(NOT_JUDGED)
        .map(|limit| {
            let all = limit.not_judged + limit.requests;
            let part = share(limit.not_judged as f64 / all as f64);
            let requests = count(limit.not_judged, "request", "requests");
            let name = safe::name(&format!("{}, tier {}", limit.limit, limit.tier));
            format!(
                "Not judged: {name}: {requests} ({part}), since the log does not say what it \
                 counts by."
            )
        })
        .chain(more)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn the_verdict_names_requests_and_callers() {
        assert_eq!(
            verdict(&example::report().outcome),
            "These limits would deny 12,345 of 1,234,567 requests (1 %), and 12 of 10,234 callers \
             (0.12 %) at least once."
        );
        assert_eq!(
            verdict(&Outcome::default()),
            "No request was judged, so nothing can be said of these limits."
        );
        let quiet = Outcome { requests: 1, ..Outcome::default() };
        assert_eq!(verdict(&quiet), "These limits would deny none of 1 request.");
    }

    #[test]
    fn nothing_is_said_of_what_did_not_happen() {
        assert!(besides(&Outcome::default()).is_empty());
        assert!(faults(&Read::default()).is_empty());
        assert_eq!(took(&Read::default()), None);
        assert_eq!(read(&Read::default()), "0 files with 0 lines: 0 requests.");
    }
}
