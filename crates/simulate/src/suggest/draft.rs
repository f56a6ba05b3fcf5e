//! A policy whose limits are not known yet, and then are.

use std::{collections::BTreeMap, fmt::Write as _};

use tollgate_yaml::literal;

use super::{
    callers::Callers,
    evidence::{evidence, is_said, outliers, rates},
    head::{Measured, write_head},
    logins::{self, is_login},
    seen::Observations,
    words::{CORE, name_of, yaml_name},
};
use crate::{Curve, Report, curve::share, paths::Template};

/// A route has at least this part of all requests; all others share one.
const LEAST_PART: f64 = 0.02;

/// The most routes with a limit of their own.
const MOST_ROUTES: usize = 12;

/// More than any caller uses: what the measuring policy allows.
const PLENTY: u32 = 1_000_000_000;

/// A policy whose limits are not known yet.
pub(super) struct Draft {
    /// Routes with the names of their limits.
    routes: Vec<(Template, String)>,
    /// Routes without a limit.
    free: Vec<String>,
    callers: Callers,
}

impl Draft {
    pub(super) fn of(seen: Observations) -> Draft {
        let Observations { paths, free, kinds, issuers, .. } = seen;
        let mut names: Vec<String> = vec![CORE.to_owned()];
        let named = paths.templates(LEAST_PART, MOST_ROUTES).into_iter().map(|template| {
            let name = name_of(&template, &names);
            names.push(name.clone());
            (template, name)
        });
        Draft {
            routes: named.collect(),
            free: free.patterns(),
            callers: Callers::of(kinds, &issuers),
        }
    }

    /// The policy: one that only measures, or with limits from what was measured.
    pub(super) fn policy(&self, measured: Option<&Measured>) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text, measured);
        text
    }

    fn write(&self, text: &mut String, measured: Option<&Measured>) -> std::fmt::Result {
        let report = measured.map(|measured| &measured.report);
        if let Some(measured) = measured {
            write_head(text, measured)?;
        }
        writeln!(text, "version: 1\n")?;
        writeln!(text, "upstreams:")?;
        writeln!(text, "  api: {{ servers: [http://127.0.0.1:9000] }}   # put your server here\n")?;
        self.callers.write(text, report)?;
        writeln!(text, "\nlimits:")?;
        self.write_limit(text, CORE, "all requests of a caller", measured)?;
        // What is simulated has the last word: a route that no request took has no evidence.
        let requests_of = |name: &str| report.map_or(1, |report| used(report, name));
        let routes: Vec<&(Template, String)> =
            self.routes.iter().filter(|(_, name)| requests_of(name) > 0).collect();
        for (template, name) in &routes {
            let all = report.map_or(1, |report| report.outcome.requests);
            let percent = share(requests_of(name), all) * 100.0;
            let about = format!("{} has {percent:.1} % of the requests", template.pattern);
            match is_login(template) {
                true => write_login(text, name, &about, measured)?,
                false => self.write_limit(text, name, &about, measured)?,
            }
        }
        writeln!(text, "\nroutes:")?;
        let auth = if self.callers.has_named() { "optional" } else { "none" };
        if !self.free.is_empty() {
            writeln!(
                text,
                "  # By their paths, these are health checks and files that never change."
            )?;
        }
        for pattern in &self.free {
            let pattern = literal(pattern);
            writeln!(text, "  - {{ match: {{ path: {pattern} }}, auth: {auth}, limits: [] }}")?;
        }
        for (template, name) in &routes {
            let (pattern, name) = (literal(&template.pattern), yaml_name(name));
            writeln!(
                text,
                "  - {{ match: {{ path: {pattern} }}, auth: {auth}, limits: [{CORE}, {name}] }}"
            )?;
        }
        writeln!(text, "  - {{ match: {{ path: \"/**\" }}, auth: {auth}, limits: [{CORE}] }}")
    }

    fn write_limit(
        &self,
        text: &mut String,
        name: &str,
        about: &str,
        measured: Option<&Measured>,
    ) -> std::fmt::Result {
        let key = yaml_name(name);
        let Some(Measured { report, names }) = measured else {
            return write_measuring(text, &key, "per: caller");
        };
        let tiers = &self.callers.tiers;
        writeln!(text, "  # {about}.")?;
        let mut by_tier: BTreeMap<&str, Vec<&Curve>> = BTreeMap::new();
        let of_limit = |curve: &&Curve| curve.limit == name && is_said(curve, report);
        for curve in report.curves.iter().filter(of_limit) {
            by_tier.entry(&curve.tier).or_default().push(curve);
        }
        for (tier, curves) in &mut by_tier {
            curves.sort_by_key(|curve| curve.window_seconds);
            let of = if tiers.is_empty() { String::new() } else { format!(" of tier {tier}") };
            for curve in curves {
                writeln!(text, "  # {}", evidence(curve, &of))?;
                if let Some(note) = outliers(curve, names) {
                    writeln!(text, "  # {note}")?;
                }
            }
        }
        writeln!(text, "  {key}:")?;
        writeln!(text, "    per: caller")?;
        match by_tier.len() {
            0 => writeln!(
                text,
                "    rate: 1000/hour   # a guess: no request of the log was judged by it"
            )?,
            1 if tiers.is_empty() => {
                let rates = by_tier.values().next().map(|curves| rates(curves));
                writeln!(text, "    rate: {}", rates.unwrap_or_default())?;
            }
            _ => {
                writeln!(text, "    rate:")?;
                for (tier, curves) in &by_tier {
                    writeln!(text, "      {}: {}", yaml_name(tier), rates(curves))?;
                }
                let least = by_tier
                    .values()
                    .min_by_key(|curves| curves.first().map_or(0, |curve| curve.suggested));
                let others = least.map(|curves| rates(curves)).unwrap_or_default();
                if tiers.iter().any(|tier| !by_tier.contains_key(tier.as_str())) {
                    writeln!(text, "      default: {others}   # tiers that did not use it")?;
                }
            }
        }
        writeln!(text, "    mode: shadow")
    }
}

/// Writes the limit of a route at which clients prove who they are.
fn write_login(
    text: &mut String,
    name: &str,
    about: &str,
    measured: Option<&Measured>,
) -> std::fmt::Result {
    let key = yaml_name(name);
    let Some(Measured { report, names }) = measured else {
        let failures = "per: client.ip, count_when: { status: [401, 403] }";
        return write_measuring(text, &key, failures);
    };
    let curves = || report.curves.iter().filter(|curve| curve.limit == name);
    writeln!(text, "  # {about}.")?;
    writeln!(text, "  # Most of them had credentials that did not pass, so only failures count.")?;
    for note in curves().filter_map(|curve| outliers(curve, names)) {
        writeln!(text, "  # {note}")?;
    }
    writeln!(text, "  {key}:")?;
    writeln!(text, "    per: client.ip")?;
    writeln!(text, "    rate: {}", logins::rates(curves()))?;
    writeln!(text, "    count_when: {{ status: [401, 403] }}")?;
    writeln!(text, "    mode: shadow")
}

/// Writes a limit that only measures what is `counted`.
fn write_measuring(text: &mut String, key: &str, counted: &str) -> std::fmt::Result {
    let rates = format!("[{PLENTY}/minute, {PLENTY}/hour]");
    writeln!(text, "  {key}: {{ {counted}, rate: {rates}, mode: shadow }}")
}

/// The requests that a limit was asked about, of all tiers.
fn used(report: &Report, name: &str) -> u64 {
    let of_minutes = |curve: &&Curve| curve.limit == name && curve.window_seconds < 3600;
    report.curves.iter().filter(of_minutes).map(|curve| curve.requests).sum()
}
