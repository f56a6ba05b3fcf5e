//! Limits that requests pass by without a word: by leaving out what they are counted by, on routes
//! that read no token, and where nothing costs anything.

use tollgate_identity::Auth;
use tollgate_yaml::{Check, warning::Rule};

use crate::{
    Chooser, KeyPart, Limit, OnMissing, Policy, Route,
    compile::{Compiler, costs::highest},
    file::RawPolicy,
};

impl Compiler<'_> {
    /// A header or a cookie that a client leaves out, unless the limit says what happens then.
    pub(super) fn warn_of_skippable_keys(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (at, (limit, (_, raw))) in policy.limits.iter().zip(raw.limits.iter()).enumerate() {
            let is_sent = |part: &&KeyPart| part.chooser() == Chooser::Client;
            let Some(part) = limit.per.parts.iter().find(is_sent) else { continue };
            if raw.on_missing.is_some() || routes_of(at, policy).next().is_none() {
                continue;
            }
            let message = format!("requests without `{part}` are not counted");
            let help = "write `on_missing: deny` or `on_missing: share`, or count by `client.ip` \
                        instead; if that is meant, write `on_missing: skip`";
            self.warn(Rule::SkippableKey, raw.per.span, message, help);
        }
    }

    /// Claims, on routes that read no token.
    pub(super) fn warn_of_claims_without_token(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (route, raw) in policy.routes.iter().zip(&raw.routes.value) {
            if route.auth != Auth::None {
                continue;
            }
            for (limit, name) in route.limits.iter().zip(&raw.value.limits) {
                let Some(limit) = policy.limits.get(*limit) else { continue };
                let is_signed = |part: &&KeyPart| part.chooser() == Chooser::Issuer;
                let Some(part) = limit.per.parts.iter().find(is_signed) else { continue };
                let consequence = match limit.per.on_missing {
                    OnMissing::Skip => "counts nothing here",
                    OnMissing::Deny => "refuses every request here",
                    OnMissing::Share => "has one counter for all requests here",
                };
                let message = format!(
                    "limit `{}` {consequence}: it needs `{part}`, and `auth: none` reads no token",
                    limit.name
                );
                let help = "write `auth: required` or `auth: optional`, or take it off this route";
                self.warn(Rule::ClaimWithoutToken, name.span, message, help);
            }
        }
    }

    /// Limits for which every request of their routes costs nothing.
    pub(super) fn warn_of_limits_that_never_count(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (at, (limit, (name, _))) in policy.limits.iter().zip(raw.limits.iter()).enumerate() {
            let mut routes = routes_of(at, policy).peekable();
            let is_listed = routes.peek().is_some();
            if is_listed && !limit.counts_leases() && routes.all(|route| is_free(route, limit)) {
                let message =
                    format!("limit `{}` never counts: its routes cost nothing", limit.name);
                let help = "give a method of its routes a cost, or remove the limit";
                self.warn(Rule::NeverCounts, name.span, message, help);
            }
        }
    }
}

fn routes_of(limit: usize, policy: &Policy) -> impl Iterator<Item = &Route> {
    policy.routes.iter().filter(move |route| route.limits.contains(&limit))
}

/// Whether no request of a route costs anything of a limit.
fn is_free(route: &Route, limit: &Limit) -> bool {
    let cost = route.cost.as_ref().unwrap_or(&limit.cost);
    cost.source.is_none() && highest(cost, &route.methods) == 0
}
