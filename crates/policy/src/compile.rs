//! From the file's shapes to a [`Policy`], or every problem with its place and what to write
//! instead.
//!
//! Each section is compiled on its own, so that one mistake hides no other: what cannot be compiled
//! is left out and noted, and a policy with notes is never used.

mod auth;
mod callers;
mod cases;
mod claims;
mod cors;
mod cost_sources;
mod costs;
mod descriptors;
mod failures;
mod files;
mod fingerprint;
mod identity;
mod issuers;
mod keys;
mod limits;
mod measure;
mod networks;
mod notes;
mod open;
mod overrides;
mod path_reading;
mod private;
mod quotas;
mod rates;
mod reach;
mod responses;
mod rewriting;
mod routes;
mod statuses;
mod tiers;
mod transport;
mod upstreams;
pub(crate) mod warnings;
mod words;
mod written;

use std::{path::Path, sync::Arc};

use http::HeaderName;
use tollgate_identity::Tiers;
use tollgate_usage::{path::Path as JsonPath, request::Members};
use tollgate_yaml::{Check, Document, Inspection, Problem, Sources};

use self::{
    fingerprint::Fingerprint,
    notes::notes,
    open::open_parts,
    routes::RouteContext,
    written::{WrittenNames, WrittenPolicy},
};
use super::{
    HostPattern, Limit, OpenParts, Policy, Route, Router,
    facts::facts,
    file::{LATER, RawPolicy, schema},
};

/// Compiles the policy in `text`. `file` is its path: messages show it, its stem names the policy,
/// and key files are found beside it.
///
/// # Errors
/// Every problem, in the order of their places.
pub fn load(file: &Path, text: &str, sources: &Sources) -> Result<Policy, Vec<Problem>> {
    let shown = file.display().to_string();
    let document = Document::parse_with(&shown, text, sources)
        .map_err(|problem| vec![problem])?
        .with_schema(schema())
        .with_stand_ins();
    let mut problems = Vec::new();
    let raw = document.decode::<RawPolicy>(LATER, &mut problems);
    let inspection = Inspection::new(&document, file, sources, problems);
    let mut compiler = Compiler {
        name: file.file_stem().map(|stem| stem.to_string_lossy().into()).unwrap_or_default(),
        fingerprint: Fingerprint::new(),
        knows_tiers: true,
        members: Vec::new(),
        inspection,
    };
    let policy = raw.and_then(|raw| compiler.policy(raw));
    compiler.inspection.conclude(policy)
}

struct Compiler<'d> {
    name: Box<str>,
    inspection: Inspection<'d>,
    /// A digest of everything that identifies callers.
    fingerprint: Fingerprint,
    /// Whether all names of tiers are known.
    knows_tiers: bool,
    /// The members of the bodies of requests that something asks for.
    members: Vec<JsonPath>,
}

impl<'d> Check<'d> for Compiler<'d> {
    fn inspection(&mut self) -> &mut Inspection<'d> {
        &mut self.inspection
    }
}

impl Compiler<'_> {
    fn policy(&mut self, raw: RawPolicy) -> Option<Policy> {
        self.version(&raw.version);
        let hosts: Vec<HostPattern> =
            raw.hosts.iter().filter_map(|host| self.host_pattern(host)).collect();
        let upstreams = self.upstreams(&raw.upstreams);

        // Sections refer to what was written, sound or not: one mistake is reported once.
        let written = WrittenPolicy::of(self.inspection.document);
        let names = written.names();
        self.knows_tiers = names.knows_tiers;
        let tiers = self.tiers(raw.tiers.as_ref());
        let found = self.inspection.problems.len();
        let identity = self.identity(&raw.identity, &tiers);
        let is_identity_sound = self.inspection.problems.len() == found
            && !self.inspection.doubts.is_in_section("identity");
        let limits = self.limits(&raw, &names, &tiers);
        let listed = |compiler: &mut Self, list: &[_]| compiler.listed(list, &raw.identity, &names);
        let exempt = listed(self, &raw.exempt);
        let deny = listed(self, &raw.deny);

        let encoded_slash = self.keyword_or_default(raw.paths.encoded_slash.as_ref());
        let method_override = self.keyword_or_default(raw.method_override.as_ref());
        let own: Vec<HeaderName> =
            identity.iter().flat_map(|rules| rules.own_headers()).cloned().collect();
        let cors = raw.cors.as_ref().and_then(|cors| self.cors(&cors.value)).map(Arc::new);
        let context = RouteContext {
            names: &names,
            hosts: &hosts,
            limits: &limits,
            upstreams: &upstreams,
            tiers: &tiers,
            identity: identity.as_ref(),
            own_headers: &own,
            cors: cors.as_ref(),
        };
        let (matchers, routes) = self.routes(&raw.routes, &context);
        let descriptors = self.descriptor_rules(&raw.rls, &names.limits, &limits);
        let sources = identity.as_ref().map(|rules| &rules.sources);
        let responses = self.responses(&raw.responses, sources);
        let members = self.found_members(&raw);
        let tests =
            self.cases(&raw, &names, &hosts, identity.as_ref().filter(|_| is_identity_sound));
        let identity = identity?;
        if self.inspection.problems.is_empty() {
            self.check_callers(&raw, &routes, &limits, &identity);
        }
        // A limit with a mistake is not among them.
        let private = match self.inspection.problems.is_empty() {
            true => self.private(&raw.private, &limits, &identity),
            false => Vec::new(),
        };
        let mut policy = Policy {
            vouchers: self.vouchers(&raw.identity, &identity),
            position: 0,
            name: self.name.clone(),
            hosts,
            upstreams,
            facts: facts(&limits, &identity, &private),
            identity,
            core: core(&limits, &routes),
            limits,
            members: members?,
            descriptors,
            encoded_slash: encoded_slash?,
            method_override: method_override?,
            router: Router::new(matchers),
            routes,
            responses: responses?,
            cors,
            exempt,
            deny,
            tests,
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        self.review(&raw, &mut policy);
        Some(policy)
    }

    /// What is looked for in the bodies of requests; none: nothing.
    fn found_members(&mut self, raw: &RawPolicy) -> Option<Option<Members>> {
        if self.members.is_empty() {
            return Some(None);
        }
        match Members::new(&self.members) {
            Ok(members) => Some(Some(members)),
            Err(error) => {
                let place = raw.routes.span;
                self.refuse(
                    place,
                    format!("of the bodies of requests: {error}"),
                    "name fewer paths",
                );
                None
            }
        }
    }

    /// Those that are sound.
    fn limits(&mut self, raw: &RawPolicy, names: &WrittenNames<'_>, tiers: &Tiers) -> Vec<Limit> {
        let written = raw.limits.iter();
        let mut limits: Vec<Limit> = written
            .filter_map(|(name, limit)| self.limit(name, limit, tiers, &names.issuers))
            .collect();
        self.overrides(raw, names, tiers, &mut limits);
        self.check_window_names(&raw.limits, &limits);
        limits
    }

    /// Adds what only the whole policy tells: who can choose what limits count by, notes and
    /// warnings.
    fn review(&mut self, raw: &RawPolicy, policy: &mut Policy) {
        policy.notes = notes(raw, policy, self.inspection.document);
        let open: Vec<OpenParts> =
            (0..policy.limits.len()).map(|limit| open_parts(limit, policy)).collect();
        policy.limits.iter_mut().zip(open).for_each(|(limit, open)| limit.open = open);
        self.warn_of(raw, policy);
        policy.warnings = self.take_warnings();
    }
}

/// The limit that represents all: the one named `core`, else the first that a route charges.
fn core(limits: &[Limit], routes: &[Route]) -> Option<usize> {
    let called = limits.iter().position(|limit| &*limit.name == "core");
    called.or_else(|| routes.iter().find_map(|route| route.limits.first().copied()))
}

#[cfg(test)]
mod tests;
