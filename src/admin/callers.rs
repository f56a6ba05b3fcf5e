//! The counters of one caller: `GET /callers/{name}` tells how they stand, and
//! `POST /callers/{name}/reset` resets them. The name is percent-encoded: `user%3A42`, `user:42`.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_settings::Permission;
use tollgate_wire::target::percent_decoded;

use super::{Context, admin_request::AdminRequest, json_response, message};
use crate::callers::{CallerError, CallerQuery, ResetReport, read, reset};

/// What paths begin with.
const FOLDER: &str = "/callers/";

/// What the path of a reset ends with.
const RESET: &str = "/reset";

/// The longest reason.
const MAX_WHY_CHARS: usize = 500;

/// Who asked for a reset, as the audit line names it.
struct Asker {
    peer: IpAddr,
    /// What its token allows; none: no token was needed.
    token: Option<Permission>,
}

/// A reset that is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetOrder {
    /// Only the limits of this policy.
    policy: Option<String>,
    /// Only this limit.
    limit: Option<String>,
    /// The reason, for the log: one line.
    #[schemars(length(min = 1, max = 500))]
    why: String,
}

/// The name in a path, which is percent-encoded there. None: its encoding is wrong.
fn caller_in(path: &str) -> Option<String> {
    let name = path.strip_prefix(FOLDER)?;
    percent_decoded(name.strip_suffix(RESET).unwrap_or(name))
}

impl Context {
    /// How the counters of a caller stand.
    pub(super) async fn caller(&self, asked: &AdminRequest) -> Response<Full<Bytes>> {
        let Some(caller) = caller_in(asked.uri.path()) else { return bad_name() };
        let mut query = CallerQuery { caller, ..CallerQuery::default() };
        let parameters = asked.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
            match &*name {
                "limit" => query.limit = Some(value.into_owned()),
                "policy" => query.policy = Some(value.into_owned()),
                _ => {
                    let text = "the only parameters are `limit` and `policy`";
                    return message(StatusCode::BAD_REQUEST, text);
                }
            }
        }
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || read(&shared, &query)).await {
            Ok(Ok(report)) => json_response(StatusCode::OK, &report),
            Ok(Err(error)) => refused(&error),
            Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "the caller cannot be looked up"),
        }
    }

    /// Resets the counters of a caller, and logs who did it.
    pub(super) async fn reset_caller(&self, asked: &AdminRequest) -> Response<Full<Bytes>> {
        let Some(caller) = caller_in(asked.uri.path()) else { return bad_name() };
        let asker = Asker { peer: asked.peer, token: asked.token };
        let order: ResetOrder = match serde_json::from_slice(&asked.body) {
            Ok(order) => order,
            Err(error) => {
                let text = format!(
                    "send JSON such as {{\"limit\": \"core\", \"why\": \"ticket 7\"}}: the body is \
                     not valid at column {}; `limit` and `policy` may be left out",
                    error.column()
                );
                return message(StatusCode::BAD_REQUEST, &text);
            }
        };
        let ResetOrder { policy, limit, why } = order;
        let why = why.trim().to_owned();
        let is_text = !why.is_empty() && why.chars().count() <= MAX_WHY_CHARS;
        if !is_text || why.chars().any(char::is_control) {
            let text =
                format!("`why` must say why, in one line of at most {MAX_WHY_CHARS} characters");
            return message(StatusCode::BAD_REQUEST, &text);
        }
        let query = CallerQuery { caller, policy, limit };
        let shared = Arc::clone(&self.shared);
        // It is logged on that thread, so that it is whatever becomes of this connection.
        let resetting = tokio::task::spawn_blocking(move || {
            let result = reset(&shared, &query);
            log(&asker, &query, &why, &result);
            result
        });
        match resetting.await {
            Ok(Ok(report)) => json_response(StatusCode::OK, &report),
            Ok(Err(error)) => refused(&error),
            Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "the caller cannot be reset"),
        }
    }
}

/// The audit line of a reset. Lines of this file are never left out
/// (`crates/observe/src/events/repeats.rs`).
fn log(asker: &Asker, query: &CallerQuery, why: &str, result: &Result<ResetReport, CallerError>) {
    let by = asker.peer.to_string();
    let token = match asker.token {
        Some(Permission::Read) => "read",
        Some(Permission::Write) => "write",
        None => "none",
    };
    match result {
        Ok(report) => {
            let limits = report.limits.join(", ");
            let caller = report.caller.as_str();
            tracing::info!(by, token, caller, limits, why, "counters of a caller were reset");
        }
        Err(error @ (CallerError::NotReset(_) | CallerError::NotMarked(_))) => {
            let caller = query.caller.as_str();
            let limits = query.limit.as_deref().unwrap_or("all");
            tracing::warn!(%error, by, token, caller, limits, why, "a reset failed");
        }
        // Nothing was done.
        Err(_) => {}
    }
}

fn bad_name() -> Response<Full<Bytes>> {
    message(StatusCode::BAD_REQUEST, "write the caller percent-encoded, as in /callers/user%3A42")
}

fn refused(error: &CallerError) -> Response<Full<Bytes>> {
    let status = match error {
        CallerError::Name(_)
        | CallerError::Policies(_)
        | CallerError::SeveralCallers { .. }
        | CallerError::Kind { .. }
        | CallerError::NotAlone { .. }
        | CallerError::NoLimits(_) => StatusCode::UNPROCESSABLE_ENTITY,
        CallerError::Policy { .. } | CallerError::Limit { .. } => StatusCode::NOT_FOUND,
        CallerError::NotReset(_) | CallerError::NotMarked(_) => StatusCode::SERVICE_UNAVAILABLE,
        CallerError::System(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    message(status, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_the_name() {
        for (path, expected) in [
            ("/callers/user:42", Some("user:42")),
            ("/callers/user%3A42/reset", Some("user:42")),
            ("/callers/main%2Fuser:42/reset", Some("main/user:42")),
            ("/callers/user:a%2Freset", Some("user:a/reset")),
            ("/callers/user:%2", None),
        ] {
            assert_eq!(caller_in(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn names_are_decoded_once() {
        for (encoded, name) in [
            ("user%3A42", Some("user:42")),
            ("user:a+b", Some("user:a+b")),
            ("user:%2525", Some("user:%25")),
            ("user:%C3%A9", Some("user:é")),
            ("user:%C3", None),
            ("user:%+1", None),
            ("user:%2", None),
        ] {
            assert_eq!(percent_decoded(encoded).as_deref(), name, "{encoded}");
        }
    }
}
