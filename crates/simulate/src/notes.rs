//! What has to be known before the numbers are read: a sentence each.

use tollgate_identity::CallerKey;
use tollgate_policy::{Cost, KeyPart, Limit, Policies};

use super::{FileRead, Outcome, Read, curve::share, translate::Lacks};

/// What policies judge by: nothing else has to be in a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Callers who are named by tokens or keys.
    callers: bool,
    /// Hosts.
    hosts: bool,
    /// Claims, headers, cookies or costs in headers.
    facts: bool,
    /// How long a request took.
    durations: bool,
}

impl Needs {
    pub(super) fn of(policies: &Policies) -> Needs {
        let limits = || policies.iter().flat_map(|policy| &policy.limits);
        let callers = || policies.iter().flat_map(|policy| &policy.identity.callers);
        let is_address = |key: &CallerKey| matches!(key, CallerKey::Address { .. });
        let by_host = |limit: &Limit| limit.per.parts.contains(&KeyPart::Host);
        let ends_late = |cost: &Cost| cost.source.is_some() && cost.header().is_none();
        let has_leases = |limit: &Limit| {
            limit.rates.iter().flatten().any(|allowance| allowance.quota.holds_leases())
        };
        let of_routes = policies.iter().flat_map(|policy| &policy.routes);
        let of_routes = of_routes.filter_map(|route| route.cost.as_ref());
        let costs: Vec<&Cost> = limits().map(|limit| &limit.cost).chain(of_routes).collect();
        Needs {
            callers: callers().any(|caller| !is_address(&caller.key)),
            hosts: policies.iter().any(|policy| !policy.hosts.is_empty()) || limits().any(by_host),
            durations: limits().any(has_leases) || costs.iter().any(|cost| ends_late(cost)),
            facts: policies.iter().any(|policy| !policy.facts.is_empty())
                || costs.iter().any(|cost| cost.header().is_some()),
        }
    }
}

/// The notes of a simulation.
pub(super) fn notes(read: &Read, lacks: &Lacks, needs: Needs, outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |count: u64| of_all(count, lacks.requests);
    if lacks.requests == 0 {
        return vec!["No request was read, so nothing is known.".to_owned()];
    }
    if needs.callers && lacks.caller > 0 {
        notes.push(format!(
            "{} of the requests have no caller in the log: limits for each user are not judged for \
             them where the route needs a token, and count them by their address elsewhere. If a \
             field of the log names the caller, say so: --caller user=FIELD.",
            of(lacks.caller)
        ));
    }
    if lacks.client > 0 {
        notes.push(format!(
            "{} of the requests have no address in the log: all of these count as one address.",
            of(lacks.client)
        ));
    }
    if needs.hosts && lacks.host > 0 {
        notes.push(format!(
            "{} of the requests have no host in the log: --host says which one they were for.",
            of(lacks.host)
        ));
    }
    if needs.facts && lacks.facts > 0 {
        notes.push(format!(
            "{} of the requests have no facts in the log: what limits count by besides caller and \
             address (claims, headers, cookies, costs) is not known for them. `access_log: {{ \
             format: json, facts: true }}` writes it from now on.",
            of(lacks.facts)
        ));
    }
    if needs.facts && lacks.foreign > 0 {
        notes.push(format!(
            "{} of the requests are in the log of another program, which has no claims, headers, \
             cookies or costs: limits that count by these are not judged for them, and each request \
             costs what the policy says.",
            of(lacks.foreign)
        ));
    }
    if needs.durations && lacks.duration > 0 {
        notes.push(format!(
            "{} of the requests have no duration in the log: limits of requests in flight, and of \
             what is reserved until a response has ended, count them as if they had ended at once.",
            of(lacks.duration)
        ));
    }
    for (reason, count) in &read.skipped {
        notes.push(format!("{} left out: {reason}.", lines(*count)));
    }
    if outcome.denied_in_log > 0 {
        notes.push(format!(
            "{} of the requests were denied by a limit then, or with 429. What their clients would have sent \
             otherwise is not known, nor what the upstream would have answered: 200 is assumed.",
            of(outcome.denied_in_log)
        ));
    }
    if outcome.denied > 0 {
        notes.push(
            "A client that is denied may try again, or go away. The log cannot show that: it has \
             what clients sent without these denials."
                .to_owned(),
        );
    }
    notes.extend(grain(&read.files));
    notes
}

fn grain(files: &[FileRead]) -> Option<String> {
    let coarse: Vec<&str> = files
        .iter()
        .filter(|file| file.grain_seconds >= 1.0)
        .map(|file| file.file.as_str())
        .collect();
    let first = coarse.first()?;
    let others = match coarse.len() {
        1 => String::new(),
        2 => " and 1 other file".to_owned(),
        count => format!(" and {} other files", count - 1),
    };
    Some(format!(
        "The times of {first}{others} are whole seconds: the requests of a second are judged as if \
         they had come at its beginning. Limits of a few seconds may be judged too strictly."
    ))
}

fn of_all(count: u64, all: u64) -> String {
    match count == all {
        true => "All".to_owned(),
        false => {
            let percent = share(count, all) * 100.0;
            format!("{count} ({percent:.1} %)")
        }
    }
}

fn lines(count: u64) -> String {
    match count {
        1 => "1 line is".to_owned(),
        count => format!("{count} lines are"),
    }
}
