//! Who may use a location: networks, and whatever else refuses.

use std::collections::BTreeSet;

use super::{Importer, directive::Directive, levels::Levels, maps::network};
use crate::{Finding, draft::EVERYBODY, flow::Flow};

/// Who may use a route.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    /// Whether a token is needed.
    pub(super) needs_token: bool,
    /// Whether something refuses that has no counterpart.
    pub(super) is_closed: bool,
}

impl Access {
    /// Whether some requests are refused.
    pub(super) fn refuses(&self) -> bool {
        self.is_closed || self.needs_token || !self.allow.is_empty() || !self.deny.is_empty()
    }
}

impl<'c> Importer<'c> {
    /// Who may use what has these levels.
    pub(super) fn access(&mut self, levels: &Levels<'c>) -> Access {
        let rules = levels.nearest(&["allow", "deny"]);
        let mut access = self.networks(&rules);
        let is_any = levels.one("satisfy").is_some_and(|satisfy| satisfy.arg(0) == "any")
            && !rules.is_empty();
        if is_any && let Some(satisfy) = levels.one("satisfy") {
            let here = "the networks alone decide: clients that only have a credential are \
                        refused, which is stricter";
            self.row(satisfy.nearly(here));
        }
        let mut seen = BTreeSet::new();
        for directive in levels.all().filter(|directive| is_guard(directive)) {
            if !seen.insert(directive.name.as_str()) || is_off(directive) {
                continue;
            }
            let (place, there) = (directive.place.to_string(), directive.said());
            if is_any {
                self.row(Finding::left_out(
                    place,
                    there,
                    "no counterpart: the networks of `allow` and `deny` alone decide",
                ));
            } else if directive.name == "auth_jwt" && self.token(levels, directive) {
                access.needs_token = true;
                self.row(Finding::nearly(
                    place,
                    there,
                    "`auth: required`; a token needs `sub`, \
                     `iss` and `exp`, and a request with a bad one charges its address alone",
                ));
            } else {
                access.is_closed = true;
                self.close(place, there, instead(&directive.name));
            }
        }
        access
    }

    /// What `allow` and `deny` say, of which the first that matches decides.
    fn networks(&mut self, rules: &[&Directive]) -> Access {
        let mut access = Access::default();
        let Some(first) = rules.first() else { return access };
        let (mut is_open, mut is_exact) = (true, true);
        let (mut allowed, mut denied) = (Vec::new(), Vec::new());
        for rule in rules {
            let is_allow = rule.name == "allow";
            match rule.arg(0) {
                "all" => {
                    is_open = is_allow;
                    break;
                }
                // No client of ours comes so.
                "unix:" => {}
                text => match (network(text), is_allow) {
                    (Some(network), true) => allowed.push(network),
                    (Some(network), false) => {
                        // Here what is denied is denied, whatever comes before.
                        is_exact &= !allowed
                            .iter()
                            .any(|other| other.contains(&network) || network.contains(other));
                        denied.push(network);
                    }
                    (None, true) => is_exact = false,
                    (None, false) => access.is_closed = true,
                },
            }
        }
        access.deny = denied.iter().map(ToString::to_string).collect();
        if !is_open {
            access.allow = allowed.iter().map(ToString::to_string).collect();
            if allowed.is_empty() {
                access.deny = EVERYBODY.map(str::to_owned).into();
            }
        }
        let said = rules
            .iter()
            .map(|rule| format!("{} {}", rule.name, rule.arg(0)))
            .take(6)
            .collect::<Vec<_>>()
            .join("; ");
        let (place, mut here) = (first.place.to_string(), String::new());
        for (name, list) in [("allow", &access.allow), ("deny", &access.deny)] {
            if !list.is_empty() {
                here = format!("{here}`{name}` of {} on the route; ", list.len());
            }
        }
        let here = format!("{here}refused requests are 403 and charge no limit");
        match (access.is_closed, is_exact) {
            (true, _) => {
                self.close(place, said, "write the networks that may not use it into `deny`")
            }
            (false, true) => self.row(Finding::same(place, said, here)),
            (false, false) => self.row(Finding::nearly(
                place,
                said,
                format!("{here}. `deny` wins here over an `allow` before it, which is stricter"),
            )),
        }
        access
    }

    /// Whether tokens can be checked as `auth_jwt` does; the policy then has their issuer.
    fn token(&mut self, levels: &Levels<'c>, directive: &Directive) -> bool {
        let required: BTreeSet<&str> = levels
            .nearest(&["auth_jwt_require"])
            .into_iter()
            .flat_map(|directive| directive.args.iter().map(String::as_str))
            .filter(|arg| !arg.starts_with("error="))
            .collect();
        let mut issuer = None;
        let mut audience = Vec::new();
        for variable in required {
            let Some(map) = self.maps.find(variable.trim_start_matches('$')) else { return false };
            let values: Vec<&str> = map
                .inner()
                .iter()
                .filter(|entry| entry.name != "default" && !matches!(entry.arg(0), "" | "0"))
                .map(|entry| entry.name.as_str())
                .collect();
            let is_plain = values.iter().all(|value| !value.starts_with('~'))
                && map
                    .inner()
                    .iter()
                    .all(|entry| entry.name != "default" || matches!(entry.arg(0), "" | "0"));
            match (map.arg(0), &values[..], is_plain) {
                ("$jwt_claim_iss", [value], true) => issuer = Some(*value),
                ("$jwt_claim_aud", values, true) => audience = values.to_vec(),
                _ => return false,
            }
        }
        let Some(issuer) = issuer else { return false };
        let keys = levels.nearest(&["auth_jwt_key_file"]);
        let is_signed = levels.one("auth_jwt_type").is_none_or(|kind| kind.arg(0) == "signed");
        let ([keys], true, 1) =
            (&keys[..], is_signed, keys.first().map_or(0, |keys| keys.args.len()))
        else {
            return false;
        };
        let leeway = levels.one("auth_jwt_leeway").map_or("0s", |leeway| leeway.arg(0));
        let Some(leeway) = super::times::seconds(leeway) else { return false };
        let entry = Flow::fields([
            ("name", "main".into()),
            ("issuer", issuer.into()),
            ("jwks_file", keys.arg(0).into()),
            ("leeway", format!("{leeway}s").into()),
        ]);
        let entry = if audience.is_empty() {
            entry.with("any_audience", true)
        } else {
            entry.with("audience", Flow::list(audience))
        };
        let caller = Flow::fields([("name", "user".into()), ("key", "jwt.sub".into())]);
        let mut identity =
            Flow::fields([("jwt", Flow::List(vec![entry])), ("callers", Flow::List(vec![caller]))]);
        let token = directive.parameter("token").map(|token| token.trim_start_matches('$'));
        let mut source = Flow::fields([("forward", true.into())]);
        source = match token.map(|token| (token, token.split_once('_'))) {
            None => source,
            Some((_, Some(("cookie", name)))) => source.with("cookie", name),
            Some((_, Some(("arg", name)))) => source.with("query", name),
            Some((_, Some(("http", name)))) => source.with("header", name.replace('_', "-")),
            Some(_) => return false,
        };
        identity = identity.with("token", source);
        self.report.ask(
            "tokens are checked with the key set that `identity` names: put that \
             file beside the policy, or write its path.",
        );
        let is_new = self.identity.is_none();
        let is_alike = self.identity.get_or_insert(identity.clone()) == &identity;
        is_new || is_alike
    }
}

/// Whether a directive refuses some of the requests.
pub(super) fn is_guard(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    // These only say more about others.
    let is_more = ["auth_basic_user_file", "auth_request_set", "auth_delay"].contains(&name)
        || name.starts_with("auth_jwt_")
        || name.starts_with("auth_http")
        || name.starts_with("auth_digest_");
    let others = [
        "modsecurity",
        "ModSecurityEnabled",
        "SecRulesEnabled",
        "testcookie",
        "ssl_verify_client",
        "app_protect_enable",
        "forbid_action",
        "js_access",
        "perl_access",
        "uwsgi_auth",
        "limit_req_whitelist",
    ];
    !is_more
        && (name.starts_with("auth_")
            || name.starts_with("access_by_lua")
            || name.starts_with("rewrite_by_lua")
            || name.starts_with("oidc_")
            || others.contains(&name))
}

fn is_off(directive: &Directive) -> bool {
    matches!(directive.arg(0).to_ascii_lowercase().as_str(), "off" | "optional" | "optional_no_ca")
}

fn instead(guard: &str) -> &'static str {
    match guard {
        "auth_basic" => {
            "give callers API keys or tokens (`identity`) and write `auth: required`, or let \
             the upstream ask for the password"
        }
        "auth_jwt" => {
            "write the issuer of its tokens into `identity.jwt`, which has to be known here \
             (nginx takes those of any), and `auth: required`"
        }
        "auth_request" => {
            "check the credential by `identity` (tokens, API keys, introspection), or let the \
             upstream do so"
        }
        "ssl_verify_client" => {
            "ask for client certificates at the listener, name callers by them, and write \
             `auth: required`"
        }
        _ => "write what it checks into the policy, or let the upstream do so",
    }
}
