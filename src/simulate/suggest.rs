//! A policy to begin with, from a log: its routes and callers, and limits that nearly all callers
//! stay below. Each limit only counts (`mode: shadow`), and has the evidence for its number beside
//! it.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use super::{
    Curve, PolicySet, Progress, Report, Simulation, SimulationError,
    curve::share,
    paths::{Paths, Template},
    translate::CallerField,
};
use crate::{
    history::{HistoryAhead, ReadOptions},
    policy::{Policies, load},
    yaml::Sources,
};

/// A route has at least this part of all requests; all others share one.
const LEAST_PART: f64 = 0.02;

/// The most routes with a limit of their own.
const MOST_ROUTES: usize = 12;

/// More than any caller uses: what the measuring policy allows.
const PLENTY: u32 = 1_000_000_000;

/// The longest line of a comment.
const MOST_COLUMNS: usize = 96;

/// A log of so many seconds says something about hours.
const HOURS: f64 = 7200.0;

/// Who called, as a log says.
#[derive(Default)]
struct Seen {
    requests: u64,
    paths: Paths,
    /// Requests by the kind of caller, without those that are addresses.
    kinds: BTreeMap<String, u64>,
    tiers: BTreeMap<String, u64>,
    issuers: BTreeMap<String, u64>,
}

/// Writes a policy to begin with. The logs are read twice, so they cannot be standard input.
///
/// # Errors
/// [`SimulationError`].
pub fn suggest(
    read: &ReadOptions,
    callers: &[CallerField],
    host: Option<&str>,
    progress: &mut dyn FnMut(Progress),
) -> Result<String, SimulationError> {
    if read.files.iter().any(|file| file == Path::new("-")) {
        return Err(SimulationError::NotTwice);
    }
    let seen = look(read, callers, progress)?;
    let draft = Draft::of(seen);
    let measuring = draft.policy(None);
    let policy = load(Path::new("suggested.yaml"), &measuring, &Sources::system());
    let policy = policy.map_err(SimulationError::Draft)?;
    let policies = Policies::new(vec![policy]);
    let candidate = PolicySet { policies: &policies, settings: None, name: "suggested.yaml" };
    let simulation = Simulation {
        read: read.clone(),
        callers: callers.to_vec(),
        host: host.map(str::to_owned),
        candidate,
        against: None,
    };
    let report = simulation.run(progress)?;
    Ok(draft.policy(Some(&report)))
}

fn look(
    read: &ReadOptions,
    callers: &[CallerField],
    progress: &mut dyn FnMut(Progress),
) -> Result<Seen, SimulationError> {
    let mut history = HistoryAhead::open(read)?;
    let mut seen = Seen::default();
    while let Some(record) = history.next_record() {
        seen.requests += 1;
        seen.paths.add(record.target.as_str(), 1);
        let own = record.own.as_ref();
        let named = callers.iter().zip(&record.fields).find(|(_, field)| field.is_some());
        let of_own = own.and_then(|own| own.caller.as_deref()).and_then(|name| {
            let (kind, value) = name.split_once(':')?;
            value.parse::<std::net::IpAddr>().is_err().then_some(kind)
        });
        if let Some(kind) = named.map(|(caller, _)| caller.kind.as_str()).or(of_own) {
            *seen.kinds.entry(kind.to_owned()).or_default() += 1;
            if let Some(tier) = own.and_then(|own| own.tier.as_deref()) {
                *seen.tiers.entry(tier.to_owned()).or_default() += 1;
            }
            let facts = own.and_then(|own| own.facts.as_ref());
            if let Some(issuer) = facts.and_then(|facts| facts.get("issuer")?.as_str()) {
                *seen.issuers.entry(issuer.to_owned()).or_default() += 1;
            }
        }
        if seen.requests.is_multiple_of(1 << 13) {
            let (bytes, all_bytes) = history.progress();
            // The second time takes about as long.
            let all_bytes = all_bytes.map(|all| all * 2);
            progress(Progress { requests: seen.requests, bytes, all_bytes });
        }
    }
    history.finish()?;
    Ok(seen)
}

/// A policy whose limits are not known yet.
struct Draft {
    requests: u64,
    routes: Vec<(Template, String)>,
    kinds: Vec<String>,
    tiers: Vec<String>,
    issuer: Option<String>,
}

impl Draft {
    fn of(seen: Seen) -> Draft {
        let Seen { requests, paths, kinds, tiers, issuers } = seen;
        let mut names: Vec<String> = vec!["core".to_owned()];
        let templates = paths.templates(LEAST_PART, MOST_ROUTES);
        let named = templates.into_iter().map(|template| {
            let name = name_of(&template, &names);
            names.push(name.clone());
            (template, name)
        });
        Draft {
            requests,
            routes: named.collect(),
            kinds: by_count(kinds),
            tiers: by_count(tiers).into_iter().filter(|tier| is_name(tier)).collect(),
            issuer: by_count(issuers).into_iter().next().filter(|it| it.starts_with("https://")),
        }
    }

    /// The policy: one that only measures, or with limits from what was measured.
    fn policy(&self, measured: Option<&Report>) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text, measured);
        text
    }

    fn write(&self, text: &mut String, measured: Option<&Report>) -> std::fmt::Result {
        if let Some(report) = measured {
            write_head(text, report)?;
        }
        writeln!(text, "version: 1\n")?;
        writeln!(text, "upstreams:")?;
        writeln!(text, "  api: {{ servers: [http://127.0.0.1:9000] }}   # put your server here\n")?;
        self.write_identity(text)?;
        writeln!(text, "\nlimits:")?;
        self.write_limit(text, "core", "all requests of a caller", measured)?;
        for (template, name) in &self.routes {
            let percent = share(template.requests, self.requests) * 100.0;
            let about = format!("{} has {percent:.1} % of the requests", template.pattern);
            self.write_limit(text, name, &about, measured)?;
        }
        writeln!(text, "\nroutes:")?;
        let auth = if self.kinds.is_empty() { "none" } else { "optional" };
        for (template, name) in &self.routes {
            let pattern = yaml_text(&template.pattern);
            writeln!(
                text,
                "  - {{ match: {{ path: {pattern} }}, auth: {auth}, limits: [core, {name}] }}"
            )?;
        }
        writeln!(text, "  - {{ match: {{ path: \"/**\" }}, auth: {auth}, limits: [core] }}")
    }

    fn write_identity(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "identity:")?;
        if !self.kinds.is_empty() {
            let issuer = self.issuer.as_deref().unwrap_or("https://id.example.com/");
            writeln!(text, "  jwt:")?;
            writeln!(text, "    - name: main")?;
            writeln!(text, "      issuer: {}   # put your issuer here", yaml_text(issuer))?;
            writeln!(text, "      jwks_url: https://id.example.com/jwks.json   # and its keys")?;
        }
        writeln!(text, "  callers:")?;
        for (position, kind) in self.kinds.iter().enumerate() {
            let claim = if position == 0 { "sub" } else { kind };
            let tier = if self.tiers.is_empty() { "" } else { ", tier: jwt.plan" };
            let note = "   # the claim that names the caller, and its tier";
            writeln!(text, "    - {{ name: {kind}, key: jwt.{claim}{tier} }}{note}")?;
        }
        writeln!(text, "    - {{ name: anonymous, key: client.ip }}")?;
        if let Some(default) = self.tiers.first() {
            let names = self.tiers.join(", ");
            writeln!(text, "\ntiers: {{ default: {default}, names: [{names}] }}")?;
        }
        Ok(())
    }

    fn write_limit(
        &self,
        text: &mut String,
        name: &str,
        about: &str,
        measured: Option<&Report>,
    ) -> std::fmt::Result {
        let Some(report) = measured else {
            let rates = format!("[{PLENTY}/minute, {PLENTY}/hour]");
            return writeln!(text, "  {name}: {{ per: caller, rate: {rates}, mode: shadow }}");
        };
        writeln!(text, "  # {about}.")?;
        let mut by_tier: BTreeMap<&str, Vec<&Curve>> = BTreeMap::new();
        let has_hours = report.read.seconds >= HOURS;
        let is_said = |curve: &&Curve| curve.window_seconds < 3600 || has_hours;
        for curve in report.curves.iter().filter(|curve| curve.limit == name).filter(is_said) {
            by_tier.entry(&curve.tier).or_default().push(curve);
        }
        for (tier, curves) in &mut by_tier {
            curves.sort_by_key(|curve| curve.window_seconds);
            let of = if self.tiers.is_empty() { String::new() } else { format!(" of tier {tier}") };
            for curve in curves {
                writeln!(text, "  # {}", evidence(curve, &of))?;
            }
        }
        writeln!(text, "  {name}:")?;
        writeln!(text, "    per: caller")?;
        match by_tier.len() {
            0 => writeln!(text, "    rate: 1000/hour   # nobody used it in the log")?,
            1 if self.tiers.is_empty() => {
                let rates = by_tier.values().next().map(|curves| rates(curves));
                writeln!(text, "    rate: {}", rates.unwrap_or_default())?;
            }
            _ => {
                writeln!(text, "    rate:")?;
                for (tier, curves) in &by_tier {
                    writeln!(text, "      {tier}: {}", rates(curves))?;
                }
                let least = by_tier
                    .values()
                    .min_by_key(|curves| curves.first().map_or(0, |curve| curve.suggested));
                let others = least.map(|curves| rates(curves)).unwrap_or_default();
                if self.tiers.iter().any(|tier| !by_tier.contains_key(tier.as_str())) {
                    writeln!(text, "      default: {others}   # tiers that did not use it")?;
                }
            }
        }
        writeln!(text, "    mode: shadow")
    }
}

fn write_head(text: &mut String, report: &Report) -> std::fmt::Result {
    let super::Read { requests, first, last, bad, .. } = &report.read;
    let day = |time: &Option<String>| time.clone().unwrap_or_else(|| "-".to_owned());
    writeln!(text, "# A policy to begin with, from {requests} requests of {}", day(first))?;
    let bad =
        if *bad == 0 { String::new() } else { format!(" Lines that could not be read: {bad}.") };
    writeln!(text, "# to {}.{bad}", day(last))?;
    writeln!(
        text,
        "# Each limit is the least that 99.9 % of the callers stay below, rounded up. All of"
    )?;
    writeln!(
        text,
        "# them only count (mode: shadow): nothing is denied until you remove that line. With fewer"
    )?;
    writeln!(
        text,
        "# than 1,000 callers it is the most that one of them has used: look who that is."
    )?;
    for note in &report.notes {
        write_note(text, note)?;
    }
    writeln!(text)
}

/// A comment of several lines, none of them longer than people like to read.
fn write_note(text: &mut String, note: &str) -> std::fmt::Result {
    let mut line = String::from("# -");
    for word in one_line(note).split_whitespace() {
        if line.len() + word.len() >= MOST_COLUMNS {
            writeln!(text, "{line}")?;
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(text, "{line}")
}

/// The evidence for a number.
fn evidence(curve: &Curve, of_tier: &str) -> String {
    let at = curve.points.iter().find(|point| point.allows == curve.suggested);
    let busiest = curve.points.iter().find(|point| point.requests_denied == 0);
    let busiest = busiest.map_or(0, |point| point.allows);
    let (callers_denied, part) =
        at.map_or((0, 0.0), |point| (point.callers_denied, point.requests_share * 100.0));
    format!(
        "{} requests, {} callers{of_tier}; the busiest used {busiest} in {}. {}/{} denies {} of \
         them, {part:.2} % of the requests.",
        curve.requests,
        curve.callers,
        in_words(curve.window_seconds),
        curve.suggested,
        unit(curve.window_seconds),
        callers_denied,
    )
}

fn rates(curves: &[&Curve]) -> String {
    let rates: Vec<String> = curves
        .iter()
        .map(|curve| format!("{}/{}", curve.suggested, unit(curve.window_seconds)))
        .collect();
    match rates.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn unit(seconds: u64) -> &'static str {
    if seconds == 3600 { "hour" } else { "minute" }
}

fn in_words(seconds: u64) -> &'static str {
    if seconds == 3600 { "an hour" } else { "a minute" }
}

/// A name for a limit: the words of its route that do not vary.
fn name_of(template: &Template, taken: &[String]) -> String {
    let is_said = |word: &&String| !matches!(word.as_str(), "api" | "v1" | "v2" | "v3");
    let words: Vec<String> = template
        .words
        .iter()
        .filter(is_said)
        .map(|word| {
            let kept = word.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
            kept.collect::<String>().to_ascii_lowercase().trim_matches('-').to_owned()
        })
        .filter(|word| !word.is_empty())
        .collect();
    let mut name = words.join("-");
    name.truncate(40);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name = if name.is_empty() { "root".to_owned() } else { format!("route-{name}") };
    }
    let mut number = 1;
    let base = name.clone();
    while taken.contains(&name) {
        number += 1;
        name = format!("{base}-{number}");
    }
    name
}

/// The names, those that come most often first.
fn by_count(counts: BTreeMap<String, u64>) -> Vec<String> {
    let mut all: Vec<(String, u64)> =
        counts.into_iter().filter(|(name, _)| !name.is_empty()).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.into_iter().map(|(name, _)| name).take(20).collect()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// A text in quotes: YAML reads it as JSON does.
fn yaml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
