//! Who may use a location: networks, and whatever else refuses.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{Importer, directive::Directive, levels::Levels, maps::network, rows::Closing};
use crate::{Finding, draft::EVERYBODY, words};

/// What refuses requests, beside what begins with `auth_` and the like.
const GUARDS: &str = "\
    ModSecurityEnabled SecRulesEnabled app_protect_enable forbid_action js_access \
    limit_req_whitelist modsecurity perl_access ssl_verify_client testcookie uwsgi_auth";

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
        let is_any = |satisfy: &&Directive| satisfy.arg(0) == "any" && !rules.is_empty();
        let any = levels.one("satisfy").filter(is_any);
        if let Some(satisfy) = any {
            self.row(satisfy.nearly(
                "the networks alone decide: clients that only have a credential are refused, which \
                 is stricter",
            ));
        }
        let mut seen = BTreeSet::new();
        for directive in levels.all().filter(|directive| is_guard(directive)) {
            if !seen.insert(directive.name.as_str()) || is_off(directive) {
                continue;
            }
            if any.is_some() {
                self.row(
                    directive.left_out(
                        "no counterpart: the networks of `allow` and `deny` alone decide",
                    ),
                );
            } else if directive.name == "auth_jwt" && self.checks_tokens(levels, directive) {
                access.needs_token = true;
                self.row(directive.nearly(
                    "`auth: required`; a token needs `sub`, `iss` and `exp`, and a request with a \
                     bad one charges its address alone",
                ));
            } else {
                access.is_closed = true;
                let closing = instead(&directive.name);
                self.close(&directive.place, directive.said(), &closing);
            }
        }
        access
    }

    /// What `allow` and `deny` say, of which the first that matches decides.
    fn networks(&mut self, rules: &[&Directive]) -> Access {
        let Some(first) = rules.first() else { return Access::default() };
        let networks = Networks::of(rules);
        let access = networks.access();
        let said: Vec<String> =
            rules.iter().map(|rule| format!("{} {}", rule.name, rule.arg(0))).take(6).collect();
        let (place, said) = (first.place.to_string(), said.join("; "));
        let mut here = String::new();
        for (name, list) in [("allow", &access.allow), ("deny", &access.deny)] {
            if !list.is_empty() {
                here = format!("{here}`{name}` of {} on the route; ", list.len());
            }
        }
        here.push_str("refused requests are 403 and charge no limit");
        if access.is_closed {
            let instead =
                "write the networks that may not use it into `deny`, in place of all addresses";
            self.close(&first.place, said, &Closing::guard(instead));
        } else if networks.is_exact {
            self.row(Finding::same(place, said, here));
        } else {
            here.push_str(". `deny` wins here over an `allow` before it, which is stricter");
            self.row(Finding::nearly(place, said, here));
        }
        access
    }
}

/// The networks of `allow` and `deny`, up to the rule for all.
struct Networks {
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
    /// Whether all others may use it.
    is_open: bool,
    /// Whether they are the same when what is denied is denied, whatever comes before.
    is_exact: bool,
    /// Whether all that are denied can be read.
    is_whole: bool,
}

impl Networks {
    fn of(rules: &[&Directive]) -> Self {
        let (allowed, denied) = (Vec::new(), Vec::new());
        let mut own = Networks { allowed, denied, is_open: true, is_exact: true, is_whole: true };
        for rule in rules {
            let is_allow = rule.name == "allow";
            match (rule.arg(0), network(rule.arg(0))) {
                ("all", _) => {
                    own.is_open = is_allow;
                    break;
                }
                // No client of ours comes so.
                ("unix:", _) => {}
                (_, Some(network)) if is_allow => own.allowed.push(network),
                (_, Some(network)) => {
                    let meets = |other: &IpNet| other.contains(&network) || network.contains(other);
                    own.is_exact &= !own.allowed.iter().any(meets);
                    own.denied.push(network);
                }
                (_, None) if is_allow => own.is_exact = false,
                (_, None) => own.is_whole = false,
            }
        }
        own
    }

    fn access(&self) -> Access {
        let texts = |networks: &[IpNet]| networks.iter().map(IpNet::to_string).collect();
        let (allow, deny) = match (self.is_open, self.allowed.is_empty()) {
            (true, _) => (Vec::new(), texts(&self.denied)),
            (false, false) => (texts(&self.allowed), texts(&self.denied)),
            (false, true) => (Vec::new(), EVERYBODY.map(str::to_owned).into()),
        };
        Access { allow, deny, is_closed: !self.is_whole, needs_token: false }
    }
}

/// Whether a directive refuses some of the requests.
pub(super) fn is_guard(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    // These only say more about others.
    let is_more = words::has("auth_basic_user_file auth_request_set auth_delay", name)
        || words::begin("auth_jwt_ auth_http auth_digest_", name);
    !is_more
        && (words::has(GUARDS, name)
            || words::begin("auth_ access_by_lua rewrite_by_lua oidc_", name))
}

fn is_off(directive: &Directive) -> bool {
    matches!(directive.arg(0).to_ascii_lowercase().as_str(), "off" | "optional" | "optional_no_ca")
}

fn instead(guard: &str) -> Closing {
    Closing::guard(match guard {
        "auth_basic" => {
            "give callers API keys or tokens (`identity`) and write `auth: required`, or let the \
             upstream ask for the password; then take the `deny` out"
        }
        "auth_jwt" => {
            "write the issuer of its tokens into `identity.jwt`, which has to be known here \
             (nginx takes those of any), and `auth: required`; then take the `deny` out"
        }
        "auth_request" => {
            "check the credential by `identity` (tokens, API keys, introspection), or let the \
             upstream do so; then take the `deny` out"
        }
        "ssl_verify_client" => {
            "ask for client certificates at the listener, name callers by them, and write \
             `auth: required`; then take the `deny` out"
        }
        _ => {
            "write what it checks into the policy, or let the upstream do so; then take the `deny` \
             out"
        }
    })
}
