//! Reports to clients how their limits stand, in the headers of a response.

use std::iter;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_limit::{DecidedBy, Hashing, Key, Retry, Standing};
use tollgate_policy::HeaderFamily;
use tollgate_response::{
    Counted, LimitHeaders, QuotaWindow, RateLimitFields, RateLimitItem, SecondsHeaders,
    SecondsNames, reset_seconds, stamp_retry_after_ms,
};

use super::{
    Shared,
    charge_plan::{ChargeRole, PlannedLimit},
    request_state::RequestState,
    tally::Tally,
};

static X_TOLLGATE_STORE: HeaderName = HeaderName::from_static("x-tollgate-store");
static X_TOLLGATE_SHADOW: HeaderName = HeaderName::from_static("x-tollgate-shadow");

/// Puts the limit headers of the policy's profile among those of a response, from which the
/// upstream's own were removed.
pub(super) fn stamp(headers: &mut HeaderMap, state: &RequestState<'_>, shared: &Shared) {
    let Some(tally) = &state.tally else { return };
    let responses = state.responses();
    for family in responses.headers.families() {
        stamp_family(headers, *family, tally, shared);
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

/// Puts the limit headers of a family among those of a response, from which the upstream's own were
/// removed.
pub fn stamp_family(
    headers: &mut HeaderMap,
    family: HeaderFamily,
    tally: &Tally<'_>,
    shared: &Shared,
) {
    match family {
        HeaderFamily::Github => {
            if let Some(fields) = limit_headers(tally) {
                fields.stamp(headers);
            }
        }
        HeaderFamily::Ietf => {
            if let Some(fields) = rate_limit_fields(tally, shared) {
                fields.stamp(headers);
            }
        }
        HeaderFamily::Draft03 => {
            if let Some(fields) = seconds_headers(tally, shared) {
                fields.stamp(headers, SecondsNames::Plain, iter::empty());
                QuotaWindow::stamp_policies(headers, windows(tally));
            }
        }
        HeaderFamily::Envoy => {
            if let Some(fields) = seconds_headers(tally, shared) {
                fields.stamp(headers, SecondsNames::Prefixed, windows(tally));
            }
        }
        HeaderFamily::Kong => {
            if let Some(fields) = seconds_headers(tally, shared) {
                fields.stamp(headers, SecondsNames::Plain, iter::empty());
                windows(tally).for_each(|window| window.stamp(headers));
            }
        }
        HeaderFamily::OpenAi => {
            for kind in Counted::ALL {
                if let Some(fields) = of_kind(kind, tally, shared) {
                    kind.stamp(headers, fields);
                }
            }
            stamp_retry_after_ms(headers);
        }
        HeaderFamily::Apisix => {
            if let Some(fields) = seconds_headers(tally, shared) {
                fields.stamp(headers, SecondsNames::Prefixed, iter::empty());
            }
        }
    }
}

fn fallback_value(decider: DecidedBy) -> HeaderValue {
    HeaderValue::from_static(match decider {
        DecidedBy::NoStore => "open",
        _ => "local",
    })
}

fn limit_headers<'p>(tally: &Tally<'p>) -> Option<LimitHeaders<'p>> {
    let (planned, standing) = reported(tally)?;
    Some(LimitHeaders::new(planned.limit, planned.allowance, standing))
}

/// The limit that headers about one limit have, and how they show it.
fn reported<'t, 'p>(tally: &'t Tally<'p>) -> Option<(&'t PlannedLimit<'p>, Standing)> {
    let reported = tally.reported()?;
    let planned = reported.planned;
    let mut standing = *reported.standing();
    if let (ChargeRole::Primary, Retry::At(retry)) = (planned.role, standing.retry) {
        // For a denial that waiting helps against nothing remains, and the reset is when a retry
        // makes sense. Clients recognise such a denial by that alone, and wait for the reset.
        standing = Standing { remaining: 0, next: retry, ..standing };
    }
    Some((planned, standing))
}

/// Of the limit that denied, or else of the window with the least left, as Envoy, Kong and APISIX
/// choose it.
fn seconds_headers(tally: &Tally<'_>, shared: &Shared) -> Option<SecondsHeaders> {
    let tightest = tightest(tally, |_| true);
    let standing = match (tally.denied_by(), tightest) {
        (None, Some(tightest)) => tightest,
        _ => reported(tally)?.1,
    };
    Some(in_seconds(&standing, tally, shared))
}

/// Of the window with the least left of the limits that count this.
fn of_kind(kind: Counted, tally: &Tally<'_>, shared: &Shared) -> Option<SecondsHeaders> {
    let standing = tightest(tally, |planned| planned.counted() == Some(kind))?;
    Some(in_seconds(&standing, tally, shared))
}

/// The window with the least left of the enforced limits of which this holds.
fn tightest(tally: &Tally<'_>, is_meant: impl Fn(&PlannedLimit<'_>) -> bool) -> Option<Standing> {
    let windows = tally.enforced().filter(|own| own.planned.allowance.window_secs.is_some());
    windows
        .filter(|own| is_meant(own.planned))
        .map(|own| *own.standing())
        .min_by_key(|standing| (standing.remaining, std::cmp::Reverse(standing.reported_reset())))
}

fn in_seconds(standing: &Standing, tally: &Tally<'_>, shared: &Shared) -> SecondsHeaders {
    // A duration begins with the response.
    let reset_seconds = reset_seconds(standing, tally.store_time(shared.clock.now()));
    let Standing { limit, remaining, .. } = *standing;
    SecondsHeaders { limit, remaining, reset_seconds }
}

/// The windows of the enforced limits.
fn windows(tally: &Tally<'_>) -> impl Iterator<Item = QuotaWindow> {
    tally.enforced().map(|own| {
        let Standing { limit, remaining, .. } = *own.standing();
        QuotaWindow { limit, remaining, seconds: own.planned.allowance.window_secs }
    })
}

/// The `RateLimit` fields of the enforced limits; none: there are no such limits.
pub fn rate_limit_fields(tally: &Tally<'_>, shared: &Shared) -> Option<RateLimitFields> {
    // The fields have durations, which begin with the response.
    let now = tally.store_time(shared.clock.now());
    let hasher = &shared.identifier.hasher;
    let items = tally.enforced().map(|own| {
        let allowance = own.planned.allowance;
        let standing = own.standing();
        RateLimitItem {
            name: &allowance.name,
            limit: standing.limit,
            window_secs: allowance.window_secs,
            partition: partition(own.charge.key, hasher),
            remaining: standing.remaining,
            // When a request ends, and so a lease, cannot be known.
            reset_seconds: (!own.charge.quota.holds_leases()).then(|| reset_seconds(standing, now)),
        }
    });
    RateLimitFields::new(items)
}

/// A name for a counter that reveals neither its owner nor where the store keeps it: a client that
/// knew the latter could choose identities that crowd each other.
fn partition(key: Key, hasher: &Hashing) -> [u8; 8] {
    let hash = hasher.hash([(b'k', key.entry.to_le_bytes().as_slice())]);
    (hash as u64).to_be_bytes()
}
