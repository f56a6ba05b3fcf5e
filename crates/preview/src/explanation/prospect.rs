//! What would happen to a request in the end.

use http::{HeaderMap, header, request::Parts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_gate::respond::Reply;
use tollgate_policy::Upstream;

use crate::draft::{Draft, DraftOutcome, DraftResult};

/// What would happen to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Prospect {
    /// It goes on to an upstream.
    Forward {
        /// The upstream's name.
        upstream: String,
        /// Its servers.
        server: String,
        /// What it is asked for, without a token.
        target: String,
        /// Headers that this proxy sets.
        sets: Vec<(String, String)>,
        /// Headers that do not go on.
        removes: Vec<String>,
    },
    /// It is answered here.
    Answer {
        /// The status.
        status: u16,
        /// Why, as the log says it.
        reason: String,
        /// The limit that denies it.
        denied_by: Option<String>,
        /// Seconds after which asking again makes sense.
        retry_after: Option<u64>,
    },
}

pub(super) fn of(draft: &Draft, result: &DraftResult<'_>) -> Prospect {
    match &result.outcome {
        DraftOutcome::Forwarded(upstream, head) => forward(draft, upstream, head, result),
        DraftOutcome::Answered(Reply::Refused(rejection)) => Prospect::Answer {
            status: rejection.status(result.state.responses()).as_u16(),
            reason: rejection.to_string(),
            denied_by: rejection.limit().map(str::to_owned),
            retry_after: rejection.retry_after(),
        },
        DraftOutcome::Answered(
            Reply::Made(response) | Reply::Forwarded(response) | Reply::Admitted(response),
        ) => Prospect::Answer {
            status: response.status().as_u16(),
            reason: match (result.state.policy, result.state.route) {
                (Some(_), Some(_)) => "a CORS preflight request".into(),
                (Some(_), None) => "a query for the caller's rate limit status".into(),
                (None, _) => "`OPTIONS *` is a request about this server".into(),
            },
            denied_by: None,
            retry_after: None,
        },
    }
}

fn forward(draft: &Draft, upstream: &Upstream, head: &Parts, result: &DraftResult<'_>) -> Prospect {
    let policy = result.state.policy;
    let payload = policy.and_then(|policy| policy.identity.forwarded.payload.as_ref());
    let before = &draft.head.headers;
    let after = &head.headers;
    let is_set = |name: &&http::HeaderName| !is_same(before, after, name);
    let value = |name: &http::HeaderName| match after.get(name) {
        _ if name == header::COOKIE || name == header::AUTHORIZATION => "…".to_owned(),
        // It holds claims that the policy does not read.
        _ if payload == Some(name) => "(all claims)".into(),
        _ if name == "x-request-id" => "(a new one)".into(),
        // The policy sets it, or has it from the environment: it may be a credential.
        Some(value) if value.is_sensitive() => "…".to_owned(),
        value => value.map(|it| String::from_utf8_lossy(it.as_bytes()).into()).unwrap_or_default(),
    };
    let servers: Vec<String> = upstream.servers.iter().map(ToString::to_string).collect();
    Prospect::Forward {
        upstream: upstream.name.to_string(),
        server: servers.join(" or "),
        target: head.uri.to_string(),
        sets: after.keys().filter(is_set).map(|name| (name.to_string(), value(name))).collect(),
        removes: before
            .keys()
            .filter(|name| !after.contains_key(*name))
            .map(ToString::to_string)
            .collect(),
    }
}

fn is_same(before: &HeaderMap, after: &HeaderMap, name: &http::HeaderName) -> bool {
    before.get_all(name).iter().eq(after.get_all(name).iter())
}
