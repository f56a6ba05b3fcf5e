//! What a plugin counts by, and how much may pass.

use std::time::Duration;

use super::super::{
    auth::Auth,
    file::{File, Plugin},
    values::{is_field, is_flat, is_template, tell_of_templates},
};
use crate::{
    flow::{Flow, window},
    network::ADDRESS_HEADERS,
    report::Report,
    words,
};

/// The plugins that limit.
pub(in super::super) const KINDS: [&str; 2] = ["rate-limiting", "rate-limiting-advanced"];

/// Windows of `rate-limiting`. The last two are of the calendar.
const PERIODS: [(&str, u64); 6] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("month", 31 * 86_400),
    ("year", 366 * 86_400),
];
const LONGEST: u64 = 86_400;
/// The longest window of a policy.
const LONGEST_WINDOW: u64 = 366 * 86_400;
const PLAIN: &str = "second minute hour day month year limit_by header_name path policy \
    fault_tolerant hide_client_headers error_code error_message sync_rate";
const ADVANCED: &str = "limit window_size window_type identifier header_name path strategy \
    sync_rate namespace hide_client_headers error_code error_message disable_penalty \
    retry_after_jitter_max dictionary_name lock_dictionary_name throttling consumer_groups \
    enforce_consumer_groups";
/// The most rates of a limit, and the largest number of one.
const MAX_RATES: usize = 4;
const MAX_COUNT: u64 = (1 << 31) - 1;
/// Options that decide something, with what is taken where a program fills them in.
const TAKEN: [(&str, &str); 6] = [
    ("policy", "`local`"),
    ("strategy", "`local`"),
    ("fault_tolerant", "`false`, so `on_store_error: closed` with a store,"),
    ("window_type", "`sliding`"),
    ("hide_client_headers", "`false`"),
    ("retry_after_jitter_max", "0"),
];

/// What a limit counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Key {
    Caller,
    Address,
    All,
    Header(String),
}

/// How much may pass.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) key: Key,
    /// Numbers, and the windows in seconds with their names.
    windows: Vec<(u64, u64, String)>,
    /// How many of the windows, the last ones, are of the calendar.
    calendar: usize,
    pub(super) is_sliding: bool,
    pub(super) on_store_error: Option<&'static str>,
    pub(super) status: u64,
    pub(super) jitter: u64,
}

impl Key {
    /// What it is on a route. Where nobody is known, Kong falls back to the address.
    pub(super) fn on(&self, auth: &Auth, has_service: bool) -> Key {
        match self {
            Key::Caller if !auth.is_some() => Key::Address,
            Key::All if !has_service => Key::Address,
            key => key.clone(),
        }
    }

    /// `has_anonymous`: those without credentials are one consumer there.
    pub(super) fn flow(&self, has_anonymous: bool) -> Flow {
        let per = |key: &str| Flow::fields([("per", key.into())]);
        match self {
            Key::Caller if has_anonymous => per("caller").with("on_missing", "share"),
            Key::Caller => per("caller"),
            Key::Address => per("client.ip").with("ipv6_prefix", 128),
            Key::All => per("all"),
            Key::Header(name) => per(&format!("header.{name}")).with("on_missing", "skip"),
        }
    }
}

impl Measure {
    /// The error says why no request may pass.
    pub(super) fn of<'d>(
        plugin: &Plugin<'d>,
        file: &File<'d>,
        report: &mut Report,
    ) -> Result<Measure, String> {
        let config = &plugin.config;
        let is_advanced = plugin.kind == KINDS[1];
        let known = if is_advanced { ADVANCED } else { PLAIN };
        if let Some(name) = config.unknown(known).first() {
            return Err(format!("`{name}` is no option that is known"));
        }
        let windows = if is_advanced { advanced(plugin)? } else { plain(plugin)? };
        if windows.is_empty() {
            return Err("it has no limit, so Kong refuses it".to_owned());
        }
        let is_sliding = is_advanced && config.text("window_type").as_deref() != Some("fixed");
        let calendar = match is_advanced {
            true => 0,
            false => windows.iter().filter(|(_, seconds, _)| *seconds > LONGEST).count(),
        };
        let policy = config.text("policy");
        let has_store = !is_advanced && policy.is_some_and(|policy| policy != "local");
        let is_open = !config.has("fault_tolerant") || config.is_true("fault_tolerant");
        let on_store_error = has_store.then_some(if is_open { "open" } else { "closed" });
        let code = config.text("error_code").unwrap_or_else(|| "429".to_owned());
        let status: Option<u64> = code.parse().ok();
        let status = status.filter(|status| matches!(status, 400..=499 | 503));
        if status.is_none() {
            let there = format!("{}: error_code {code}", plugin.words(file));
            report.nearly(plugin.section.place(), there, "429: a denial is 4xx or 503 here");
        }
        let jitter = config.text("retry_after_jitter_max").and_then(|text| text.parse().ok());
        Ok(Measure {
            key: key(plugin, is_advanced)?,
            windows,
            calendar,
            is_sliding,
            on_store_error,
            status: status.unwrap_or(429),
            jitter: jitter.unwrap_or(0),
        })
    }

    /// How the limits differ from what a plugin counts.
    fn differences(&self, plugin: &Plugin<'_>, (by, key): (&str, &Key)) -> Vec<&'static str> {
        let config = &plugin.config;
        let is_advanced = plugin.kind == KINDS[1];
        let mut found = Vec::new();
        found.extend(match (by, key) {
            ("consumer" | "credential" | "service", Key::Address) => {
                Some("by address where nobody is known, as there")
            }
            ("credential", _) => {
                Some("the keys of one consumer share a counter, which is stricter")
            }
            ("header", Key::Header(_)) => Some(
                "and one by address, to which Kong falls back without the header: an address that \
                 sends several values shares its rate, which is stricter",
            ),
            ("header", _) => Some(
                "by the client's address (`trusted_proxies`): there is no name of a header, or it \
                 is one that proxies write",
            ),
            _ => None,
        });
        for (is_so, difference) in [
            (
                self.is_sliding && config.is_true("disable_penalty"),
                "the estimate of a sliding window may differ by one request",
            ),
            (
                self.is_sliding && !config.is_true("disable_penalty"),
                "denied requests do not count: looser for clients that go on asking, who get the \
                 rate, where Kong lets nothing through until they pause",
            ),
            (
                is_advanced && config.has("namespace"),
                "plugins of one `namespace` share counters there, and not here",
            ),
            (
                is_advanced && config.has("throttling"),
                "no request is held back: it is denied at once, which is stricter",
            ),
            (config.has("error_message"), "denials have a text of their own"),
        ] {
            found.extend(is_so.then_some(difference));
        }
        found
    }

    fn chosen(&self, is_calendar: bool) -> &[(u64, u64, String)] {
        let (fixed, calendar) = self.windows.split_at(self.windows.len() - self.calendar);
        if is_calendar { calendar } else { fixed }
    }

    /// Rates as a limit has them.
    pub(super) fn rates(&self, is_calendar: bool) -> Vec<String> {
        let chosen = self.chosen(is_calendar).iter();
        chosen.map(|(number, _, name)| format!("{number}/{name}")).collect()
    }

    pub(super) fn lengths(&self, is_calendar: bool) -> Vec<(u64, Duration)> {
        let chosen = self.chosen(is_calendar).iter();
        chosen.map(|(number, seconds, _)| (*number, Duration::from_secs(*seconds))).collect()
    }
}

fn key(plugin: &Plugin<'_>, is_advanced: bool) -> Result<Key, String> {
    let config = &plugin.config;
    let field = if is_advanced { "identifier" } else { "limit_by" };
    let kind = config.text(field).unwrap_or_else(|| "consumer".to_owned());
    let header = config.text("header_name").filter(|name| !name.is_empty());
    match (kind.as_str(), header) {
        ("consumer" | "credential", _) => Ok(Key::Caller),
        ("ip", _) => Ok(Key::Address),
        ("service", _) => Ok(Key::All),
        ("header", Some(name)) => match name.to_ascii_lowercase() {
            name if words::has(ADDRESS_HEADERS, &name) => Ok(Key::Address),
            name if name != "host" && is_field(&name) && !name.starts_with("x-consumer-") => {
                Ok(Key::Header(name))
            }
            _ => Err("`header_name` is no header that a limit here counts by".to_owned()),
        },
        // The header is never there.
        ("header", None) => Ok(Key::Address),
        _ => Err(format!("`{field}: {kind}` has no counterpart")),
    }
}

/// A number of requests. What is no whole number admits one more.
fn count(text: &str) -> Result<u64, String> {
    let number: f64 = text.parse().map_err(|_| "a limit is no number".to_owned())?;
    match number {
        number if number <= 0.0 => Err("a limit of 0: Kong refuses it".to_owned()),
        number if number.is_finite() => Ok((number.ceil() as u64).min(MAX_COUNT)),
        _ => Err("a limit is no number".to_owned()),
    }
}

fn plain(plugin: &Plugin<'_>) -> Result<Vec<(u64, u64, String)>, String> {
    let mut windows = Vec::new();
    for (name, seconds) in PERIODS {
        if let Some(text) = plugin.config.text(name) {
            windows.push((count(&text)?, seconds, name.to_owned()));
        }
    }
    Ok(windows)
}

fn advanced(plugin: &Plugin<'_>) -> Result<Vec<(u64, u64, String)>, String> {
    let config = &plugin.config;
    let (limits, sizes) = (config.texts("limit"), config.texts("window_size"));
    let is_flat = ["limit", "window_size"].iter().all(|name| is_flat(plugin, name));
    if !is_flat || limits.len() != sizes.len() {
        return Err("it has not as many limits as windows".to_owned());
    }
    let mut windows: Vec<(u64, u64, String)> = Vec::new();
    for (limit, size) in limits.iter().zip(&sizes) {
        let seconds = size.parse().ok().filter(|seconds| (1..=LONGEST_WINDOW).contains(seconds));
        let seconds = seconds.ok_or_else(|| {
            "a window is no whole number of seconds, or longer than 366 days".to_owned()
        })?;
        let number = count(limit)?;
        match windows.iter_mut().find(|(_, own, _)| *own == seconds) {
            Some((least, ..)) => *least = number.min(*least),
            None => windows.push((number, seconds, window(Duration::from_secs(seconds)))),
        }
    }
    match windows.len() > MAX_RATES {
        true => Err(format!("it has more than {MAX_RATES} windows")),
        false => Ok(windows),
    }
}

/// Rows of a plugin that is in force as these limits.
pub(super) fn tell<'d>(
    plugin: &Plugin<'d>,
    file: &File<'d>,
    (names, key): (&str, &Key),
    report: &mut Report,
) {
    let Ok(measure) = Measure::of(plugin, file, report) else { return };
    let config = &plugin.config;
    let is_advanced = plugin.kind == KINDS[1];
    let rates = [measure.rates(false), measure.rates(true)].concat().join(", ");
    let by = config.text(if is_advanced { "identifier" } else { "limit_by" });
    let by = by.unwrap_or_else(|| "consumer".to_owned());
    let words = plugin.words(file);
    let there = format!("{words}: {rates} by {by}");
    let differences = measure.differences(plugin, (&by, key));
    let here = format!("limits: {names}");
    match differences.is_empty() {
        true => report.same(plugin.section.place(), there, here),
        false => {
            let here = format!("{here}: {}", differences.join("; "));
            report.nearly(plugin.section.place(), there, here);
        }
    }
    tell_of_templates(plugin, file, &TAKEN, report);
    let store = config.text(if is_advanced { "strategy" } else { "policy" });
    if store.is_some_and(|store| store != "local" && !is_template(&store)) {
        let there = format!("{words}: counters in a store of all nodes");
        let here = "counters of the process, until the settings have `store: { redis: ... }`";
        report.nearly(plugin.section.place(), there, here);
        report.ask(
            "write `store: { redis: ... }` into the settings, so that several proxies count \
             together; where Redis is, and its password, are not carried over.",
        );
    }
}
