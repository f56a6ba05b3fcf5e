//! What a limit counts by: addresses, hosts and header fields.

use super::headers::is_fixed;
use crate::{flow::Flow, network::ADDRESS_HEADERS, report::Report, section::Section, words};

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

/// What is counted by, and the fields of a limit that say so.
pub(super) struct Counted {
    pub(super) key: Key,
    /// Of an IPv6 address.
    prefix: u64,
}

impl Counted {
    pub(super) fn flow(&self) -> Flow {
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

/// What the `sourceCriterion` of a limit says; without one it is `default`. The error says why
/// nothing passes.
pub(super) fn source(
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
    criterion.knows("ipStrategy requestHeaderName requestHost")?;
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
            "per: client.ip, ipv6_prefix: 128: without `trusted_proxies`, as behind a balancer \
             they tell its clients apart, which Traefik counts together",
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
    if words::has(ADDRESS_HEADERS, header) {
        report.nearly(
            criterion.place(),
            there,
            "per: client.ip, ipv6_prefix: 128: clients cannot choose it. Requests without the \
             field are one client in Traefik; here each address is one: looser for these",
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
    strategy.knows("depth excludedIPs ipv6Subnet")?;
    let depth = strategy.number("depth")?.unwrap_or(0);
    let excluded = strategy.texts("excludedIPs");
    let prefix = prefix(strategy, depth <= 0 && !excluded.is_empty())?;
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
            "client.ip, as if the entry point had forwardedHeaders.trustedIPs. Without them \
             Traefik counts all clients as one, and this is looser: give the static configuration, \
             too",
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
    ask_for_proxies(&trusted, trust, depth, report);
    Ok(Address { is_known: true, prefix })
}

/// How many bits of an IPv6 address are one client; `is_list`: they are looked for in a list.
fn prefix(strategy: Section<'_>, is_list: bool) -> Result<u64, String> {
    match strategy.number("ipv6Subnet")? {
        _ if is_list => Ok(128),
        None => Ok(128),
        Some(bits @ 32..=128) => Ok(bits as u64),
        Some(1..32) => Err("`ipv6Subnet` is below 32: no limit here cuts so much".to_owned()),
        Some(_) => Err("`ipv6Subnet` is not from 1 to 128".to_owned()),
    }
}

/// Asks for the proxies whose `X-Forwarded-For` counts.
fn ask_for_proxies(trusted: &[String], trust: &Trust, depth: i64, report: &mut Report) {
    let more = match depth {
        ..=1 => String::new(),
        depth => {
            format!(", and the {} proxies before them, which the files do not name", depth - 1)
        }
    };
    report.ask(match (trusted.is_empty(), trust) {
        (false, _) => {
            format!("write `trusted_proxies: [{}]` into the settings{more}.", trusted.join(", "))
        }
        (true, Trust::Everybody) => format!(
            "the entry point trusts everybody's X-Forwarded-For (insecure), so clients choose \
             their address. Write the proxies of your own into `trusted_proxies` of the \
             settings{more}."
        ),
        (true, _) => format!(
            "write the proxies that may write X-Forwarded-For into `trusted_proxies` of the \
             settings{more}."
        ),
    });
}
