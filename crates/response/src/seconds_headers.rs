//! Limit headers whose reset is in seconds from now: those of
//! draft-ietf-httpapi-ratelimit-headers-03, and as Envoy, Kong and APISIX write them.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::limit_headers::number;

/// How a limit stands.
#[derive(Clone, Copy, Debug)]
pub struct SecondsHeaders {
    /// Units that can be used.
    pub limit: u32,
    /// Units left.
    pub remaining: u32,
    /// Seconds until more is available.
    pub reset_seconds: u64,
}

/// A window of a limit.
#[derive(Clone, Copy, Debug)]
pub struct QuotaWindow {
    /// Units that can be used in it.
    pub limit: u32,
    /// Units left in it.
    pub remaining: u32,
    /// Its length; none: the limit is of concurrent requests.
    pub seconds: Option<u64>,
}

/// The names of the three fields.
#[derive(Clone, Copy, Debug)]
pub enum SecondsNames {
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`.
    Plain,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    Prefixed,
}

/// The shortest and longest window, in seconds, that Kong has a word for, and the fields for it:
/// months and years differ.
const KONG_WINDOWS: [(u64, u64, &str, &str); 6] = [
    (1, 1, "x-ratelimit-limit-second", "x-ratelimit-remaining-second"),
    (60, 60, "x-ratelimit-limit-minute", "x-ratelimit-remaining-minute"),
    (3600, 3600, "x-ratelimit-limit-hour", "x-ratelimit-remaining-hour"),
    (86_400, 86_400, "x-ratelimit-limit-day", "x-ratelimit-remaining-day"),
    (28 * 86_400, 31 * 86_400, "x-ratelimit-limit-month", "x-ratelimit-remaining-month"),
    (365 * 86_400, 366 * 86_400, "x-ratelimit-limit-year", "x-ratelimit-remaining-year"),
];

impl SecondsHeaders {
    /// Puts them on a response, from which the upstream's own were removed. `windows`: those that
    /// `Limit` has behind the number, as Envoy writes it; none: only the number.
    pub fn stamp(
        self,
        headers: &mut HeaderMap,
        names: SecondsNames,
        windows: impl Iterator<Item = QuotaWindow>,
    ) {
        let SecondsHeaders { limit, remaining, reset_seconds } = self;
        let whole = policies(limit.to_string(), windows);
        let limit = HeaderValue::from_maybe_shared(whole).unwrap_or_else(|_| number(limit));
        let [limit_name, remaining_name, reset_name] = names.fields();
        headers.append(HeaderName::from_static(limit_name), limit);
        headers.append(HeaderName::from_static(remaining_name), number(remaining));
        headers.append(HeaderName::from_static(reset_name), number(reset_seconds));
    }
}

/// A list with an item for each window: `100;w=60, 1000;w=3600`.
fn policies(list: String, windows: impl Iterator<Item = QuotaWindow>) -> String {
    windows.fold(list, |mut list, QuotaWindow { limit, seconds, .. }| {
        if let Some(seconds) = seconds {
            let separator = if list.is_empty() { "" } else { ", " };
            // Writing to a `String` never fails.
            let _ = write!(list, "{separator}{limit};w={}", seconds.max(1));
        }
        list
    })
}

impl QuotaWindow {
    /// Puts `RateLimit-Policy` with these windows on a response, if there are any.
    pub fn stamp_policies(headers: &mut HeaderMap, windows: impl Iterator<Item = QuotaWindow>) {
        let list = policies(String::new(), windows);
        if !list.is_empty()
            && let Ok(list) = HeaderValue::from_maybe_shared(list)
        {
            headers.append(HeaderName::from_static("ratelimit-policy"), list);
        }
    }

    /// Puts the two fields of this window on a response, as Kong has them. A length that Kong has
    /// no word for has none.
    pub fn stamp(self, headers: &mut HeaderMap) {
        let QuotaWindow { limit, remaining, seconds } = self;
        let is_it = |(from, to, ..): &&(u64, u64, &str, &str)| {
            seconds.is_some_and(|seconds| (*from..=*to).contains(&seconds))
        };
        if let Some((_, _, limit_name, remaining_name)) = KONG_WINDOWS.iter().find(is_it) {
            let limit_name = HeaderName::from_static(limit_name);
            // Of two limits with such a window, the one with less left.
            let before = headers.get(&limit_name).and_then(|_| headers.get(*remaining_name));
            let left = before.and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
            if left.is_none_or(|left| remaining < left) {
                headers.insert(limit_name, number(limit));
                headers.insert(HeaderName::from_static(remaining_name), number(remaining));
            }
        }
    }
}

impl SecondsNames {
    const fn fields(self) -> [&'static str; 3] {
        match self {
            SecondsNames::Plain => ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            SecondsNames::Prefixed => {
                ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
            }
        }
    }
}
