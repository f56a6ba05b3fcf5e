//! `rateLimit` and `inFlightReq` as limits.

use std::time::Duration;

use super::source::{Around, Key, source};
use crate::{
    flow::{Flow, window},
    report::Report,
    section::Section,
};

/// The largest number of a rate, and of requests in flight.
const MAX_COUNT: i64 = (1 << 31) - 1;
const MAX_CONCURRENT: i64 = 10_000;
const MAX_PERIOD: Duration = Duration::from_secs(366 * 86_400);

/// A limit of a middleware.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// The middleware.
    pub(super) name: String,
    pub(super) flow: Flow,
    pub(super) key: Key,
    /// Whether all routers with the middleware have one counter.
    pub(super) is_shared: bool,
    /// How many may come at once, and how long one more takes. None: requests in flight.
    pub(super) burst: Option<(u64, Duration)>,
}

/// A rate as it is written, with what Traefik takes for what is not.
#[derive(Clone, Copy)]
struct Rate {
    average: i64,
    period: Duration,
    burst: i64,
}

impl Rate {
    fn of(section: Section<'_>) -> Result<Self, String> {
        let average = section.number("average")?.unwrap_or(0);
        let burst = section.number("burst")?.unwrap_or(0).max(1);
        let period = section.duration("period")?.unwrap_or(Some(Duration::ZERO));
        let period = period.ok_or("`period` is negative, so Traefik serves none of its routers")?;
        let period = if period.is_zero() { Duration::from_secs(1) } else { period };
        Ok(Rate { average, period, burst })
    }
}

/// The limit of a `rateLimit`; none if it limits nothing. The error says why nothing passes.
pub(super) fn rate_limit(
    name: &str,
    section: Section<'_>,
    around: &Around<'_>,
    report: &mut Report,
) -> Result<Option<Limit>, String> {
    section.knows("average period burst sourceCriterion redis")?;
    let written = Rate::of(section)?;
    let Rate { average, period, burst } = written;
    let is_shared = section.node("redis").is_some();
    let there =
        format!("rateLimit {name}: average {average}, period {}, burst {burst}", window(period));
    let place = section.place();
    if average <= 0 {
        if is_shared {
            return Err("`average` is 0 with redis: Traefik denies everything, though its \
                        documentation says that nothing is limited"
                .to_owned());
        }
        report.same(place, there, "no limit: an average of 0 limits nothing");
        return Ok(None);
    }
    let is_written = period.subsec_nanos() % 1_000_000 == 0 && period <= MAX_PERIOD;
    if average > MAX_COUNT || burst > MAX_COUNT || !is_written {
        return Err("a rate has at most 2147483647 requests, in whole milliseconds up to 366 days"
            .to_owned());
    }
    let counted = source(section, around, Key::Address, report)?;
    let rate = format!("{average}/{}", window(period));
    let flow = counted
        .flow()
        .with("rate", rate.as_str())
        .with("algorithm", "gcra")
        .with("burst", burst as u64)
        .with_some("on_store_error", is_shared.then_some("closed"));
    let interval = Duration::from_nanos(period.as_nanos() as u64 / average as u64);
    let counter = match is_shared {
        true => "one limit for all its routers, as with redis",
        false => "one limit for each of its routers",
    };
    report.same(&place, there, format!("rate: {rate}, burst: {burst}: {counter}"));
    tell_of_time(name, section, written, report);
    if is_shared {
        tell_of_redis(section, report);
    }
    let burst = Some((burst as u64, interval));
    Ok(Some(Limit { name: name.to_owned(), flow, key: counted.key, is_shared, burst }))
}

/// The limit of an `inFlightReq`. The error says why nothing passes.
pub(super) fn in_flight(
    name: &str,
    section: Section<'_>,
    around: &Around<'_>,
    report: &mut Report,
) -> Result<Option<Limit>, String> {
    section.knows("amount sourceCriterion")?;
    let amount = section.number("amount")?.unwrap_or(0);
    if amount <= 0 {
        return Err("`amount` is 0: Traefik denies everything".to_owned());
    }
    let counted = source(section, around, Key::Host, report)?;
    let there = format!("inFlightReq {name}: amount {amount}");
    if amount > MAX_CONCURRENT {
        report.nearly(
            section.place(),
            there.clone(),
            format!("concurrent: {MAX_CONCURRENT}, the most that there is: stricter"),
        );
    }
    let amount = amount.min(MAX_CONCURRENT) as u64;
    report.same(
        section.place(),
        there.clone(),
        format!("concurrent: {amount}, for each of its routers"),
    );
    report.nearly(
        section.place(),
        there,
        "a client that leaves holds its slot until the server has answered, there until it leaves: \
         stricter; a denial has Retry-After: 1",
    );
    let flow = counted.flow().with("concurrent", amount);
    Ok(Some(Limit { name: name.to_owned(), flow, key: counted.key, is_shared: false, burst: None }))
}

/// What differs in time: the wait of a request, and what is forgotten.
fn tell_of_time(
    name: &str,
    section: Section<'_>,
    Rate { average, period, burst }: Rate,
    report: &mut Report,
) {
    let rate = average as f64 / period.as_secs_f64();
    let wait = if rate < 1.0 { 500.0 } else { 500.0 / rate.floor() };
    report.nearly(
        section.place(),
        format!("rateLimit {name}: a request waits up to {} ms before it is denied", figure(wait)),
        "it is denied at once: stricter by at most one request of each burst",
    );
    let idle = if rate >= 1.0 { 2 } else { 1 + period.as_secs() / (average as u64).max(1) };
    if burst as f64 > rate * idle as f64 {
        report.nearly(
            section.place(),
            format!("rateLimit {name}: who pauses {idle} s may send {burst} again"),
            format!(
                "who has used the burst gets {average} each {}: stricter, by up to {} requests a \
                 second",
                window(period),
                figure(burst as f64 / idle as f64 - rate),
            ),
        );
    }
}

fn tell_of_redis(section: Section<'_>, report: &mut Report) {
    report.nearly(
        section.place(),
        "redis: 500 while Redis does not answer",
        "on_store_error: closed: 503. Without `store: { redis: ... }` in the settings each process \
         counts on its own",
    );
    report.ask(
        "write `store: { redis: ... }` into the settings, with the servers that `redis.endpoints` \
         names; a password there is not carried over.",
    );
}

/// A number with as many places as it needs.
fn figure(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
