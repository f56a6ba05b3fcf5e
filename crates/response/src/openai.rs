//! Limit headers and error bodies as OpenAI has them, for its clients.
//!
//! What OpenAI documents in its guide to rate limits, and the type `Error` of its OpenAPI
//! description: two limits at once, one of requests and one of tokens, and how long it takes until
//! each is as it was at first, as a duration such as `6m0s`.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    counted::Counted, limit_headers::number, rejection::Rejection, seconds_headers::SecondsHeaders,
};

/// The body of an error.
#[derive(Debug, serde::Serialize)]
pub(super) struct OpenAiError {
    error: Details,
}

#[derive(Debug, serde::Serialize)]
struct Details {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'static str>,
    code: Option<&'static str>,
}

static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

impl Counted {
    const fn fields(self) -> [&'static str; 3] {
        match self {
            Counted::Requests => [
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
            ],
            Counted::Tokens => [
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
            ],
        }
    }

    /// Puts the fields of this kind on a response, from which the upstream's own were removed.
    pub fn stamp(self, headers: &mut HeaderMap, standing: SecondsHeaders) {
        let SecondsHeaders { limit, remaining, reset_seconds } = standing;
        let reset = HeaderValue::from_str(&duration(reset_seconds));
        let reset = reset.unwrap_or(HeaderValue::from_static("0s"));
        let [limit_name, remaining_name, reset_name] = self.fields();
        headers.append(HeaderName::from_static(limit_name), number(limit));
        headers.append(HeaderName::from_static(remaining_name), number(remaining));
        headers.append(HeaderName::from_static(reset_name), reset);
    }
}

/// Says `Retry-After` once more, in milliseconds: OpenAI's and Anthropic's clients read this first.
pub fn stamp_retry_after_ms(headers: &mut HeaderMap) {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    if let Some(seconds) = seconds.and_then(|digits| digits.parse::<u64>().ok()) {
        headers.insert(RETRY_AFTER_MS.clone(), number(seconds.saturating_mul(1000)));
    }
}

/// `1s`, `6m0s`, `1h0m0s`, as Go writes durations.
fn duration(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

impl OpenAiError {
    /// What a client is told of a request that is refused with this status.
    pub(super) fn of(rejection: &Rejection, status: StatusCode, message: String) -> OpenAiError {
        let (kind, code) = match rejection {
            Rejection::Primary(denial) | Rejection::Secondary(denial) => match denial.counted {
                Some(Counted::Tokens) => ("tokens", Some("rate_limit_exceeded")),
                Some(Counted::Requests) | None => ("requests", Some("rate_limit_exceeded")),
            },
            _ if status == StatusCode::UNAUTHORIZED => {
                ("invalid_request_error", Some("invalid_api_key"))
            }
            _ if status.is_server_error() => ("server_error", None),
            _ => ("invalid_request_error", None),
        };
        OpenAiError { error: Details { message, kind, param: None, code } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (seconds, expected) in [
            (0, "0s"),
            (1, "1s"),
            (60, "1m0s"),
            (360, "6m0s"),
            (3600, "1h0m0s"),
            (90_061, "25h1m1s"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }

    #[test]
    fn wait_is_told_in_milliseconds_too() {
        let mut headers = HeaderMap::new();
        stamp_retry_after_ms(&mut headers);
        assert!(headers.is_empty());
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("17"));
        stamp_retry_after_ms(&mut headers);
        assert_eq!(headers[&RETRY_AFTER_MS], "17000");
    }
}
