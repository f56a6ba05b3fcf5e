//! Routes: which requests they match, which clients they admit, what they charge.

use std::{ops::Range, sync::Arc};

use http::{HeaderName, Method};
use tollgate_identity::{Auth, CallerKey, ClaimRules, IdentityRules, Tiers};
use tollgate_yaml::{Check, Spanned, suggest, warning::Rule};

use super::{
    Compiler, WrittenNames,
    reach::{Charged, Reach},
    words::Names,
};
use crate::{
    BodyReading, Cors, Cost, HostPattern, KeyPart, Limit, Matcher, OnMissing, PathPattern, Reserve,
    Route, Upstream,
    file::{RawPolicy, RawRoute},
};

/// Limits that one route may take: what a request costs must stay small.
const MAX_LIMITS_A_ROUTE: usize = 8;

/// Methods besides the usual ones: those of IANA's registry, of caches and of UPnP.
const OTHER_METHODS: &str = "\
    ACL BAN BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY \
    MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE NOTIFY ORDERPATCH PRI PROPFIND PROPPATCH PURGE \
    QUERY REBIND REPORT SEARCH SUBSCRIBE UNBIND UNCHECKOUT UNLINK UNLOCK UNSUBSCRIBE UPDATE \
    UPDATEREDIRECTREF VERSION-CONTROL";

/// What routes refer to.
pub(super) struct RouteContext<'c> {
    pub(super) names: &'c WrittenNames<'c>,
    pub(super) hosts: &'c [HostPattern],
    /// Those that are sound.
    pub(super) limits: &'c [Limit],
    /// Those that are sound.
    pub(super) upstreams: &'c [Upstream],
    pub(super) tiers: &'c Tiers,
    /// Who may call; none: there is a mistake in it.
    pub(super) identity: Option<&'c IdentityRules>,
    /// Those that say who is calling.
    pub(super) own_headers: &'c [HeaderName],
    /// What the policy says for routes that do not.
    pub(super) cors: Option<&'c Arc<Cors>>,
}

impl<'c> RouteContext<'c> {
    pub(super) fn limit(&self, name: &str) -> Option<&'c Limit> {
        self.limits.iter().find(|limit| *limit.name == *name)
    }

    /// Whether client certificates name callers.
    pub(super) fn has_certificates(&self) -> bool {
        let mut callers = self.identity.iter().flat_map(|rules| &rules.callers);
        callers.any(|caller| matches!(caller.key, CallerKey::Certificate(_)))
    }
}

impl Compiler<'_> {
    /// Those that are sound, each with what it matches.
    pub(super) fn routes(
        &mut self,
        raw: &Spanned<Vec<Spanned<RawRoute>>>,
        context: &RouteContext<'_>,
    ) -> (Vec<Matcher>, Vec<Route>) {
        if raw.value.is_empty() {
            let help = "add one: `- { match: { path: \"/**\" }, limits: [] }`";
            self.refuse(raw.span, "no route", help);
        }
        raw.value.iter().filter_map(|route| self.route(route, context)).unzip()
    }

    fn route(
        &mut self,
        raw: &Spanned<RawRoute>,
        context: &RouteContext<'_>,
    ) -> Option<(Matcher, Route)> {
        let route = &raw.value;
        let host = match &route.matcher.host {
            None => Some(None),
            Some(host) => self.route_host(host, context.hosts).map(Some),
        };
        let path = self.path(&route.matcher.path);
        let methods: Vec<Method> =
            route.matcher.methods.iter().filter_map(|method| self.method(method)).collect();
        let from = self.networks_in("from", route.matcher.from.as_ref());
        let addresses = self.address_rules(route);
        let auth = self.auth(route, context);
        let scopes = self.scopes(&route.scopes);
        let auth = self.auth_for_scopes(auth, route);
        let limits = self.route_limits(raw, context);
        let upstream = self.route_upstream(raw, &context.names.upstreams);
        let cost = match &route.cost {
            None => Some(None),
            Some(cost) => self.cost(cost).map(Some),
        };
        if let Some(cost) = &cost {
            let reach = Reach::new(auth.as_ref(), context.identity);
            let charged = Charged { cost: cost.as_ref(), methods: &methods, reach: &reach };
            self.check_costs(route, &charged, context);
        }
        let rewrite = self.path_rewrite(route, path.as_ref());
        let (request_headers, response_headers) = self.route_edits(route, context.own_headers);
        let cors = self.route_cors(route.cors.as_ref(), context.cors);
        let upgrades = self.upgrades(route);
        let max_body = route.max_body.as_ref().and_then(|node| self.bytes(node, 0..=u64::MAX));
        let path = path?;
        let served_by = upstream.and_then(|at| context.upstreams.get(at));
        let reading = served_by.and_then(|own| own.paths).unwrap_or_default();
        self.check_parameters(route, &path, context);
        let matcher = Matcher {
            hosts: host?.into_iter().collect(),
            path: path.clone(),
            methods: methods.clone(),
            from: from?.unwrap_or_default(),
            reading,
        };
        let label = self.route_label(route);
        let charged = limits.iter().filter_map(|at| context.limits.get(*at));
        let body = body_reading(charged, cost.as_ref().and_then(Option::as_ref));
        let route = Route {
            body,
            name: route.matcher.path.value.as_str().into(),
            label: label?,
            position: 0,
            path,
            reading,
            methods,
            addresses: addresses?,
            auth: auth?,
            scopes,
            limits,
            upstream: upstream?,
            cost: cost?,
            max_body,
            cors: cors?,
            upgrades,
            rewrite: rewrite?,
            request_headers,
            response_headers: Arc::new(response_headers),
        };
        Some((matcher, route))
    }

    /// Scopes are a token's: one is needed, unless the route says otherwise.
    fn auth_for_scopes(&mut self, auth: Option<Auth>, raw: &RawRoute) -> Option<Auth> {
        let Some(first) = raw.scopes.first() else { return auth };
        match auth {
            Some(Auth::Optional(accepted)) if raw.auth.is_none() => Some(Auth::Required(accepted)),
            Some(Auth::Optional(_) | Auth::None) => {
                self.refuse(first.span, "scopes need a token", "write `auth: required`");
                auth
            }
            Some(Auth::Required(_)) | None => auth,
        }
    }

    fn route_limits(&mut self, raw: &Spanned<RawRoute>, context: &RouteContext<'_>) -> Vec<usize> {
        let listed = &raw.value.limits;
        if listed.len() > MAX_LIMITS_A_ROUTE {
            let message = format!("more than {MAX_LIMITS_A_ROUTE} limits on a route");
            self.refuse(raw.span, message, "merge some");
        }
        self.refuse_twice(listed.iter(), "limit");
        let names = &context.names.limits;
        let limits = listed.iter().filter_map(|limit| self.resolve(limit, names)).collect();
        self.refuse_named_limits(&raw.value, context.limits);
        limits
    }

    fn route_upstream(&mut self, raw: &Spanned<RawRoute>, names: &Names<'_>) -> Option<usize> {
        match &raw.value.upstream {
            Some(name) => self.resolve(name, names),
            None if names.names.len() > 1 => {
                let message = "a route without an upstream, and there are several";
                self.refuse(raw.span, message, "add `upstream: <name>`");
                None
            }
            None => Some(0),
        }
    }

    /// What metrics and traces call the route.
    fn route_label(&mut self, raw: &RawRoute) -> Option<Box<str>> {
        let Some(name) = &raw.name else { return Some(raw.matcher.path.value.as_str().into()) };
        let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if name.value.starts_with('_') || !name.value.bytes().all(is_plain) {
            let message = format!("`{}` is not a name for a route", name.value);
            let help = "write letters, digits and signs of ASCII, not beginning with `_`";
            self.note(name.span, message, help);
            return None;
        }
        Some(name.value.as_str().into())
    }

    /// Scopes as tokens write them (RFC 6749 section 3.3).
    fn scopes(&mut self, raw: &[Spanned<String>]) -> Vec<Box<str>> {
        self.refuse_twice(raw.iter(), "scope");
        for scope in raw {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
            if scope.value.is_empty() || !scope.value.bytes().all(is_plain) {
                let message = format!("`{}` is not a scope", scope.value);
                self.note(scope.span, message, "write one a line, such as repo:read");
            }
        }
        raw.iter().map(|scope| scope.value.as_str().into()).collect()
    }

    pub(super) fn path(&mut self, raw: &Spanned<String>) -> Option<PathPattern> {
        match PathPattern::parse(&raw.value) {
            Ok(path) => Some(path),
            Err(error) => {
                self.note(
                    raw.span,
                    error.to_string(),
                    "write a path such as /login, /repos/{owner}/*, /report-* or /search/**",
                );
                None
            }
        }
    }

    /// A limit by a part of the path needs a path with such a part.
    fn check_parameters(&mut self, raw: &RawRoute, path: &PathPattern, context: &RouteContext<'_>) {
        for name in &raw.limits {
            let parts = context.limit(name).map_or(&[][..], |limit| &limit.per.parts);
            for part in parts {
                if let KeyPart::PathParameter(parameter) = part
                    && !path.has_parameter(parameter)
                {
                    self.refuse(
                        name.span,
                        format!("limit `{}` counts by path.{parameter}", name.value),
                        format!(
                            "write `{{{parameter}}}` into the route's path, or remove the limit"
                        ),
                    );
                }
            }
        }
    }

    fn route_host(
        &mut self,
        raw: &Spanned<String>,
        policy_hosts: &[HostPattern],
    ) -> Option<HostPattern> {
        let host = self.host_pattern(raw)?;
        let is_reachable = policy_hosts.is_empty()
            || policy_hosts.iter().any(|pattern| match &host {
                HostPattern::Exact(name) => pattern.matches(name),
                HostPattern::Below(suffix) => {
                    *pattern == host || pattern.matches(suffix.trim_start_matches('.'))
                }
            });
        if !is_reachable {
            self.refuse(
                raw.span,
                "the policy is not for this host",
                "add it to the policy's `hosts`",
            );
        }
        Some(host)
    }

    pub(super) fn host_pattern(&mut self, raw: &Spanned<String>) -> Option<HostPattern> {
        let lower = raw.value.to_ascii_lowercase();
        let lower = lower.strip_suffix('.').unwrap_or(&lower);
        let (name, is_suffix) = match lower.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (lower, false),
        };
        let is_host = tollgate_wire::target::Host::parse(name.as_bytes())
            .is_ok_and(|host| host.as_str() == name);
        if !is_host || name.contains('*') {
            let message = format!("`{}` is not a host", raw.value);
            self.note(
                raw.span,
                message,
                "write a name such as api.example.com or *.example.com, without scheme and port",
            );
            return None;
        }
        Some(match is_suffix {
            true => HostPattern::Below(format!(".{name}").into()),
            false => HostPattern::Exact(name.into()),
        })
    }

    pub(super) fn method(&mut self, raw: &Spanned<String>) -> Option<Method> {
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let is_token = Method::from_bytes(raw.value.as_bytes());
        match is_token {
            Ok(Method::CONNECT | Method::TRACE) => {
                self.note(raw.span, format!("{} is never forwarded", raw.value), "remove it");
                None
            }
            Ok(method) if raw.value.bytes().all(|byte| !byte.is_ascii_lowercase()) => {
                let is_known =
                    known.into_iter().chain(OTHER_METHODS.split(' ')).any(|own| method == own);
                if let (false, Some(word)) = (is_known, suggest(&raw.value, known)) {
                    let message = format!("no client sends the method `{}`", raw.value);
                    self.warn(Rule::UnknownMethod, raw.span, message, format!("write {word}"));
                }
                Some(method)
            }
            _ => {
                let help = suggest(&raw.value.to_ascii_uppercase(), known)
                    .map_or("write it in capitals".to_owned(), |word| {
                        format!("did you mean {word}?")
                    });
                self.note(raw.span, format!("`{}` is not a method", raw.value), help);
                None
            }
        }
    }

    /// No request has the key of a limit that programs charge by name.
    fn refuse_named_limits(&mut self, route: &RawRoute, limits: &[Limit]) {
        for name in &route.limits {
            let Some(limit) = limits.iter().find(|limit| *limit.name == *name.value) else {
                continue;
            };
            let name_text = &name.value;
            let message = match (limit.is_named(), limit.is_of_descriptors()) {
                (true, _) => {
                    format!("programs charge limit `{name_text}` by name: no request has its key")
                }
                (_, true) => {
                    format!(
                        "Envoy's filter charges limit `{name_text}`: no request has a descriptor"
                    )
                }
                (false, false) => continue,
            };
            let help = "list another limit, or have this one count `per: caller`";
            self.refuse(name.span, message, help);
        }
    }

    /// Every route whose limits count per caller always finds one.
    pub(super) fn check_callers(
        &mut self,
        raw: &RawPolicy,
        routes: &[Route],
        limits: &[Limit],
        identity: &IdentityRules,
    ) {
        let has = |is_kind: fn(&CallerKey) -> bool| {
            identity.callers.iter().any(|caller| is_kind(&caller.key))
        };
        let by_address = has(|key| matches!(key, CallerKey::Address { .. }));
        let by_token = has(|key| matches!(key, CallerKey::Claim(_)));
        let by_key = has(|key| matches!(key, CallerKey::ApiKey(_)));
        let by_certificate = has(|key| matches!(key, CallerKey::Certificate(_)));
        for (route, raw) in routes.iter().zip(&raw.routes.value) {
            // A limit that denies requests without a caller is explicit about them.
            let needs_caller = route.limits.iter().filter_map(|at| limits.get(*at)).any(|limit| {
                limit.per.parts.contains(&KeyPart::Caller)
                    && limit.per.on_missing == OnMissing::Skip
            });
            let accepts = |mut issuers: Range<usize>| match &route.auth {
                Auth::Required(accepted) | Auth::Optional(accepted) => issuers
                    .any(|at| accepted.issuers.contains(at) && identity.issuer_id(at).is_some()),
                Auth::None => false,
            };
            if let (true, Some(node)) = (is_for_nobody(&route.auth, identity), &raw.value.auth) {
                let message = "no token is for this audience: its issuers take other ones only";
                self.refuse(node.span, message, "add it to `audience` of the issuer");
            }
            let keys_at = identity.api_keys_position();
            let has_nameless_token = accepts(0..keys_at) && !by_token;
            let has_nameless_key = accepts(keys_at..keys_at + 1) && !by_key;
            // A certificate is the one credential that there is.
            let is_certified = by_certificate && identity.issuer_id(0).is_none();
            match route.auth {
                Auth::Required(_) if !by_token && !by_key && !is_certified => self.refuse(
                    raw.span,
                    "a token is required but names no caller",
                    "add `{ name: user, key: jwt.sub }` to `callers`",
                ),
                Auth::Optional(_) | Auth::None if needs_caller && !by_address => self.refuse(
                    raw.span,
                    "a request without a token has no caller here, but a limit counts per caller",
                    "write `auth: required`, or add `{ name: anonymous, key: client.ip }` to `callers`",
                ),
                _ if needs_caller && !by_address && has_nameless_token => self.refuse(
                    raw.span,
                    "a token names no caller here, but a limit counts per caller",
                    "add `{ name: user, key: jwt.sub }` to `callers`",
                ),
                _ if needs_caller && !by_address && has_nameless_key => self.refuse(
                    raw.span,
                    "an API key names no caller here, but a limit counts per caller",
                    "add `{ name: machine, key: api_key.id }` to `callers`",
                ),
                _ => {}
            }
        }
    }
}

/// Whether a route takes tokens for audiences only that no issuer of its tokens takes.
fn is_for_nobody(auth: &Auth, identity: &IdentityRules) -> bool {
    let (Auth::Optional(accepted) | Auth::Required(accepted)) = auth else { return false };
    let wanted = &accepted.claims.audience;
    let takes = |rules: &ClaimRules| {
        rules.audience.is_empty() || rules.audience.iter().any(|own| wanted.contains(own))
    };
    let rules = identity.issuers.iter().map(|issuer| &issuer.claims);
    let rules = rules.chain(identity.introspection.as_ref().map(|other| &other.claims));
    let mut accepted = rules.enumerate().filter(|(at, _)| accepted.issuers.contains(*at));
    !wanted.is_empty() && !accepted.any(|(_, rules)| takes(rules))
}

/// What these limits read of the bodies of requests, which cost them `own_cost`, or else what they
/// say themselves.
fn body_reading<'l>(
    limits: impl Iterator<Item = &'l Limit>,
    own_cost: Option<&Cost>,
) -> BodyReading {
    let mut reading = BodyReading::default();
    for limit in limits {
        let cost = own_cost.unwrap_or(&limit.cost);
        let parts = &limit.per.parts;
        reading.is_any |= cost.looks_into_body() || parts.iter().any(KeyPart::is_in_body);
        reading.is_of_messages |= parts.iter().any(KeyPart::is_in_messages);
        match cost.reserve.as_deref() {
            Some(Reserve::Messages(_)) => reading.is_of_messages = true,
            Some(Reserve::Query(measure)) if !reading.measures.contains(measure) => {
                reading.measures.push(*measure);
            }
            Some(Reserve::Query(_) | Reserve::Members(_)) | None => {}
        }
    }
    reading
}
