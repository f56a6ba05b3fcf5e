//! What is good to know about a policy in which nothing is wrong: what a limit does by default that
//! depends on what tokens have, and what servers may read otherwise than it is written.

use tollgate_limit::Quota;
use tollgate_yaml::{Document, Span};

use crate::{KeyPart, Limit, MemberReserve, Period, Policy, Reserve, file::RawPolicy};

/// A limit of a sliding window below which one request more or less is a tenth or more of it.
const ENOUGH_TO_ESTIMATE: u32 = 10;

/// What is good to know about one place of a policy.
struct Note {
    place: Span,
    text: String,
}

/// A line for each of these things, with its place if it has one.
pub(super) fn notes(raw: &RawPolicy, policy: &Policy, document: &Document) -> Vec<String> {
    let placed =
        |Note { place, text }: Note| format!("{}: {text}", document.problem(place, "", "").place());
    let mut notes: Vec<String> = unsaid_claims(raw, policy).into_iter().map(placed).collect();
    notes.extend(few_in_sliding_windows(raw, policy).map(placed));
    notes.extend(capped_reserves(raw, policy).map(placed));
    notes.extend(unknown_servers(policy));
    notes.extend(routes_before_earlier_ones(raw, policy).into_iter().map(placed));
    notes
}

/// A note for each limit that counts by claims and does not say how requests without them are
/// treated.
///
/// This is no warning: that the limit does not apply to them is often what is meant, and
/// `on_missing: skip` says so.
fn unsaid_claims(raw: &RawPolicy, policy: &Policy) -> Vec<Note> {
    let limits = policy.limits.iter().zip(raw.limits.iter());
    let unsaid = limits.filter(|(_, (_, raw))| raw.on_missing.is_none());
    let text = |name: &str, claims: String| {
        format!(
            "limit {name} does not count tokens without {claims}, or with an object, a list of \
             several or nothing there; `on_missing: deny` refuses them, `on_missing: skip` leaves \
             it at that"
        )
    };
    unsaid
        .filter_map(|(limit, (_, raw))| {
            let claims = limit.per.parts.iter().filter(|part| matches!(part, KeyPart::Claim(_)));
            let claims: Vec<String> = claims.map(ToString::to_string).collect();
            let text = (!claims.is_empty()).then(|| text(&limit.name, claims.join(" and ")))?;
            Some(Note { place: raw.per.span, text })
        })
        .collect()
}

/// A note for each limit that is too small for the estimate of a sliding window.
fn few_in_sliding_windows(raw: &RawPolicy, policy: &Policy) -> impl Iterator<Item = Note> {
    policy.limits.iter().zip(raw.limits.iter()).filter_map(|(limit, (name, _))| {
        Some(Note { place: name.span, text: few_in_a_sliding_window(limit)? })
    })
}

/// A note for each limit that a request may exceed because no more than `at_most` is reserved for
/// it.
fn capped_reserves(raw: &RawPolicy, policy: &Policy) -> impl Iterator<Item = Note> {
    policy.limits.iter().zip(raw.limits.iter()).filter_map(|(limit, (name, _))| {
        let Some(Reserve::Members(MemberReserve { at_most: Some(most), .. })) =
            limit.cost.reserve.as_deref()
        else {
            return None;
        };
        let text = format!(
            "limit {} may be exceeded by requests that ask for more than {most} units: no more is \
             reserved for one (`at_most`), and the rest is charged when it has ended",
            limit.name
        );
        Some(Note { place: name.span, text })
    })
}

fn few_in_a_sliding_window(limit: &Limit) -> Option<String> {
    let overrides = limit.overrides.0.iter().map(|own| &own.allowances);
    let mut all = limit.rates.iter().chain(&limit.candidate).chain(overrides).flatten();
    let few = all.find_map(|allowance| match &allowance.quota {
        Quota::SlidingWindow(few) if (1..ENOUGH_TO_ESTIMATE).contains(&few.limit) => Some(few),
        _ => None,
    })?;
    Some(format!(
        "limit {} denies some callers that stay below {}/{}: a sliding window estimates, and of so \
         few, one too many matters; `algorithm: sliding_log` counts exactly",
        limit.name,
        few.limit,
        Period::Length(few.window)
    ))
}

/// One line for all upstreams of which nobody says what serves them.
fn unknown_servers(policy: &Policy) -> Option<String> {
    let unknown = policy.upstreams.iter().filter(|upstream| upstream.paths.is_none());
    let names: Vec<&str> = unknown.map(|upstream| &*upstream.name).collect();
    let upstreams = match names.as_slice() {
        [] => return None,
        [name] => format!("upstream {name}"),
        [others @ .., last] => format!("upstreams {} and {last}", others.join(", ")),
    };
    Some(format!(
        "nothing says what serves {upstreams}: routes take paths as they are written, and with \
         `paths: express`, say, what that framework takes for them (docs/frameworks.md)"
    ))
}

/// A note for each route that goes before an earlier one whose servers may take its paths for that
/// one's.
fn routes_before_earlier_ones(raw: &RawPolicy, policy: &Policy) -> Vec<Note> {
    let note = |(earlier, later): (usize, usize)| {
        let place = raw.routes.value.get(later)?.value.matcher.path.span;
        let [earlier, later] = [policy.routes.get(earlier)?, policy.routes.get(later)?];
        let upstream = policy.upstreams.get(earlier.upstream)?;
        let text = format!(
            "route {} takes its own paths before route {}, which comes first: upstream {} may read \
             them as paths of that one, and a route that spells them out is closer",
            later.name, earlier.name, upstream.name
        );
        Some(Note { place, text })
    };
    policy.router.preceded().into_iter().filter_map(note).collect()
}
