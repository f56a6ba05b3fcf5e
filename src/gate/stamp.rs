//! Tells clients how their limits stand, in the headers of a response.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Response};

use super::{Passage, Shared, charges::Role, tally::Tally};
use crate::{
    limit::{DecidedBy, Hashing, Key, Quota, Retry},
    response::{Body, LimitHeaders, RateLimitFields, RateLimitItem, t},
};

static X_TOLLGATE_STORE: HeaderName = HeaderName::from_static("x-tollgate-store");
static X_TOLLGATE_SHADOW: HeaderName = HeaderName::from_static("x-tollgate-shadow");

/// Puts the limit headers that the policy asks for on a response that has none: an upstream's own
/// were taken out.
pub(super) fn stamp(response: &mut Response<Body>, passage: &Passage<'_>, shared: &Shared) {
    let Some(tally) = &passage.tally else { return };
    let responses = passage.responses();
    let headers = response.headers_mut();
    if responses.headers.shows_github()
        && let Some(told) = tally.told()
    {
        let (limit, allowance) = (told.asked.limit, told.asked.allowance);
        let fields = LimitHeaders::new(limit, allowance, told.standing());
        let fields = match (told.asked.role, told.standing().retry) {
            (Role::Primary, Retry::At(retry)) => fields.exhausted_until(retry),
            _ => fields,
        };
        fields.stamp(headers);
    }
    if responses.headers.shows_ietf()
        && let Some(fields) = rate_limit_fields(tally, shared)
    {
        fields.stamp(headers);
    }
    if responses.shadow_header
        && let Some(names) = tally.would_deny_names()
        && let Ok(names) = HeaderValue::from_str(&names)
    {
        headers.append(X_TOLLGATE_SHADOW.clone(), names);
    }
    if let Some(decider) = tally.fallback().filter(|_| shared.stores.reports_fallback()) {
        headers.append(X_TOLLGATE_STORE.clone(), fallback_value(decider));
    }
}

fn fallback_value(decider: DecidedBy) -> HeaderValue {
    HeaderValue::from_static(match decider {
        DecidedBy::Nobody => "open",
        _ => "local",
    })
}

fn rate_limit_fields(tally: &Tally<'_>, shared: &Shared) -> Option<RateLimitFields> {
    // The fields tell spans of time, which count from the response.
    let (hasher, now) = (&shared.identifier.hasher, shared.clock.now());
    let retry_after = tally.retry_after(now, Duration::ZERO);
    let items = tally.enforced().map(|item| {
        let (allowance, standing) = (item.asked.allowance, item.standing());
        RateLimitItem {
            name: &allowance.name,
            limit: standing.limit,
            window_secs: allowance.window_secs,
            partition: partition(item.charge.key, hasher),
            remaining: standing.remaining,
            t: match item.charge.quota {
                Quota::Concurrency(_) => None,
                _ => Some(t(standing, tally.store_time(now), retry_after)),
            },
        }
    });
    RateLimitFields::new(items)
}

/// A name for a counter that says nothing about whose it is, nor where the store keeps it: whoever
/// knew that could choose identities that crowd each other.
fn partition(key: Key, hasher: &Hashing) -> [u8; 8] {
    let hash = hasher.hash([(b'k', key.entry.to_le_bytes().as_slice())]);
    (hash as u64).to_be_bytes()
}
