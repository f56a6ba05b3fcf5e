//! Traefik: the files of its file provider, its static configuration, and its objects of
//! Kubernetes.
//!
//! A limit in memory has a counter for each router, one in Redis a counter for all of them; so a
//! middleware becomes a limit for each router, or one. A router becomes a route for each
//! alternative of its rule, in the order of priorities. What keeps requests out there and has no
//! counterpart closes its routes.
//!
//! - `files`: all that is in the files.
//! - `rule`: the rules of routers. `matching`: what of them a route can say.
//! - `middleware`: what middlewares do. `headers`, `limit`: those of one kind; `source`: what a
//!   limit counts by.
//! - `services`: upstreams. `route`, `routes`: routes with their limits. `trial`: the policy's
//!   tests.

mod files;
mod headers;
mod limit;
mod matching;
mod middleware;
mod route;
mod routes;
mod rule;
mod services;
mod source;
mod trial;

use tollgate_yaml::Problem;

pub(crate) use self::matching::{literal, takes};
pub(crate) use self::source::ADDRESS_HEADERS;
use self::{
    files::{Configuration, Router},
    routes::Routes,
};
use crate::{
    Finding, Imported, Input, Options, Problems, Verdict,
    draft::Draft,
    flow::Flow,
    manifest,
    report::{self, Report},
    section,
};

/// Templates that are named, of a file.
const MAX_TEMPLATES: usize = 20;

/// The policy for configurations of Traefik: all files of its file provider, or manifests with its
/// objects, and its static configuration if it is a file.
///
/// # Errors
/// What is wrong with the files, and that nothing in them is a router.
pub fn traefik(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    let unread: Problems = inputs.iter().flat_map(unread).collect();
    if !unread.is_empty() {
        return Err(unread);
    }
    let resources = manifest::resources(inputs)?;
    let mut report = Report::default();
    let configuration = Configuration::of(&resources, &mut report)?;
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    if configuration.routers.is_empty() {
        let help = "give the files that have routers or IngressRoutes, and those with their \
                    middlewares";
        let name = names.first().copied().unwrap_or_default();
        return Err(vec![Problem::whole_file(name, "there is no router in the files", help)]);
    }
    let entry_point = entry_point(&configuration, options);
    let mut routers: Vec<&Router<'_>> = Vec::new();
    for router in &configuration.routers {
        match router.entry_points.is_empty() || router.entry_points.contains(&entry_point) {
            true => routers.push(router),
            false => report.left_out(
                router.place.clone(),
                format!("router {}: entry points {}", router.name, router.entry_points.join(", ")),
                format!(
                    "a policy is for one entry point, here {entry_point}: choose by --class NAME"
                ),
            ),
        }
    }
    // As Traefik tries them; of two alike any may come first there.
    routers.sort_by_key(|router| std::cmp::Reverse(router.priority));
    tell_of_all(&configuration, &entry_point, &mut report);
    let mut routes = Routes::new(&configuration, &entry_point, options.upstream.as_deref());
    routes.look_at(&routers);
    for router in routers {
        routes.take(router, &mut report);
    }
    let mut draft = Draft {
        title: format!("From {}: Traefik's entry point {entry_point}.", names.join(", ")),
        responses: Some(Flow::fields([("headers", "none".into())])),
        ..Draft::default()
    };
    routes.finish(&mut draft);
    if draft.routes.is_empty() {
        let rows = report.findings.iter().filter(|row| row.verdict == Verdict::LeftOut);
        let problem = |row: &Finding| Problem::whole_file(&row.place, &row.there, &row.here);
        return Err(rows.map(problem).collect());
    }
    draft.to_do.extend(report.to_do);
    Ok(draft.finish(report.findings))
}

/// What cannot be read in a file: another language, and templates.
fn unread(input: &Input) -> Vec<Problem> {
    let Input { name, text } = input;
    let said = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let first = text.lines().map(str::trim).find(said).unwrap_or_default();
    let is_table = first.starts_with('[') && first.ends_with(']');
    let is_setting = first.split_once(" = ").is_some_and(|(key, _)| !key.contains([':', ' ']));
    if name.ends_with(".toml") || is_table || is_setting {
        let help = "write it as YAML, with the same names, and import that";
        return vec![Problem::whole_file(name, "TOML is not read", help)];
    }
    // Objects of Kubernetes have their own words for it.
    let is_file = text.lines().any(|line| line.trim_end() == "http:");
    let lines = text.lines().enumerate().filter(|(_, line)| {
        is_file
            && line.split(" #").next().is_some_and(|said| said.contains("{{"))
            && !line.trim_start().starts_with('#')
    });
    let problem = |(at, _): (usize, &str)| {
        let help = "write what Traefik makes of it in its place, and import again";
        let place = format!("{name}:{}", at + 1);
        Problem::whole_file(&place, "a template of Go is not read", help)
    };
    lines.map(problem).take(MAX_TEMPLATES).collect()
}

/// The entry point that is imported: the one that is asked for, or the one of most routers.
fn entry_point(configuration: &Configuration<'_>, options: &Options) -> String {
    if let Some(class) = &options.class {
        return class.clone();
    }
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in configuration.routers.iter().flat_map(|router| &router.entry_points) {
        match counts.iter_mut().find(|(own, _)| own == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let mut first = counts.iter().filter(|(_, count)| *count == most).map(|(name, _)| *name);
    // Without any in a router, the first one of the static configuration, or the one by default.
    let of_file = configuration.entry_points.iter().flatten().map(|(name, _)| name.as_str());
    first.next().or(of_file.into_iter().next()).unwrap_or("http").to_owned()
}

/// What is said once.
fn tell_of_all(configuration: &Configuration<'_>, entry_point: &str, report: &mut Report) {
    match &configuration.entry_points {
        None => report.left_out(
            "static configuration",
            "the middlewares and trusted peers of entry points",
            "not in the files: if entry points have middlewares, such as limits and authentication, \
             they are missing here. Give the static configuration, too (traefik.yml)",
        ),
        Some(all) if !all.iter().any(|(name, _)| name.eq_ignore_ascii_case(entry_point)) => {
            report.left_out(
                "static configuration",
                format!("entry point {entry_point}"),
                "it has no such entry point: Traefik serves none of its routers",
            );
        }
        Some(_) => report.same(
            "static configuration",
            format!("entry point {entry_point}"),
            "its middlewares come first; listeners and TLS are in the settings",
        ),
    }
    report.nearly(
        "all limits",
        "each process counts on its own, and begins anew with each change of its configuration",
        "counters stay; several proxies on one Redis count together: for N replicas write N times \
         the rate to let through what passes today",
    );
    report.nearly(
        "denials",
        "429 with Retry-After and X-Retry-In, as text",
        "429 with Retry-After, as JSON",
    );
}

#[cfg(test)]
mod tests;
