//! Annotations beside limits: what refuses requests, and what is left out.

use ipnet::IpNet;

use super::{
    Import,
    ingress::{Entry, Ingress},
    snippet::Snippet,
};
use crate::{Finding, Verdict, words};

/// What stands before the requests of an Ingress.
#[derive(Clone, Debug, Default)]
pub(super) struct Guards {
    /// Whether something refuses requests there that has no counterpart.
    pub(super) is_closed: bool,
    /// Whether only `auth-url` does, which does not hold for `no-auth-locations`.
    pub(super) is_authenticated: bool,
    pub(super) allow: Vec<IpNet>,
    pub(super) deny: Vec<IpNet>,
    /// Locations of snippets, which answer for themselves: patterns that are closed on its hosts.
    pub(super) locations: Vec<String>,
}

impl Guards {
    /// Whether any request may be refused.
    pub(super) fn are_some(&self) -> bool {
        let has_lists = !self.allow.is_empty() || !self.deny.is_empty();
        self.is_closed || self.is_authenticated || has_lists || !self.locations.is_empty()
    }
}

/// Annotations that say nothing of limits, access or the way of requests, and those that belong to
/// others.
const IGNORED: &str = "\
    auth-always-set-cookie auth-cache- auth-keepalive auth-method auth-proxy-set- auth-realm \
    auth-request-redirect auth-response-headers auth-secret auth-signin auth-tls-error-page \
    auth-tls-pass- auth-tls-verify-depth canary client-body-buffer-size cors- enable-access-log \
    enable-opentelemetry enable-rewrite-log http2-push-preload opentelemetry- proxy-buffer \
    proxy-busy-buffers-size proxy-http-version proxy-max-temp-file-size session-cookie-";

/// Annotations that are read elsewhere.
const READ: &str = "\
    allowlist-source-range auth-tls-match-cn backend-protocol denylist-source-range \
    enable-global-auth enable-owasp-core-rules limit-allowlist limit-burst-multiplier \
    limit-connections limit-rpm limit-rps limit-whitelist modsecurity-snippet \
    modsecurity-transaction-id permanent-redirect-code proxy-body-size proxy-connect-timeout \
    proxy-read-timeout proxy-send-timeout relative-redirects rewrite-target \
    temporal-redirect-code upstream-vhost use-regex whitelist-source-range";

/// Annotations without a counterpart in the policy, and what that means. By the longest name that
/// begins one.
const LEFT_OUT: [(&str, &str); 30] = [
    ("affinity", "write `balance: caller` at its upstream, if sessions need it"),
    ("app-root", "the path / is not redirected, but goes to its backend"),
    ("connection-proxy-header", "the proxy says itself what becomes of its connections"),
    ("custom-headers", "header fields of responses: write `response_headers` on its routes"),
    ("custom-http-errors", "responses of the backend are passed on as they are"),
    ("default-backend", "there is no other backend while the first has no servers: 503"),
    ("disable-proxy-intercept-errors", "responses of the backend are passed on as they are"),
    (
        "enable-cors",
        "write `cors: { origins: […], preflight: answer }`. Preflights are not counted there; \
         until then they go to the backend, and are counted",
    ),
    ("fastcgi-", "no FastCGI"),
    ("from-to-www-redirect", "the other host is not redirected: it has no route"),
    (
        "global-rate-limit",
        "controllers since 1.12 ignore it. Below is what it says, for older ones",
    ),
    ("limit-rate", "a limit of bytes a second for each response: no counterpart"),
    ("load-balance", "`balance` of its upstream is least_loaded"),
    ("mirror-", "no copies of requests"),
    ("preserve-trailing-slash", "of redirects, which the settings have"),
    ("proxy-cookie-", "cookies are passed on as they are"),
    ("proxy-next-upstream", "`retries` of its upstream has its defaults"),
    ("proxy-redirect-", "`location` of responses is passed on as it is"),
    ("proxy-request-buffering", "bodies are not held back, but passed on as they come"),
    ("proxy-ssl-", "write `tls` of its upstream: its certificate is always checked"),
    ("server-alias", "a regular expression: that name has no route"),
    ("service-upstream", "the name of the Service is what the policy has anyway"),
    ("ssl-ciphers", "TLS is of the settings, `listeners[].tls`"),
    (
        "ssl-passthrough",
        "there is no route: nothing of it is decrypted there, and here all would be",
    ),
    ("ssl-prefer-server-ciphers", "TLS is of the settings, `listeners[].tls`"),
    ("stream-snippet", "no streams beside HTTP"),
    ("upstream-hash-by", "write `balance: caller` at its upstream, if it needs the same server"),
    ("use-port-in-redirects", "of redirects, which the settings have"),
    ("x-forwarded-prefix", "write `request_headers` on its routes, if the backend reads it"),
    ("auth-snippet", "of auth-url"),
];

/// What refuses requests, or answers them, and has no counterpart.
const CLOSING: [(&str, &str); 6] = [
    ("auth-tls-secret", "client certificates: write `client_ca_file` of a listener"),
    ("auth-type", "write API keys, see identity.md"),
    (
        "permanent-redirect",
        "it only redirects, before any limit counts: nothing of it is forwarded",
    ),
    ("satisfy", "either of two guards"),
    ("temporal-redirect", "it only redirects, before any limit counts: nothing of it is forwarded"),
    ("auth-tls-verify-client", "client certificates: write `client_ca_file` of a listener"),
];

impl Import<'_> {
    /// What refuses requests to an Ingress, with a row for each of its annotations that no other
    /// part of the import reads.
    pub(super) fn guards(&mut self, ingress: &Ingress<'_>) -> Guards {
        let mut guards = Guards {
            allow: self.networks(ingress, &["allowlist-source-range", "whitelist-source-range"]),
            deny: self.networks(ingress, &["denylist-source-range"]),
            ..Guards::default()
        };
        self.note_access(ingress);
        if guards.allow.is_empty() {
            guards.allow.clone_from(&self.controller.allow);
        }
        guards.deny.extend(&self.controller.deny);
        for entry in &ingress.own {
            self.guard(ingress, entry, &mut guards);
        }
        if self.controller.is_authenticated && ingress.value("enable-global-auth") != Some("false")
        {
            guards.is_authenticated = true;
        }
        guards.is_closed |= self.controller.is_closed;
        guards.locations.extend(self.controller.locations.iter().cloned());
        for entry in &ingress.others {
            self.note_other(ingress, entry);
        }
        guards
    }

    fn note_access(&mut self, ingress: &Ingress<'_>) {
        let lists = ["allowlist-source-range", "whitelist-source-range", "denylist-source-range"];
        for entry in lists.iter().filter_map(|name| ingress.get(name)) {
            let field = if entry.name.starts_with("deny") { "deny" } else { "allow" };
            let here = format!("`{field}` of its routes. A refused request is not counted here");
            self.findings.push(ingress.row(entry, Verdict::Same, here));
        }
    }

    fn guard(&mut self, ingress: &Ingress<'_>, entry: &Entry, guards: &mut Guards) {
        let name = entry.name.as_str();
        let is_off = ["", "false", "off"].contains(&entry.value.as_str());
        if name == "auth-url" && !is_off {
            guards.is_authenticated = true;
            self.closed(
                ingress,
                entry,
                "another service is asked about each request: write `identity`",
            );
        } else if name == "enable-modsecurity" {
            self.firewall(ingress, entry, is_off, guards);
        } else if let Some((_, why)) = CLOSING.iter().find(|(own, _)| *own == name) {
            // `satisfy: all` is the default.
            if !is_off && entry.value != "all" {
                guards.is_closed = true;
                self.closed(ingress, entry, why);
            }
        } else if ["configuration-snippet", "server-snippet"].contains(&name) {
            self.snippet(ingress, entry, guards);
        } else if !words::has(READ, name) {
            self.note_left_out(ingress, entry, is_off, guards);
        }
    }

    /// A web application firewall refuses nothing unless a snippet tells it to.
    fn firewall(
        &mut self,
        ingress: &Ingress<'_>,
        entry: &Entry,
        is_off: bool,
        guards: &mut Guards,
    ) {
        let rules = ingress.value("modsecurity-snippet").unwrap_or_default().to_ascii_lowercase();
        let engine: Vec<&str> = rules.split_whitespace().collect();
        let is_enforcing = engine.windows(2).any(|words| words == ["secruleengine", "on"]);
        if is_off {
        } else if is_enforcing {
            guards.is_closed = true;
            self.closed(ingress, entry, "a firewall by rules (`SecRuleEngine On`)");
        } else {
            let here = "a firewall by rules, which only logs unless `SecRuleEngine On` is said: no \
                        counterpart";
            self.left_out(ingress, entry, here);
        }
    }

    fn snippet(&mut self, ingress: &Ingress<'_>, entry: &Entry, guards: &mut Guards) {
        let snippet = Snippet::read(&entry.value);
        if let Some(status) = snippet.status {
            self.statuses.insert(ingress.id(), status);
        }
        let (place, id) = (ingress.place(entry.span), ingress.id());
        self.note_snippet(&place, &format!("{id}: {}", entry.name), &snippet);
        guards.is_closed |= snippet.closes();
        guards.locations.extend(snippet.locations.into_iter().filter_map(|(_, own)| own).flatten());
    }

    /// Rows for what a snippet does.
    pub(super) fn note_snippet(&mut self, place: &str, name: &str, snippet: &Snippet) {
        let mut rows = Vec::new();
        for guard in &snippet.guards {
            rows.push((
                guard.clone(),
                "it may refuse requests or send them elsewhere: the routes are closed (403)",
            ));
        }
        for (location, patterns) in &snippet.locations {
            let here = match patterns {
                Some(_) => "it answers for itself: its paths are closed (403)",
                None => {
                    "its paths cannot be said by routes: the routes of the host are closed (403)"
                }
            };
            rows.push((location.clone(), here));
        }
        for limit in &snippet.limits {
            rows.push((
                limit.clone(),
                "a limit that is not in the policy: see `tollgate import nginx`",
            ));
        }
        if snippet.status.is_some() {
            self.findings.push(Finding::same(
                place,
                format!("{name}: the status of denials"),
                "`denied_status`",
            ));
        }
        if !snippet.others.is_empty() {
            rows.push((
                snippet.others.join(", "),
                "not in the policy; write header fields as `response_headers`",
            ));
        }
        for (what, here) in rows {
            self.findings.push(Finding::left_out(place, format!("{name}: {what}"), here));
        }
    }

    fn note_left_out(
        &mut self,
        ingress: &Ingress<'_>,
        entry: &Entry,
        is_off: bool,
        guards: &mut Guards,
    ) {
        let name = entry.name.as_str();
        if ["ssl-redirect", "force-ssl-redirect"].contains(&name) {
            if !is_off {
                self.redirects_to_tls = true;
                let there = format!("{}: {name}", ingress.id());
                let here = "`redirect: https` of a listener, in the settings: see below";
                self.findings.push(Finding::nearly(ingress.place(entry.span), there, here));
            }
            return;
        }
        if name.starts_with("global-rate-limit") {
            self.note_global_limit(ingress, entry);
            return;
        }
        let is_listed = |own: &&(&str, &str)| name.starts_with(own.0);
        if let Some((own, here)) = LEFT_OUT.iter().filter(is_listed).max_by_key(|own| own.0.len()) {
            guards.is_closed |= *own == "ssl-passthrough" && !is_off;
            let is_alias = *own == "server-alias" && !entry.value.contains('~');
            if !is_off && !is_alias {
                self.left_out(ingress, entry, here);
            }
        } else if !words::begin(IGNORED, name) {
            let is_limit = name.contains("limit") || name.contains("rate") || name.contains("size");
            let here = match is_limit {
                true => "ingress-nginx has no such annotation: it limits nothing there, nor here",
                false => "ingress-nginx has no such annotation: it does nothing there, nor here",
            };
            self.left_out(ingress, entry, here);
        }
    }

    fn note_global_limit(&mut self, ingress: &Ingress<'_>, entry: &Entry) {
        if entry.name != "global-rate-limit" {
            return;
        }
        self.left_out(
            ingress,
            entry,
            "controllers since 1.12 ignore it: see below, if yours is older",
        );
        let key = ingress.value("global-rate-limit-key").unwrap_or("$remote_addr");
        let window = ingress.value("global-rate-limit-window").unwrap_or("1s");
        let key = match key.trim_matches(['$', '{', '}']) {
            "remote_addr" | "binary_remote_addr" => "client.ip, ipv6_prefix: 128",
            "server_name" | "host" => "host",
            _ => "…",
        };
        self.draft.to_do.push(format!(
            "{} has `global-rate-limit: {}`. If your controller is older than 1.12, and has a \
             memcached\n\
             for it, write a limit, and name it on the routes of this Ingress:\n  {}-global: {{ \
             per: {key}, rate: {}/{window}, algorithm: sliding_window }}",
            ingress.id(),
            number_of(entry),
            ingress.resource.name,
            number_of(entry),
        ));
    }

    /// Annotations that another program reads: silent, but for those that look like limits.
    fn note_other(&mut self, ingress: &Ingress<'_>, entry: &Entry) {
        let here = match entry.name.split_once('/') {
            Some(("ingress.kubernetes.io", _)) => {
                "a prefix that ingress-nginx has not read since 0.9: it does nothing there, nor \
                 here"
            }
            Some(("nginx.org" | "nginx.com", _)) => {
                "of F5's controller, another program: ingress-nginx does nothing by it"
            }
            Some((prefix, name))
                if prefix.contains("nginx.ingress") && name.starts_with("limit") =>
            {
                "another prefix: if your controller has it by `--annotations-prefix`, write it as \
                 nginx.ingress.kubernetes.io and import again"
            }
            _ => return,
        };
        self.left_out(ingress, entry, here);
    }

    /// A row for what closes the routes of an Ingress.
    fn closed(&mut self, ingress: &Ingress<'_>, entry: &Entry, why: &str) {
        self.left_out(ingress, entry, &format!("{why}. Its routes are closed (403)"));
    }

    /// A row for an annotation that the policy does not have. Only numbers are shown of its value.
    pub(super) fn left_out(&mut self, ingress: &Ingress<'_>, entry: &Entry, here: &str) {
        let is_number = entry.value.len() < 12
            && entry.value.starts_with(|own: char| own.is_ascii_digit())
            && entry.value.chars().all(|own| own.is_ascii_alphanumeric() || own == '/');
        let is_secret = entry.name.contains("secret") || entry.name.contains("token");
        let there = match is_number && !is_secret {
            true => format!("{}: {}: {}", ingress.id(), entry.name, entry.value),
            false => format!("{}: {}", ingress.id(), entry.name),
        };
        self.findings.push(Finding::left_out(ingress.place(entry.span), there, here));
    }
}

/// A number for a comment.
fn number_of(entry: &Entry) -> &str {
    if entry.value.bytes().all(|own| own.is_ascii_digit()) { &entry.value } else { "…" }
}

impl Snippet {
    /// Whether all routes of its Ingress are closed by it.
    pub(super) fn closes(&self) -> bool {
        !self.guards.is_empty() || self.locations.iter().any(|(_, patterns)| patterns.is_none())
    }
}
