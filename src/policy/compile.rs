//! From the file's shapes to a [`Policy`], or every problem with its place and what to write
//! instead.
//!
//! Each section is compiled on its own, so that one mistake hides no other: what cannot be compiled
//! is left out and noted, and a policy with notes is never used.

use std::{borrow::Cow, collections::HashMap, fmt, path::Path, str::FromStr, time::Duration};

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::{
    AcceptedIssuers, Allowance, Auth, HeaderProfile, HostPattern, KeyPart, Limit, Matcher,
    PathPattern, Policy, Rate, Responses, Route, Router, Server, Sources, Upstream,
    file::{
        LATER, RawCaller, RawIdentity, RawIssuer, RawLimit, RawPolicy, RawResponses, RawRoute,
        RawTiers, RawToken, RawUpstream,
    },
};
use crate::{
    identity::{
        Algorithm, Caller, CallerKey, IdentityRules, InvalidToken, Issuer, KeyHints, KeySet, Tier,
        TierSource, Tiers, TokenSources,
    },
    limit::LimitId,
    yaml::{Document, Node, Problem, Span, Spanned, Value, suggest},
};

/// Limits that one route may take: what a request costs must stay small.
const MAX_LIMITS_A_ROUTE: usize = 8;

/// Largest key file that is read.
const MAX_KEY_FILE_BYTES: u64 = 256 * 1024;

/// Compiles the policy in `text`. `file` is its path: messages show it, its stem names the policy,
/// and key files are found beside it.
///
/// # Errors
/// Every problem, in the order of their places.
pub fn load(file: &Path, text: &str, sources: &Sources) -> Result<Policy, Vec<Problem>> {
    let shown = file.display().to_string();
    let document = Document::parse(&shown, text).map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    let raw = document.decode::<RawPolicy>(LATER, &mut problems);
    let mut compiler = Compiler {
        name: file.file_stem().map(|stem| stem.to_string_lossy().into()).unwrap_or_default(),
        folder: file.parent().unwrap_or(Path::new("")),
        document: &document,
        sources,
        problems,
    };
    let policy = raw.and_then(|raw| compiler.policy(raw));
    let mut problems = compiler.problems;
    match policy {
        Some(policy) if problems.is_empty() => Ok(policy),
        _ => {
            problems.sort();
            problems.dedup();
            Err(problems)
        }
    }
}

struct Compiler<'d> {
    name: Box<str>,
    folder: &'d Path,
    document: &'d Document,
    sources: &'d Sources,
    problems: Vec<Problem>,
}

/// Names that other sections refer to, by position.
struct Names<'n> {
    /// What is named, for messages.
    kind: &'static str,
    names: Vec<&'n str>,
}

impl Compiler<'_> {
    fn refuse(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        let problem = self.document.problem(span, message, help);
        self.problems.push(problem);
    }

    fn policy(&mut self, raw: RawPolicy) -> Option<Policy> {
        if raw.version.value != 1 {
            let message = format!("version {} is not known", raw.version.value);
            self.refuse(raw.version.span, message, "write 1");
        }
        let hosts: Vec<HostPattern> =
            raw.hosts.iter().filter_map(|host| self.host_pattern(host)).collect();
        if raw.upstreams.value.is_empty() {
            self.refuse(
                raw.upstreams.span,
                "no upstream",
                "name at least one: `api: { servers: [http://127.0.0.1:9000] }`",
            );
        }
        let upstreams: Vec<Upstream> = raw
            .upstreams
            .value
            .iter()
            .filter_map(|(name, upstream)| self.upstream(name, upstream))
            .collect();

        let tiers = self.tiers(raw.tiers.as_ref());
        let identity = self.identity(&raw.identity, &tiers);
        let limits: Vec<Limit> =
            raw.limits.iter().filter_map(|(name, limit)| self.limit(name, limit, &tiers)).collect();

        // Routes refer to what was written, compiled or not: one mistake is told once.
        let names = RouteNames {
            limits: Names {
                kind: "limit",
                names: raw.limits.iter().map(|(name, _)| name.as_str()).collect(),
            },
            upstreams: Names {
                kind: "upstream",
                names: raw.upstreams.value.iter().map(|(name, _)| name.as_str()).collect(),
            },
            issuers: Names {
                kind: "issuer",
                names: raw.identity.jwt.iter().map(|issuer| issuer_name(issuer)).collect(),
            },
        };
        if raw.routes.value.is_empty() {
            self.refuse(
                raw.routes.span,
                "no route",
                "add one: `- { match: { path: \"/**\" }, limits: [] }`",
            );
        }
        let (matchers, routes): (Vec<Matcher>, Vec<Route>) =
            raw.routes.value.iter().filter_map(|route| self.route(route, &names, &hosts)).unzip();
        let responses = self.responses(&raw.responses);
        let identity = identity?;
        if self.problems.is_empty() {
            self.check_callers(&raw, &routes, &limits, &identity);
        }
        Some(Policy {
            name: self.name.clone(),
            hosts,
            upstreams,
            identity,
            limits,
            router: Router::new(matchers),
            routes,
            responses: responses?,
        })
    }

    fn host_pattern(&mut self, raw: &Spanned<String>) -> Option<HostPattern> {
        let lower = raw.value.to_ascii_lowercase();
        let lower = lower.strip_suffix('.').unwrap_or(&lower);
        let (name, is_suffix) = match lower.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (lower, false),
        };
        let is_host =
            crate::target::Host::parse(name.as_bytes()).is_ok_and(|host| host.as_str() == name);
        if !is_host || name.contains('*') {
            let message = format!("`{}` is not a host", raw.value);
            self.refuse(
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

    fn upstream(&mut self, name: &Spanned<String>, raw: &RawUpstream) -> Option<Upstream> {
        let [server] = raw.servers.value.as_slice() else {
            let (message, help) = match raw.servers.value.is_empty() {
                true => ("an upstream needs a server", "write `servers: [http://127.0.0.1:9000]`"),
                false => ("several servers an upstream are not supported yet", "write one server"),
            };
            self.refuse(raw.servers.span, message, help);
            return None;
        };
        let server = self.server(server);
        let connect_timeout = self.duration(raw.connect_timeout.as_ref(), Duration::from_secs(2));
        let response_timeout =
            self.duration(raw.response_timeout.as_ref(), Duration::from_secs(60));
        let idle_timeout = self.duration(raw.idle_timeout.as_ref(), Duration::from_secs(60));
        Some(Upstream {
            name: name.value.as_str().into(),
            server: server?,
            connect_timeout: connect_timeout?,
            response_timeout: response_timeout?,
            idle_timeout: idle_timeout?,
        })
    }

    fn server(&mut self, raw: &Spanned<String>) -> Option<Server> {
        const HELP: &str = "write `http://host:port`";
        let refuse =
            |compiler: &mut Self, message: String| compiler.refuse(raw.span, message, HELP);
        if raw.value.starts_with("https://") {
            refuse(self, "https to an upstream is not supported yet".into());
            return None;
        }
        let uri = match raw.value.parse::<Uri>() {
            Ok(uri) if uri.scheme_str() == Some("http") => uri,
            _ => {
                refuse(self, format!("`{}` is not the address of a server", raw.value));
                return None;
            }
        };
        let authority = uri.authority()?;
        if authority.as_str().contains('@') || uri.query().is_some() || uri.path() != "/" {
            refuse(self, "a server is a host and a port, nothing more".into());
            return None;
        }
        Some(Server {
            host: authority.host().trim_matches(['[', ']']).into(),
            port: authority.port_u16().unwrap_or(80),
        })
    }

    fn duration(&mut self, raw: Option<&Spanned<String>>, default: Duration) -> Option<Duration> {
        let Some(raw) = raw else { return Some(default) };
        match humantime::parse_duration(&raw.value) {
            Ok(duration) if !duration.is_zero() && duration <= Duration::from_secs(86_400) => {
                Some(duration)
            }
            Ok(_) => {
                self.refuse(raw.span, "out of range", "write more than nothing and at most a day");
                None
            }
            Err(_) => {
                let message = format!("`{}` is not a time", raw.value);
                self.refuse(
                    raw.span,
                    message,
                    "write a number and a unit, such as 500ms, 2s or 1m",
                );
                None
            }
        }
    }

    fn tiers(&mut self, raw: Option<&RawTiers>) -> Tiers {
        let Some(raw) = raw else { return Tiers::single() };
        for (position, name) in raw.names.iter().enumerate() {
            self.check_name(name, "tier");
            if name.value == "default" {
                self.refuse(
                    name.span,
                    "`default` is not a name for a tier",
                    "rates use it for tiers without one of their own",
                );
            }
            if raw.names.iter().take(position).any(|earlier| earlier.value == name.value) {
                self.refuse(
                    name.span,
                    format!("tier `{}` is listed twice", name.value),
                    "remove one",
                );
            }
        }
        let names = Names {
            kind: "tier",
            names: raw.names.iter().map(|name| name.value.as_str()).collect(),
        };
        let default = self.resolve(&raw.default, &names).unwrap_or(0);
        let tier = |name: &Spanned<String>| Tier {
            name: name.value.as_str().into(),
            value: HeaderValue::from_str(&name.value).unwrap_or(HeaderValue::from_static("")),
        };
        Tiers { tiers: raw.names.iter().map(tier).collect(), default }
    }

    fn identity(&mut self, raw: &RawIdentity, tiers: &Tiers) -> Option<IdentityRules> {
        let issuers: Vec<Issuer> =
            raw.jwt.iter().filter_map(|issuer| self.issuer(issuer)).collect();
        self.refuse_twice(raw.jwt.iter().map(|issuer| &issuer.value.issuer), "issuer");
        self.refuse_twice(
            raw.jwt.iter().filter_map(|issuer| issuer.value.name.as_ref()),
            "name of an issuer",
        );

        let callers: Vec<Caller> =
            raw.callers.iter().filter_map(|caller| self.caller(&caller.value, tiers)).collect();
        self.refuse_twice(raw.callers.iter().map(|caller| &caller.value.name), "name of a caller");

        let invalid_token = match &raw.invalid_token {
            None => Some(InvalidToken::Reject),
            Some(raw) => self.one_of(
                raw,
                &[("reject", InvalidToken::Reject), ("anonymous", InvalidToken::Anonymous)],
            ),
        };
        let sources = self.token_sources(&raw.token);
        Some(IdentityRules {
            issuers: issuers.into(),
            callers,
            tiers: tiers.clone(),
            invalid_token: invalid_token?,
            sources: sources?,
        })
    }

    fn issuer(&mut self, spanned: &Spanned<RawIssuer>) -> Option<Issuer> {
        let raw = &spanned.value;
        if raw.issuer.value.is_empty() {
            self.refuse(raw.issuer.span, "an issuer is not empty", "write the `iss` of its tokens");
        }
        let algorithms: Vec<Algorithm> = raw
            .algorithms
            .iter()
            .filter_map(|name| {
                let algorithm = Algorithm::from_str(&name.value).ok();
                if algorithm.is_none() {
                    let message = format!("signature algorithm `{}` is not supported", name.value);
                    self.refuse(name.span, message, "one of: HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA");
                }
                algorithm
            })
            .collect();
        let leeway = match &raw.leeway {
            Some(leeway) if leeway.value == "0s" => Some(Duration::ZERO),
            leeway => self.duration(leeway.as_ref(), Duration::from_secs(60)),
        };
        if let (Some(leeway), Some(raw)) = (leeway, &raw.leeway)
            && leeway > Duration::from_secs(300)
        {
            self.refuse(raw.span, "a leeway of more than 5 minutes", "write at most 300s");
        }
        let max_age = match &raw.max_age {
            None => Some(None),
            Some(max_age) => self.duration(Some(max_age), Duration::ZERO).map(Some),
        };
        let keys = self.keys(spanned, &algorithms);
        let texts = |list: &[Spanned<String>]| list.iter().map(|text| text.value.clone()).collect();
        Some(Issuer {
            name: issuer_name(spanned).to_owned(),
            issuer: raw.issuer.value.clone(),
            audience: texts(&raw.audience),
            types: texts(&raw.types),
            key_hints: KeyHints::Reject,
            leeway: leeway?,
            max_age: max_age?,
            require_exp: true,
            keys: keys?,
        })
    }

    fn keys(&mut self, issuer: &Spanned<RawIssuer>, algorithms: &[Algorithm]) -> Option<KeySet> {
        let raw = &issuer.value;
        let given: Vec<(&Spanned<String>, KeySource)> = [
            (&raw.public_key_file, KeySource::Pem),
            (&raw.jwks_file, KeySource::Jwks),
            (&raw.secret_file, KeySource::SecretFile),
            (&raw.secret_env, KeySource::SecretVariable),
        ]
        .into_iter()
        .filter_map(|(field, source)| Some((field.as_ref()?, source)))
        .collect();
        let (place, source) = match given.as_slice() {
            [(place, source)] => (*place, *source),
            [] => {
                self.refuse(
                    raw.issuer.span,
                    "an issuer without keys",
                    "add one of: public_key_file, jwks_file, secret_file, secret_env",
                );
                return None;
            }
            [_, (second, _), ..] => {
                self.refuse(
                    second.span,
                    "keys from more than one source",
                    "keep one of: public_key_file, jwks_file, secret_file, secret_env",
                );
                return None;
            }
        };
        let material = match source {
            KeySource::SecretVariable => match self.sources.variable(&place.value) {
                Some(secret) => secret.into_bytes(),
                None => {
                    let message = format!("environment variable `{}` is not set", place.value);
                    self.refuse(place.span, message, "set it to the shared secret");
                    return None;
                }
            },
            _ => self.read(place)?,
        };
        let keys = match source {
            KeySource::Pem => KeySet::from_pem(&material, algorithms),
            KeySource::Jwks => KeySet::from_jwks(&material, algorithms).map(|(keys, skipped)| {
                for key in skipped {
                    tracing::warn!(file = %place.value, key = %key, "skipped a key of a key set");
                }
                keys
            }),
            // Editors end files with a line break that is no part of the secret.
            KeySource::SecretFile => KeySet::from_secret(material.trim_ascii_end(), algorithms),
            KeySource::SecretVariable => KeySet::from_secret(&material, algorithms),
        };
        match keys {
            Ok(keys) => Some(keys),
            Err(error) => {
                self.refuse(place.span, error.to_string(), "");
                None
            }
        }
    }

    fn read(&mut self, path: &Spanned<String>) -> Option<Vec<u8>> {
        match self.sources.read(&self.folder.join(&path.value), MAX_KEY_FILE_BYTES) {
            Ok(content) => Some(content),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.value);
                self.refuse(path.span, message, "write a path from this file's folder");
                None
            }
        }
    }

    fn caller(&mut self, raw: &RawCaller, tiers: &Tiers) -> Option<Caller> {
        self.check_name(&raw.name, "caller");
        let prefix = raw.ipv6_prefix.as_ref().map_or(64, |prefix| prefix.value);
        if let Some(raw) = &raw.ipv6_prefix
            && !(32..=128).contains(&prefix)
        {
            self.refuse(
                raw.span,
                "an IPv6 prefix out of range",
                "write 32 to 128; 64 is one customer's network",
            );
        }
        let key = match raw.key.value.split_once('.') {
            Some(("client", "ip")) => CallerKey::Address { ipv6_prefix: prefix },
            Some(("jwt", claim)) if !claim.is_empty() => CallerKey::Claim(claim.into()),
            _ => {
                let message = format!("`{}` does not name a caller", raw.key.value);
                self.refuse(
                    raw.key.span,
                    message,
                    "write jwt.sub, another claim as jwt.<name>, or client.ip",
                );
                return None;
            }
        };
        if let (CallerKey::Claim(_), Some(prefix)) = (&key, &raw.ipv6_prefix) {
            self.refuse(prefix.span, "`ipv6_prefix` needs `key: client.ip`", "remove it");
        }
        let tier = match &raw.tier {
            None => TierSource::Default,
            Some(tier) => match tier.value.split_once('.') {
                Some(("jwt", claim)) if !claim.is_empty() => TierSource::Claim(claim.into()),
                _ => {
                    let names = Names { kind: "tier", names: tiers.names().collect() };
                    TierSource::Fixed(self.resolve(tier, &names)?)
                }
            },
        };
        if let (CallerKey::Address { .. }, TierSource::Claim(_), Some(place)) =
            (&key, &tier, &raw.tier)
        {
            self.refuse(
                place.span,
                "a caller without a token has no claims",
                "write the name of a tier",
            );
        }
        Some(Caller { name: raw.name.value.as_str().into(), key, tier })
    }

    fn token_sources(&mut self, raw: &RawToken) -> Option<TokenSources> {
        let header = match &raw.header {
            None => None,
            Some(raw) => Some(self.header_name(raw)?),
        };
        let cookie = match &raw.cookie {
            None => None,
            Some(raw) => {
                let is_token = raw
                    .value
                    .bytes()
                    .all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b));
                if raw.value.is_empty() || !is_token {
                    self.refuse(
                        raw.span,
                        format!("`{}` is not the name of a cookie", raw.value),
                        "write letters, digits, `-` and `_`",
                    );
                    return None;
                }
                Some(raw.value.as_str().into())
            }
        };
        Some(TokenSources { header, cookie, forward: raw.forward })
    }

    fn limit(&mut self, name: &Spanned<String>, raw: &RawLimit, tiers: &Tiers) -> Option<Limit> {
        self.check_name(name, "limit");
        if let Some(algorithm) = &raw.algorithm {
            self.algorithm(algorithm);
        }
        let per = self.key_parts(&raw.per);
        let allowances = self
            .rates(&raw.rate, tiers)?
            .into_iter()
            .map(|rate| match rate {
                Rate::Unlimited => None,
                Rate::Quota(quota) => Some(Allowance {
                    quota,
                    id: LimitId::new(
                        &self.name,
                        &name.value,
                        "fixed_window",
                        quota.window.as_micros() as u64,
                    ),
                    limit: quota.limit.into(),
                }),
            })
            .collect();
        Some(Limit {
            name: name.value.as_str().into(),
            resource: HeaderValue::from_str(&name.value).ok()?,
            per: per?,
            allowances,
        })
    }

    fn algorithm(&mut self, raw: &Spanned<String>) {
        const LATER: [&str; 4] = ["sliding_window", "sliding_log", "token_bucket", "gcra"];
        if LATER.contains(&raw.value.as_str()) {
            self.refuse(
                raw.span,
                format!("`{}` is not supported yet", raw.value),
                "write fixed_window",
            );
        } else {
            self.one_of(raw, &[("fixed_window", ())]);
        }
    }

    fn key_parts(&mut self, raw: &Node) -> Option<Vec<KeyPart>> {
        let nodes = match &raw.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(raw),
        };
        if nodes.is_empty() {
            self.refuse(raw.span, "a limit is counted per something", KEY_PARTS_HELP);
            return None;
        }
        let mut parts = Vec::new();
        for node in nodes {
            let part = self.key_part(node)?;
            if parts.contains(&part) {
                self.refuse(node.span, "listed twice", "remove one");
            }
            parts.push(part);
        }
        Some(parts)
    }

    fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let text = self.text(node)?;
        match text {
            "caller" => return Some(KeyPart::Caller),
            "client.ip" => return Some(KeyPart::ClientIp),
            "path" => return Some(KeyPart::Path),
            "method" => return Some(KeyPart::Method),
            "host" => {
                self.refuse(node.span, "`host` is not supported yet", KEY_PARTS_HELP);
                return None;
            }
            _ => {}
        }
        match text.split_once('.') {
            Some(("jwt" | "claim", claim)) if !claim.is_empty() => {
                Some(KeyPart::Claim(claim.into()))
            }
            Some(("header", name)) => {
                let name = Spanned { value: name.to_owned(), span: node.span };
                self.header_name(&name).map(KeyPart::Header)
            }
            Some((kind @ ("cookie" | "path" | "query"), _)) => {
                self.refuse(node.span, format!("`{kind}.…` is not supported yet"), KEY_PARTS_HELP);
                None
            }
            _ => {
                let known = ["caller", "client.ip", "path", "method"];
                let help = suggest(text, known)
                    .map_or(KEY_PARTS_HELP.to_owned(), |word| format!("did you mean `{word}`?"));
                self.refuse(node.span, format!("`{text}` is nothing to count by"), help);
                None
            }
        }
    }

    /// Rates of all tiers, by position.
    fn rates(&mut self, raw: &Node, tiers: &Tiers) -> Option<Vec<Rate>> {
        let Value::Mapping(entries) = &raw.value else {
            let rate = self.rate(raw)?;
            return Some(vec![rate; tiers.len()]);
        };
        let names = Names { kind: "tier", names: tiers.names().collect() };
        let mut rates: Vec<Option<Rate>> = vec![None; tiers.len()];
        let (mut default, mut complete) = (None, true);
        for (tier, node) in entries {
            let Some(rate) = self.rate(node) else {
                complete = false;
                continue;
            };
            if tier.value == "default" {
                default = Some(rate);
            } else if let Some(slot) = self.resolve(tier, &names).and_then(|at| rates.get_mut(at)) {
                *slot = Some(rate);
            } else {
                complete = false;
            }
        }
        let missing: Vec<&str> = tiers
            .names()
            .zip(&rates)
            .filter(|(_, rate)| rate.is_none() && default.is_none())
            .map(|(name, _)| name)
            .collect();
        if complete && !missing.is_empty() {
            let message = format!("no rate for tier {}", missing.join(", "));
            self.refuse(raw.span, message, "give each tier a rate, or add `default: …`");
        }
        rates.into_iter().map(|rate| rate.or(default)).collect()
    }

    fn rate(&mut self, node: &Node) -> Option<Rate> {
        if let Value::Sequence(_) = node.value {
            self.refuse(
                node.span,
                "several windows a rate are not supported yet",
                "write one rate, and a second limit for the other window",
            );
            return None;
        }
        let text = self.text(node)?;
        match text.parse::<Rate>() {
            Ok(rate) => Some(rate),
            Err(error) => {
                self.refuse(node.span, error.to_string(), error.help());
                None
            }
        }
    }

    fn route(
        &mut self,
        raw: &Spanned<RawRoute>,
        names: &RouteNames<'_>,
        policy_hosts: &[HostPattern],
    ) -> Option<(Matcher, Route)> {
        let route = &raw.value;
        let host = match &route.matcher.host {
            None => None,
            Some(host) => Some(self.route_host(host, policy_hosts)?),
        };
        let path = match PathPattern::parse(&route.matcher.path.value) {
            Ok(path) => Some(path),
            Err(error) => {
                self.refuse(
                    route.matcher.path.span,
                    error.to_string(),
                    "write a path such as /login, /repos/{owner}/* or /search/**",
                );
                None
            }
        };
        let methods: Vec<Method> =
            route.matcher.methods.iter().filter_map(|method| self.method(method)).collect();
        let auth = self.auth(route.auth.as_ref(), &names.issuers);
        if route.limits.len() > MAX_LIMITS_A_ROUTE {
            self.refuse(
                raw.span,
                format!("more than {MAX_LIMITS_A_ROUTE} limits on a route"),
                "merge some",
            );
        }
        self.refuse_twice(route.limits.iter(), "limit");
        let limits: Vec<usize> =
            route.limits.iter().filter_map(|limit| self.resolve(limit, &names.limits)).collect();
        let upstream = match &route.upstream {
            Some(name) => self.resolve(name, &names.upstreams),
            None if names.upstreams.names.len() > 1 => {
                self.refuse(
                    raw.span,
                    "a route without an upstream, and there are several",
                    "add `upstream: <name>`",
                );
                None
            }
            None => Some(0),
        };
        let matcher = Matcher { hosts: host.into_iter().collect(), path: path?, methods };
        let name = route.matcher.path.value.as_str().into();
        Some((matcher, Route { name, auth: auth?, limits, upstream: upstream? }))
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
                "no request for this host comes here",
                "add it to the policy's `hosts`",
            );
        }
        Some(host)
    }

    fn method(&mut self, raw: &Spanned<String>) -> Option<Method> {
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let is_token = Method::from_bytes(raw.value.as_bytes());
        match is_token {
            Ok(Method::CONNECT | Method::TRACE) => {
                self.refuse(raw.span, format!("{} is never forwarded", raw.value), "remove it");
                None
            }
            Ok(method) if raw.value.bytes().all(|byte| !byte.is_ascii_lowercase()) => Some(method),
            _ => {
                let help = suggest(&raw.value.to_ascii_uppercase(), known)
                    .map_or("write it in capitals".to_owned(), |word| {
                        format!("did you mean {word}?")
                    });
                self.refuse(raw.span, format!("`{}` is not a method", raw.value), help);
                None
            }
        }
    }

    fn auth(&mut self, raw: Option<&Node>, issuers: &Names<'_>) -> Option<Auth> {
        const HELP: &str = "write required, optional, none, or { required: [<issuer>] }";
        let Some(node) = raw else { return Some(Auth::Optional(AcceptedIssuers::All)) };
        let (word, accepted) = match &node.value {
            Value::Mapping(entries) => {
                let [(word, Node { value: Value::Sequence(nodes), .. })] = entries.as_slice()
                else {
                    self.refuse(node.span, "not a way to authenticate", HELP);
                    return None;
                };
                let mut positions = Vec::new();
                for node in nodes {
                    let name = self.text(node)?.to_owned();
                    positions
                        .push(self.resolve(&Spanned { value: name, span: node.span }, issuers)?);
                }
                (word.value.as_str(), AcceptedIssuers::Only(positions))
            }
            _ => (self.text(node)?, AcceptedIssuers::All),
        };
        match (word, accepted) {
            ("required" | "optional", AcceptedIssuers::Only(list)) if list.is_empty() => {
                self.refuse(node.span, "a list of no issuers", HELP);
                None
            }
            ("required", accepted) => {
                if issuers.names.is_empty() {
                    self.refuse(
                        node.span,
                        "no token can be good: the policy knows no issuer",
                        "add one under `identity: jwt`, or write `auth: none`",
                    );
                }
                Some(Auth::Required(accepted))
            }
            ("optional", accepted) => Some(Auth::Optional(accepted)),
            ("none", AcceptedIssuers::All) => Some(Auth::None),
            _ => {
                self.refuse(node.span, "not a way to authenticate", HELP);
                None
            }
        }
    }

    fn responses(&mut self, raw: &RawResponses) -> Option<Responses> {
        let headers = match &raw.headers {
            None => Some(HeaderProfile::Github),
            Some(raw) if matches!(raw.value.as_str(), "ietf" | "both") => {
                self.refuse(
                    raw.span,
                    format!("`{}` is not supported yet", raw.value),
                    "write github or none",
                );
                None
            }
            Some(raw) => self
                .one_of(raw, &[("github", HeaderProfile::Github), ("none", HeaderProfile::None)]),
        };
        let denied_status = match &raw.denied_status {
            None => Some(StatusCode::TOO_MANY_REQUESTS),
            Some(raw) => match raw.value {
                429 => Some(StatusCode::TOO_MANY_REQUESTS),
                403 => Some(StatusCode::FORBIDDEN),
                _ => {
                    self.refuse(
                        raw.span,
                        "a denial is 429 or 403",
                        "write 429, or 403 as GitHub does",
                    );
                    None
                }
            },
        };
        for text in [&raw.documentation_url, &raw.realm].into_iter().flatten() {
            let is_plain = text.value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
            if !is_plain || text.value.is_empty() || text.value.contains(['"', '\\']) {
                self.refuse(
                    text.span,
                    "not plain text",
                    "use printable ASCII without quotes and backslashes",
                );
            }
        }
        let text =
            |raw: &Option<Spanned<String>>| raw.as_ref().map(|raw| Cow::Owned(raw.value.clone()));
        Some(Responses {
            headers: headers?,
            denied_status: denied_status?,
            documentation_url: text(&raw.documentation_url),
            realm: text(&raw.realm).unwrap_or(Responses::DEFAULT.realm),
        })
    }

    /// Every route whose limits count per caller always finds one.
    fn check_callers(
        &mut self,
        raw: &RawPolicy,
        routes: &[Route],
        limits: &[Limit],
        identity: &IdentityRules,
    ) {
        let by_address =
            identity.callers.iter().any(|caller| matches!(caller.key, CallerKey::Address { .. }));
        let by_claim =
            identity.callers.iter().any(|caller| matches!(caller.key, CallerKey::Claim(_)));
        for (route, raw) in routes.iter().zip(&raw.routes.value) {
            let limits_of = |part: &KeyPart| {
                route.limits.iter().filter_map(|at| limits.get(*at)).any(|l| l.per.contains(part))
            };
            let needs_caller = limits_of(&KeyPart::Caller);
            match route.auth {
                Auth::Required(_) if !by_claim => self.refuse(
                    raw.span,
                    "a token is required but names no caller",
                    "add `{ name: user, key: jwt.sub }` to `callers`",
                ),
                Auth::Optional(_) | Auth::None if needs_caller && !by_address => self.refuse(
                    raw.span,
                    "a request without a token has no caller here, but a limit counts per caller",
                    "write `auth: required`, or add `{ name: anonymous, key: client.ip }` to `callers`",
                ),
                _ => {}
            }
        }
    }

    // Small things that several sections need.

    fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match &node.value {
            Value::String(text) => Some(text),
            other => {
                let message = format!("expected text, found {}", other.kind());
                self.refuse(node.span, message, "put it in quotes if it is meant as text");
                None
            }
        }
    }

    fn one_of<T: Copy>(&mut self, raw: &Spanned<String>, choices: &[(&str, T)]) -> Option<T> {
        let found = choices.iter().find(|(name, _)| *name == raw.value).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let help = match suggest(&raw.value, names.iter().copied()) {
                Some(word) => format!("did you mean `{word}`?"),
                None => format!("one of: {}", names.join(", ")),
            };
            self.refuse(raw.span, format!("unknown value `{}`", raw.value), help);
        }
        found
    }

    fn resolve(&mut self, raw: &Spanned<String>, names: &Names<'_>) -> Option<usize> {
        let found = names.names.iter().position(|name| *name == raw.value);
        if found.is_none() {
            let help = match suggest(&raw.value, names.names.iter().copied()) {
                Some(word) => format!("did you mean `{word}`?"),
                None if names.names.is_empty() => format!("the policy has no {}", names.kind),
                None => format!("one of: {}", names.names.join(", ")),
            };
            self.refuse(raw.span, format!("no {} is called `{}`", names.kind, raw.value), help);
        }
        found
    }

    fn refuse_twice<'n>(
        &mut self,
        values: impl Iterator<Item = &'n Spanned<String>>,
        kind: impl fmt::Display,
    ) {
        let mut seen: HashMap<&str, ()> = HashMap::new();
        for value in values {
            if seen.insert(&value.value, ()).is_some() {
                self.refuse(
                    value.span,
                    format!("{kind} `{}` appears twice", value.value),
                    "remove one",
                );
            }
        }
    }

    fn check_name(&mut self, name: &Spanned<String>, kind: &str) {
        let is_plain = name.value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if !is_plain || name.value.is_empty() || name.value.len() > 64 {
            let message = format!("`{}` is not a name for a {kind}", name.value);
            self.refuse(name.span, message, "use up to 64 letters, digits, `-` and `_`");
        }
    }

    fn header_name(&mut self, raw: &Spanned<String>) -> Option<HeaderName> {
        let name = HeaderName::from_bytes(raw.value.as_bytes()).ok();
        if name.is_none() {
            self.refuse(
                raw.span,
                format!("`{}` is not a header name", raw.value),
                "write one such as x-api-key",
            );
        }
        name
    }
}

const KEY_PARTS_HELP: &str = "one of: caller, client.ip, path, method, jwt.<claim>, header.<name>";

/// What routes refer to.
struct RouteNames<'n> {
    limits: Names<'n>,
    upstreams: Names<'n>,
    issuers: Names<'n>,
}

#[derive(Clone, Copy)]
enum KeySource {
    Pem,
    Jwks,
    SecretFile,
    SecretVariable,
}

fn issuer_name(raw: &Spanned<RawIssuer>) -> &str {
    raw.value.name.as_ref().map_or(&raw.value.issuer.value, |name| &name.value)
}
