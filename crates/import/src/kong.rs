//! Kong's declarative configuration: what DB-less nodes read, and what decK writes.
//!
//! Of several plugins of one kind the most specific one is in force for a request, and the others
//! are not; so what holds on a route is looked up for each class of consumers (`tiers`). A
//! counter belongs to what its plugin is for. What refuses there and has no counterpart closes its
//! routes.
//!
//! - `file`: what is in the files, and which plugin of a kind is in force.
//! - `matching`, `paths`: the order of routes, and what of their conditions a `match` can say.
//! - `limit`: limits; `tiers`: consumers with limits of their own.
//! - `identity`: credentials; `auth`, `access`: who may use a route, and what plugins do to it;
//!   `others`: plugins without a counterpart; `values`: values of options.
//! - `backends`: upstreams; `routes`: all of it together; `trial`: the policy's tests.

mod access;
mod auth;
mod backends;
mod file;
mod identity;
mod limit;
mod matching;
mod others;
mod paths;
mod routes;
mod tiers;
mod trial;
mod values;

use tollgate_yaml::Problem;

use self::{
    file::File,
    limit::Limits,
    routes::{Parts, routes},
    tiers::Tiers,
};
use crate::{
    Finding, Imported, Input, Options, Problems,
    draft::Draft,
    flow::Flow,
    manifest::{self, Resource, field},
    report::Report,
    section::Section,
    words,
};

/// The policy for a configuration of Kong: all of its files, in YAML or JSON.
///
/// # Errors
/// What is wrong with the files, and that nothing in them is a route.
pub fn kong(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    let documents = documents(inputs)?;
    let roots = documents.iter().map(|own| Section::root(&own.document));
    let roots: Vec<Section<'_>> = roots.collect();
    let mut report = Report::default();
    let file = File::of(&roots, &mut report);
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    if file.routes.is_empty() {
        let help = "give the files that have `routes`, by themselves or in `services`, and those \
                    with their plugins and consumers";
        let name = names.first().copied().unwrap_or_default();
        return Err(vec![Problem::whole_file(name, "there is no route in the files", help)]);
    }
    let tiers = Tiers::of(&file, &mut report);
    let mut parts = Parts::default();
    let instead = options.upstream.as_deref();
    let (routes, trials) = routes((&file, instead), &tiers, &mut parts, &mut report);
    if routes.is_empty() {
        let rows = report.findings.iter().filter(|row| row.there.starts_with("route"));
        let problem = |row: &Finding| Problem::whole_file(&row.place, &row.there, &row.here);
        return Err(rows.map(problem).collect());
    }
    let Parts { limits, identity, backends } = parts;
    let has_limits = limits.has_headers.is_some();
    if has_limits {
        tell_of_limits(&mut report);
    }
    let status = limits.statuses.first().copied().unwrap_or(429);
    let draft = Draft {
        title: format!("From {}: Kong's declarative configuration.", names.join(", ")),
        responses: Some(responses(&limits, status)),
        identity: identity.section(&file, &tiers, &mut report),
        tiers: tiers.section(),
        tests: trial::tests(&trials, (&identity, &tiers), status),
        limits: limits.section(),
        upstreams: backends.section(&mut report),
        routes,
        to_do: report.to_do,
        ..Draft::default()
    };
    Ok(draft.finish(report.findings))
}

/// The configurations in files. Problems do not show the lines where they are: these may have
/// secrets.
fn documents(inputs: &[Input]) -> Result<Vec<Resource>, Problems> {
    let bare = |own: &Problem| Problem::whole_file(&own.place(), own.message(), own.help());
    let found = manifest::resources(inputs)
        .map_err(|problems| problems.iter().map(bare).collect::<Problems>())?;
    let names = ["_format_version", "services", "routes", "plugins", "consumers", "upstreams"];
    let mut problems = Vec::new();
    for own in &found {
        let is_kong = names.iter().any(|name| field(&own.node, name).is_some());
        if !own.kind.is_empty() || !is_kong {
            let message = "it is no configuration of Kong: it has none of `services`, `routes`, \
                           `plugins`, `consumers` and `upstreams`";
            let help = "give the file that DB-less nodes read, or what `deck gateway dump` writes; \
                        for objects of Kubernetes, that of the gateway that they configure";
            problems.push(Problem::whole_file(&own.place(&own.node), message, help));
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Names the fields that are none of these.
fn tell_of_rest(
    section: Section<'_>,
    (what, here): (&str, &str),
    known: &str,
    report: &mut Report,
) {
    const ALWAYS: &str = "id tags created_at updated_at ws_id _comment _ignore";
    let is_rest = |name: &&str| !words::has(known, name) && !words::has(ALWAYS, name);
    let names: Vec<&str> = section.names().filter(is_rest).collect();
    if !names.is_empty() {
        report.left_out(section.place(), format!("{what}: {}", names.join(", ")), here);
    }
}

fn responses(limits: &Limits, status: u64) -> Flow {
    let headers = if limits.has_headers == Some(true) { "kong" } else { "none" };
    let mut responses = Flow::fields([("headers", headers.into())]);
    if status != 429 {
        responses = responses.with("denied_status", status);
    }
    match limits.jitter {
        0 => responses,
        seconds => responses.with("jitter", format!("{seconds}s")),
    }
}

/// What is said once.
fn tell_of_limits(report: &mut Report) {
    report.nearly(
        "all limits",
        "each node counts on its own (`policy: local`), after it has decided: requests at once may \
         pass together",
        "deciding and counting are one step. Several proxies on one Redis count together: for N \
         nodes write N times the rate to let through what passes today",
    );
    report.nearly(
        "all limits",
        "windows are those of the clock, in UTC",
        "align: epoch: the same windows, also of months and years (align: calendar)",
    );
    report.nearly("denials", "`message` in JSON", "JSON of another form, with Retry-After");
}

#[cfg(test)]
mod tests;
