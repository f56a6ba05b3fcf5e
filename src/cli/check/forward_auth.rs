//! What other proxies that ask about requests (forward-auth, Envoy) do not get of a policy.

use http::StatusCode;
use tollgate_identity::Auth;
use tollgate_policy::{HeaderEdits, Limit, Policy, Preflight, Route};
use tollgate_settings::AskProtocol;

/// Lines for each route of which a proxy that asks by one of these protocols gets only a part: that
/// proxy forwards the request itself, so it may change it otherwise, and its response is never seen
/// here.
pub(super) fn partly_served(policy: &Policy, asked_by: &[AskProtocol]) -> Vec<String> {
    let of_route = |route| {
        let unseen = after_forwarding(policy, route);
        let unchanged = before_forwarding(policy, route, asked_by);
        [
            line(route, "does not get all of it, as responses are not seen", &unseen),
            line(route, "forwards its requests by rules of its own", &unchanged),
        ]
    };
    let keeps = policy.keeps_encoded_slashes() && !asked_by.is_empty();
    let kept = keeps.then(|| ENCODED_SLASH.to_owned());
    kept.into_iter().chain(policy.routes.iter().flat_map(of_route).flatten()).collect()
}

const ENCODED_SLASH: &str = "a proxy that asks gets leave to forward `%2F` (`encoded_slash: keep`): \
                             it must take it for a part of a segment, too";

/// None: there is nothing to say.
fn line(route: &Route, what: &str, parts: &[String]) -> Option<String> {
    let about = format!("a proxy that asks about {} {what}: {}", route.name, parts.join("; "));
    (!parts.is_empty()).then_some(about)
}

/// What needs the response.
fn after_forwarding(policy: &Policy, route: &Route) -> Vec<String> {
    let limits = route.limits.iter().filter_map(|position| policy.limits.get(*position));
    let edits = changes(&route.response_headers).then(|| "`response_headers` change none".into());
    limits.flat_map(|limit| unserved(limit, route)).chain(edits).collect()
}

/// What needs the response, of one limit.
fn unserved(limit: &Limit, route: &Route) -> Vec<String> {
    let refunds = limit.refund.everybody.and(limit.refund.authenticated);
    let cost = route.cost.as_ref().unwrap_or(&limit.cost);
    let holds_leases = limit.rates.iter().flatten().any(|allowance| allowance.quota.holds_leases());
    let parts = [
        (limit.count_when.is_some(), "counts nothing (`count_when`)"),
        (refunds.names_others(StatusCode::NOT_MODIFIED), "gives nothing back (`refund`)"),
        (cost.source.is_some(), "keeps the cost that it reserves (`cost`)"),
        (holds_leases, "does not hold requests in flight (`concurrent`)"),
    ];
    let needed = parts.into_iter().filter(|(is_needed, _)| *is_needed);
    needed.map(|(_, what)| format!("limit {} {what}", limit.name)).collect()
}

/// What is done to requests that are forwarded here.
fn before_forwarding(policy: &Policy, route: &Route, asked_by: &[AskProtocol]) -> Vec<String> {
    let is_by_fields = asked_by.contains(&AskProtocol::Http);
    let is_answered = |preflight: &Preflight| matches!(preflight, Preflight::Answer { .. });
    let answers = route.cors.as_ref().is_some_and(|cors| is_answered(&cors.preflight));
    let needs_certificate =
        matches!(route.auth, Auth::Required(_)) && policy.identity.issuer_id(0).is_none();
    let is_usual = matches!(route.upgrades.as_slice(), [only] if **only == *"websocket");
    let max_body = match is_by_fields {
        true => "`max_body` bounds no body",
        false => "`max_body` bounds only bodies whose length is told",
    };
    let parts = [
        (needs_certificate, "all are 401, as certificates of its clients are not told (`auth`)"),
        (answers, "preflights are forwarded, and charged to their address (`preflight: answer`)"),
        (route.max_body.is_some(), max_body),
        (!is_usual, "`upgrades` keep none from switching"),
        (route.rewrite.strip.is_some(), "`strip_prefix` takes nothing off"),
        (route.rewrite.add.is_some(), "`add_prefix` puts nothing in front"),
        // Envoy is told to change them.
        (is_by_fields && changes(&route.request_headers), "`request_headers` change none"),
    ];
    let needed = parts.into_iter().filter(|(is_needed, _)| *is_needed);
    needed.map(|(_, what)| what.to_owned()).collect()
}

fn changes(edits: &HeaderEdits) -> bool {
    *edits != HeaderEdits::default()
}
