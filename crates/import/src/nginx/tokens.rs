//! Tokens that `auth_jwt` checks, whose issuer the policy has if the configuration asks for one.

use std::collections::BTreeSet;

use super::{Importer, directive::Directive, levels::Levels, times};
use crate::flow::Flow;

impl<'c> Importer<'c> {
    /// Whether tokens can be checked as `auth_jwt` does; the policy then has their issuer.
    pub(super) fn checks_tokens(&mut self, levels: &Levels<'c>, directive: &Directive) -> bool {
        let Some(identity) = self.identity_of(levels, directive) else { return false };
        self.report.ask(
            "tokens are checked with the key set that `identity` names: put that file beside the \
             policy, or write its path.",
        );
        self.identity.get_or_insert_with(|| identity.clone()) == &identity
    }

    fn identity_of(&self, levels: &Levels<'c>, directive: &Directive) -> Option<Flow> {
        let (issuer, audience) = self.required(levels)?;
        let [keys] = levels.nearest(&["auth_jwt_key_file"])[..] else { return None };
        let is_signed = levels.one("auth_jwt_type").is_none_or(|kind| kind.arg(0) == "signed");
        if !is_signed || keys.args.len() != 1 {
            return None;
        }
        let leeway = levels.one("auth_jwt_leeway").map_or("0s", |leeway| leeway.arg(0));
        let issuer = Flow::fields([
            ("name", "main".into()),
            ("issuer", issuer.into()),
            ("jwks_file", keys.arg(0).into()),
            ("leeway", format!("{}s", times::seconds(leeway)?).into()),
        ]);
        let issuer = issuer
            .with_some("any_audience", audience.is_empty().then_some(true))
            .with_list("audience", audience);
        let caller = Flow::fields([("name", "user".into()), ("key", "jwt.sub".into())]);
        Some(Flow::fields([
            ("jwt", Flow::list([issuer])),
            ("callers", Flow::list([caller])),
            ("token", source(directive)?),
        ]))
    }

    /// The issuer and the audiences that `auth_jwt_require` asks for, by maps of claims.
    fn required(&self, levels: &Levels<'c>) -> Option<(&'c str, Vec<&'c str>)> {
        let required = levels.nearest(&["auth_jwt_require"]).into_iter();
        let variables: BTreeSet<&str> = required
            .flat_map(|directive| directive.args.iter().map(String::as_str))
            .filter(|arg| !arg.starts_with("error="))
            .collect();
        let (mut issuer, mut audience) = (None, Vec::new());
        for variable in variables {
            let map = self.maps.find(variable.trim_start_matches('$'))?;
            let (defaults, entries): (Vec<_>, Vec<_>) =
                map.inner().iter().partition(|entry| entry.name == "default");
            let is_refused = |entry: &&Directive| matches!(entry.arg(0), "" | "0");
            let taken = entries.into_iter().filter(|entry| !is_refused(entry));
            let values: Vec<&str> = taken.map(|entry| entry.name.as_str()).collect();
            if !defaults.iter().all(is_refused) || values.iter().any(|own| own.starts_with('~')) {
                return None;
            }
            match (map.arg(0), &values[..]) {
                ("$jwt_claim_iss", [value]) => issuer = Some(*value),
                ("$jwt_claim_aud", _) => audience = values,
                _ => return None,
            }
        }
        Some((issuer?, audience))
    }
}

/// Where tokens are looked for.
fn source(directive: &Directive) -> Option<Flow> {
    let source = Flow::fields([("forward", true.into())]);
    let Some(variable) = directive.parameter("token") else { return Some(source) };
    match variable.trim_start_matches('$').split_once('_')? {
        ("cookie", name) => Some(source.with("cookie", name)),
        ("arg", name) => Some(source.with("query", name)),
        ("http", name) => Some(source.with("header", name.replace('_', "-"))),
        _ => None,
    }
}
