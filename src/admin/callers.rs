//! The counters of one caller: `GET /callers/{name}` tells how they stand, and
//! `POST /callers/{name}/reset` resets them. The name is percent-encoded: `user%3A42`, `user:42`.

use std::{fmt, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use http_body_util::Full;
use serde::Deserialize;

use super::{Context, json_response, message};
use crate::callers::{CallerError, CallerQuery, ResetReport, look, reset};

/// What paths begin with.
const FOLDER: &str = "/callers/";

/// What the path of a reset ends with.
const RESET: &str = "/reset";

/// The longest reason.
const MAX_WHY_CHARS: usize = 500;

/// Who sends a request to the admin listener, as the audit lines name it.
#[derive(Clone, Debug, Default)]
pub(super) struct Asker {
    /// Where the connection comes from; none: that is not known.
    pub(super) peer: Option<SocketAddr>,
    /// The name of its token, if it has shown one.
    pub(super) token: Option<String>,
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => peer.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

/// What a path below `/callers/` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerPath<'p> {
    /// How the counters of the caller with this name, which is encoded, stand.
    Look(&'p str),
    /// To reset them.
    Reset(&'p str),
}

impl<'p> CallerPath<'p> {
    /// None: the path is not below `/callers/`, or has no name.
    pub(super) fn of(path: &'p str) -> Option<CallerPath<'p>> {
        let name = path.strip_prefix(FOLDER).filter(|name| !name.is_empty())?;
        match name.strip_suffix(RESET) {
            Some("") => None,
            Some(name) => Some(CallerPath::Reset(name)),
            None => Some(CallerPath::Look(name)),
        }
    }

    /// The name; none: its encoding is wrong.
    fn name(self) -> Option<String> {
        let (CallerPath::Look(name) | CallerPath::Reset(name)) = self;
        decoded(name)
    }
}

/// The body of a reset.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetOrder {
    policy: Option<String>,
    limit: Option<String>,
    why: String,
}

impl Context {
    /// How the counters of a caller stand.
    pub(super) async fn caller(&self, uri: &Uri) -> Response<Full<Bytes>> {
        let name = CallerPath::of(uri.path()).and_then(CallerPath::name);
        let Some(caller) = name else { return bad_name() };
        let mut query = CallerQuery { caller, ..CallerQuery::default() };
        let parameters = uri.query().unwrap_or_default();
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
        match tokio::task::spawn_blocking(move || look(&shared, &query)).await {
            Ok(Ok(report)) => json_response(StatusCode::OK, &report),
            Ok(Err(error)) => refused(&error),
            Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "the caller cannot be looked up"),
        }
    }

    /// Resets the counters of a caller, and logs who did it.
    pub(super) async fn reset_caller(
        &self,
        uri: &Uri,
        asker: Asker,
        order: &[u8],
    ) -> Response<Full<Bytes>> {
        let name = CallerPath::of(uri.path()).and_then(CallerPath::name);
        let Some(caller) = name else { return bad_name() };
        let order: ResetOrder = match serde_json::from_slice(order) {
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

/// The audit line of a reset. Lines of this file are never left out (`events/repeats.rs`).
fn log(asker: &Asker, query: &CallerQuery, why: &str, result: &Result<ResetReport, CallerError>) {
    let by = asker.to_string();
    let token = asker.token.as_deref().unwrap_or("none");
    match result {
        Ok(report) => {
            let limits = report.limits.join(", ");
            let caller = report.caller.as_str();
            tracing::info!(by, token, caller, limits, why, "counters of a caller were reset");
        }
        Err(error @ CallerError::NotReset(_)) => {
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
        CallerError::Name(_) | CallerError::NotAlone { .. } | CallerError::NoLimits(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        CallerError::Policy { .. } | CallerError::Limit { .. } => StatusCode::NOT_FOUND,
        CallerError::NotReset(_) => StatusCode::SERVICE_UNAVAILABLE,
        CallerError::System(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    message(status, &error.to_string())
}

/// The text that percent-encoding stands for. None: it is not valid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match first {
            b'%' => {
                let (digits, after) = after.split_at_checked(2)?;
                let digits = std::str::from_utf8(digits).ok()?;
                let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                (u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?, after)
            }
            byte => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_the_name_and_whether_it_is_to_be_reset() {
        for (path, expected) in [
            ("/callers/user:42", Some(CallerPath::Look("user:42"))),
            ("/callers/user%3A42/reset", Some(CallerPath::Reset("user%3A42"))),
            ("/callers/main/user:42/reset", Some(CallerPath::Reset("main/user:42"))),
            ("/callers/user:a%2Freset", Some(CallerPath::Look("user:a%2Freset"))),
            ("/callers/", None),
            ("/callers", None),
            ("/callers//reset", None),
            ("/status", None),
        ] {
            assert_eq!(CallerPath::of(path), expected, "{path}");
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
            assert_eq!(decoded(encoded).as_deref(), name, "{encoded}");
        }
    }
}
