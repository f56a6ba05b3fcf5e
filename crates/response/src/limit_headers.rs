//! The `x-ratelimit-*` headers of one limit, and which limit headers browsers may read.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tollgate_limit::Standing;
use tollgate_policy::{Allowance, HeaderProfile, Limit};

static X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RATELIMIT_USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
static X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static X_RATELIMIT_RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");

/// The five `x-ratelimit-*` headers of one limit: all of them or none.
#[derive(Clone, Copy, Debug)]
pub struct LimitHeaders<'p> {
    /// The policy's limit, as it is written. None: another is in force.
    written_limit: Option<&'p HeaderValue>,
    standing: Standing,
    resource: &'p HeaderValue,
}

impl<'p> LimitHeaders<'p> {
    /// How `limit` stands. Where the effective limit is not the policy's, such as the share of a
    /// proxy in fallback mode, the headers have the effective one.
    pub fn new(limit: &'p Limit, allowance: &'p Allowance, standing: Standing) -> Self {
        let is_whole = standing.limit == allowance.quota.capacity();
        LimitHeaders {
            written_limit: is_whole.then_some(&allowance.limit),
            standing,
            resource: &limit.resource,
        }
    }

    /// Puts them on a response, from which the upstream's own were removed.
    pub fn stamp(self, headers: &mut HeaderMap) {
        headers.reserve(FIELDS_STAMPED);
        let LimitHeaders { written_limit, standing, resource } = self;
        let limit = written_limit.cloned().unwrap_or_else(|| number(standing.limit));
        let reset = standing.reported_reset().ceil_secs();
        headers.append(X_RATELIMIT_LIMIT.clone(), limit);
        headers.append(X_RATELIMIT_REMAINING.clone(), number(standing.remaining));
        headers.append(X_RATELIMIT_USED.clone(), number(standing.used));
        headers.append(X_RATELIMIT_RESET.clone(), number(reset));
        headers.append(X_RATELIMIT_RESOURCE.clone(), resource.clone());
    }
}

/// A number as a field's value, in one allocation; `HeaderValue::from` makes two.
pub(super) fn number(number: impl itoa::Integer) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    HeaderValue::from_str(digits.format(number)).unwrap_or(HeaderValue::from_static("0"))
}

/// Fields that a response gains, with a little room, so that the header map grows once.
const FIELDS_STAMPED: usize = 8;

/// Lets scripts of other origins read the limit headers where they may read the response.
pub fn expose(headers: &mut HeaderMap, profile: HeaderProfile) {
    if !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    let exposed = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS);
    let mut names: Vec<&[u8]> = exposed.iter().map(HeaderValue::as_bytes).collect();
    names.push(b"Retry-After");
    names.extend(profile.families().iter().map(|family| family.names().as_bytes()));
    names.push(b"X-Tollgate-Denied-By, X-Tollgate-Shadow, X-Request-Id");
    if let Ok(value) = HeaderValue::from_bytes(&names.join(&b", "[..])) {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, value);
    }
}
