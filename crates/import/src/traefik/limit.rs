//! `rateLimit` and `inFlightReq` as limits.

use std::time::Duration;

use super::{report::Report, section::Section};
use crate::flow::Flow;

/// The largest number of a rate, and of requests in flight.
const MAX_COUNT: i64 = (1 << 31) - 1;
const MAX_CONCURRENT: i64 = 10_000;
const MAX_PERIOD: Duration = Duration::from_secs(366 * 86_400);

/// Fields in which proxies write the client's address.
const ADDRESS_HEADERS: [&str; 9] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fly-client-ip",
    "fastly-client-ip",
    "x-client-ip",
    "x-original-forwarded-for",
];

/// Fields that belong to the connection: no limit counts by them, and no route writes them.
pub(super) fn is_fixed(header: &str) -> bool {
    const OF_CONNECTION: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^`|~".contains(&byte);
    header.is_empty()
        || !header.bytes().all(is_token)
        || OF_CONNECTION.contains(&header)
        || ["x-tollgate-", "x-ratelimit-", "ratelimit"].iter().any(|own| header.starts_with(own))
}

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

/// What a limit counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Everyone,
    Address,
    Host,
    Header(String),
}

/// Which peers of the entry point may write `X-Forwarded-For`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// There is no static configuration.
    Unknown,
    Nobody,
    These(Vec<String>),
    Everybody,
}

/// Header fields that something before the limit has written.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// With the same value for all, or with none.
    pub(super) constant: Vec<String>,
    pub(super) verified: Vec<String>,
    /// What wrote fields of which the names are not known.
    pub(super) unknown: Option<String>,
}

/// What a limit depends on beside its own section.
pub(super) struct Around<'a> {
    pub(super) trust: &'a Trust,
    pub(super) written: &'a Written,
    /// Whether it is of a file, where an empty section is an error.
    pub(super) is_file: bool,
}

/// The limit of a `rateLimit`; none if it limits nothing. The error says why nothing passes.
pub(super) fn rate_limit(
    name: &str,
    section: Section<'_>,
    around: &Around<'_>,
    report: &mut Report,
) -> Result<Option<Limit>, String> {
    known(section, &["average", "period", "burst", "sourceCriterion", "redis"])?;
    let average = section.number("average")?.unwrap_or(0);
    let burst = section.number("burst")?.unwrap_or(0).max(1);
    let period = section.duration("period")?.unwrap_or(Some(Duration::ZERO));
    let period = period.ok_or("`period` is negative, so Traefik serves none of its routers")?;
    let period = if period.is_zero() { Duration::from_secs(1) } else { period };
    let is_shared = section.node("redis").is_some();
    let there =
        format!("rateLimit {name}: average {average}, period {}, burst {burst}", words(period));
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
    let mut flow = counted.flow();
    let rate = format!("{average}/{}", words(period));
    flow = flow.with("rate", rate.as_str()).with("algorithm", "gcra").with("burst", burst as u64);
    if is_shared {
        flow = flow.with("on_store_error", "closed");
    }
    let interval = Duration::from_nanos(period.as_nanos() as u64 / average as u64);
    let counter = match is_shared {
        true => "one limit for all its routers, as with redis",
        false => "one limit for each of its routers",
    };
    report.same(place.clone(), there, format!("rate: {rate}, burst: {burst}: {counter}"));
    tell_of_time(name, section, (average, period, burst), report);
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
    known(section, &["amount", "sourceCriterion"])?;
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
    (average, period, burst): (i64, Duration, i64),
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
                words(period),
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

/// What is counted by, and the fields of a limit that say so.
struct Counted {
    key: Key,
    /// Of an IPv6 address.
    prefix: u64,
}

impl Counted {
    fn flow(&self) -> Flow {
        match &self.key {
            Key::Everyone => Flow::fields([("per", "all".into())]),
            Key::Host => Flow::fields([("per", "host".into())]),
            Key::Address => {
                Flow::fields([("per", "client.ip".into()), ("ipv6_prefix", self.prefix.into())])
            }
            Key::Header(name) => Flow::fields([
                ("per", format!("header.{name}").into()),
                ("on_missing", "share".into()),
            ]),
        }
    }
}

fn source(
    limit: Section<'_>,
    around: &Around<'_>,
    default: Key,
    report: &mut Report,
) -> Result<Counted, String> {
    let whole = |key| Ok(Counted { key, prefix: 128 });
    let Some(criterion) = limit.section("sourceCriterion") else {
        tell_of_default(limit, &default, report);
        return whole(default);
    };
    known(criterion, &["ipStrategy", "requestHeaderName", "requestHost"])?;
    let strategy = criterion.section("ipStrategy");
    let is_empty = |section: &Section<'_>| section.entries().is_empty();
    if around.is_file && (is_empty(&criterion) || strategy.as_ref().is_some_and(is_empty)) {
        return Err(
            "an empty `sourceCriterion` or `ipStrategy`: Traefik refuses the whole file".to_owned()
        );
    }
    let header = criterion.text("requestHeaderName").filter(|name| !name.is_empty());
    let is_host = criterion.is_true("requestHost");
    let number = [strategy.is_some(), header.is_some(), is_host].iter().filter(|is| **is).count();
    if number > 1 {
        return Err("`sourceCriterion` has more than one criterion: Traefik serves none of its \
                    routers"
            .to_owned());
    }
    if let Some(header) = header {
        return by_header(criterion, &header.to_ascii_lowercase(), around, report);
    }
    if is_host {
        tell_of_host(criterion, report);
        return whole(Key::Host);
    }
    match strategy {
        Some(strategy) => by_address(strategy, around, report),
        None => {
            tell_of_default(limit, &default, report);
            whole(default)
        }
    }
}

fn tell_of_default(limit: Section<'_>, default: &Key, report: &mut Report) {
    match default {
        Key::Host => tell_of_host(limit, report),
        _ => report.same(
            limit.place(),
            "no sourceCriterion: by the address of the connection",
            "per: client.ip, ipv6_prefix: 128: without `trusted_proxies`, as behind a balancer they \
             tell its clients apart, which Traefik counts together",
        ),
    }
}

fn tell_of_host(place: Section<'_>, report: &mut Report) {
    report.nearly(
        place.place(),
        "by the Host field as it is written",
        "per: host, in small letters, without port and final dot: stricter, as `A.example:443` and \
         `a.example` share a counter",
    );
}

fn by_header(
    criterion: Section<'_>,
    header: &str,
    around: &Around<'_>,
    report: &mut Report,
) -> Result<Counted, String> {
    let there = format!("requestHeaderName {header}");
    let written = around.written;
    if written.constant.iter().any(|own| own == header) || header == "host" {
        let here = "per: all: every request has the same value";
        report.same(criterion.place(), there, here);
        return Ok(Counted { key: Key::Everyone, prefix: 128 });
    }
    if written.verified.iter().any(|own| own == header) || written.unknown.is_some() {
        let by = written.unknown.as_deref().unwrap_or("an authentication");
        return Err(format!(
            "it counts by `{header}`, which {by} may write; here clients would choose it: write \
             `identity`, and `per: caller`"
        ));
    }
    if ADDRESS_HEADERS.contains(&header) {
        report.nearly(
            criterion.place(),
            there,
            "per: client.ip, ipv6_prefix: 128: clients cannot choose it. Requests without the field \
             are one client in Traefik; here each address is one: looser for these",
        );
        report.ask(format!(
            "write the networks of the proxies that write {header} into `trusted_proxies` of the \
             settings, or all clients behind one of them share a counter."
        ));
        return Ok(Counted { key: Key::Address, prefix: 128 });
    }
    if is_fixed(header) || header.contains('_') {
        return Err(format!("`{header}` is no field that a limit can count by"));
    }
    report.same(
        criterion.place(),
        there,
        format!(
            "per: header.{header}, on_missing: share: requests without it share a counter. Clients \
             choose the value, there and here"
        ),
    );
    Ok(Counted { key: Key::Header(header.to_owned()), prefix: 128 })
}

fn by_address(
    strategy: Section<'_>,
    around: &Around<'_>,
    report: &mut Report,
) -> Result<Counted, String> {
    let address = address(strategy, around.trust, report)?;
    let key = if address.is_known { Key::Address } else { Key::Everyone };
    Ok(Counted { key, prefix: address.prefix })
}

/// The address that a strategy takes.
pub(super) struct Address {
    /// Whether there is one: no peer may write the field from which it is taken, if not.
    pub(super) is_known: bool,
    prefix: u64,
}

/// The address that an `ipStrategy` takes. The error says why Traefik serves nothing.
pub(super) fn address(
    strategy: Section<'_>,
    trust: &Trust,
    report: &mut Report,
) -> Result<Address, String> {
    known(strategy, &["depth", "excludedIPs", "ipv6Subnet"])?;
    let depth = strategy.number("depth")?.unwrap_or(0);
    let excluded = strategy.texts("excludedIPs");
    let subnet = strategy.number("ipv6Subnet")?;
    let prefix = match subnet {
        _ if depth <= 0 && !excluded.is_empty() => 128,
        None => 128,
        Some(32..=128) => subnet.unwrap_or(128) as u64,
        Some(1..32) => {
            return Err("`ipv6Subnet` is below 32: no limit here cuts so much".to_owned());
        }
        Some(_) => return Err("`ipv6Subnet` is not from 1 to 128".to_owned()),
    };
    let place = strategy.place();
    let there = match depth > 0 {
        true => format!("ipStrategy: depth {depth}"),
        false if excluded.is_empty() => {
            let there = format!("ipStrategy: the address of the connection, {prefix} bits of IPv6");
            report.same(place, there, format!("client.ip, ipv6_prefix: {prefix}"));
            return Ok(Address { is_known: true, prefix });
        }
        false => format!("ipStrategy: excludedIPs {}", excluded.join(", ")),
    };
    let mut trusted = excluded;
    if depth > 0 {
        trusted.clear();
    }
    match trust {
        Trust::Nobody => {
            report.same(
                place,
                there,
                "one client: the entry point trusts no peer (forwardedHeaders.trustedIPs), so \
                 Traefik removes X-Forwarded-For and counts all clients as one. For a counter of \
                 each address write `per: client.ip`",
            );
            return Ok(Address { is_known: false, prefix });
        }
        Trust::Unknown => report.nearly(
            place,
            there,
            "client.ip, as if the entry point had forwardedHeaders.trustedIPs. Without them Traefik \
             counts all clients as one, and this is looser: give the static configuration, too",
        ),
        Trust::These(_) | Trust::Everybody => report.nearly(
            place,
            there,
            "client.ip, by `trusted_proxies` of the settings. Requests without X-Forwarded-For are \
             one client in Traefik; here their addresses count: looser for these",
        ),
    }
    if let Trust::These(peers) = trust {
        trusted.extend(peers.iter().cloned());
    }
    let more = match depth {
        ..=1 => String::new(),
        depth => {
            format!(", and the {} proxies before them, which the files do not name", depth - 1)
        }
    };
    report.ask(match (trusted.is_empty(), trust) {
        (false, _) => format!("write `trusted_proxies: [{}]` into the settings{more}.", trusted.join(", ")),
        (true, Trust::Everybody) => format!(
            "the entry point trusts everybody's X-Forwarded-For (insecure), so clients choose their \
             address. Write the proxies of your own into `trusted_proxies` of the settings{more}."
        ),
        (true, _) => format!(
            "write the proxies that may write X-Forwarded-For into `trusted_proxies` of the \
             settings{more}."
        ),
    });
    Ok(Address { is_known: true, prefix })
}

fn known(section: Section<'_>, names: &[&str]) -> Result<(), String> {
    match section.unknown(names) {
        None => Ok(()),
        Some(name) => Err(format!("`{name}` is no option that is known: Traefik refuses it")),
    }
}

/// A time as a rate has it: `second`, `minute`, `90s`, `500ms`.
fn words(time: Duration) -> String {
    let millis = time.as_millis();
    let named = [(1000, "second"), (60_000, "minute"), (3_600_000, "hour"), (86_400_000, "day")];
    match named.into_iter().find(|(length, _)| *length == millis) {
        Some((_, name)) => name.to_owned(),
        None if time.subsec_nanos() == 0 => format!("{}s", time.as_secs()),
        None => format!("{millis}ms"),
    }
}

/// A number with as many places as it needs.
fn figure(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
