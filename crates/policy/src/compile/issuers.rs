//! Issuers of tokens, introspection of opaque tokens, and API keys.

use std::{ops::RangeInclusive, str::FromStr, sync::Arc, time::Duration};

use http::HeaderName;
use tollgate_identity::{
    Algorithm, ApiKeyRules, ApiKeys, ClaimRules, Deviation, Introspection, Introspector, Issuer,
    IssuerClaim, IssuerKeys, IssuerServer, KeyLocation, KeySet, MAX_API_KEYS_BYTES, RemoteSpec,
    RequiredClaim, TenantIssuer, is_tenant_name,
};
use tollgate_yaml::{ABOVE_ZERO, Check, Entries, Node, Spanned, Value, warning::Rule};

use super::{Compiler, words::DAY};
use crate::file::{RawApiKeys, RawIntrospection, RawIssuer};

/// Largest key file that is read.
const MAX_KEY_FILE_BYTES: u64 = 256 * 1024;
/// Largest file with a password that is read.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// The names of introspection and of API keys in routes, unless the policy names them.
pub(super) const INTROSPECTION: &str = "introspection";
pub(super) const API_KEYS: &str = "api_keys";

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUTS: RangeInclusive<Duration> = SECOND..=Duration::from_secs(60);
const UP_TO_A_DAY: RangeInclusive<Duration> = SECOND..=DAY;
const LEEWAYS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(300);

#[derive(Clone, Copy)]
enum KeySource {
    Pem,
    Jwks,
    SecretFile,
    SecretVariable,
    Url,
    Discovery,
}

impl Compiler<'_> {
    pub(super) fn issuer(&mut self, spanned: &Spanned<RawIssuer>) -> Option<Issuer> {
        let raw = &spanned.value;
        if raw.issuer.value.is_empty() {
            self.refuse(raw.issuer.span, "`issuer` is empty", "write the `iss` of its tokens");
        }
        let algorithms: Vec<Algorithm> =
            raw.algorithms.iter().filter_map(|name| self.signature_algorithm(name)).collect();
        let leeway = self.time_or(&raw.leeway, LEEWAYS, Duration::from_secs(60));
        let [max_age, max_lifetime] = [&raw.max_age, &raw.max_lifetime]
            .map(|raw| raw.as_ref().and_then(|raw| self.time(raw, ABOVE_ZERO..=DAY)));
        self.refuse_twice(raw.from.iter(), "place");
        let from = raw.from.iter().filter_map(|place| self.keyword(place)).collect();
        let claim = self.issuer_claim(raw);
        let key_hints = self.keyword_or_default(raw.key_hints.as_ref());
        let claims = self.claim_rules(&raw.audience, &raw.required_claims, &raw.claim_names);
        if let Some(any) = raw.any_audience.filter(|any| any.value && !raw.audience.is_empty()) {
            let message = "tokens are either for some audiences or for any";
            self.refuse(any.span, message, "keep one of `audience` and `any_audience`");
        }
        self.refuse_twice(raw.lenient.iter(), "deviation");
        let lenient: Vec<Deviation> =
            raw.lenient.iter().filter_map(|deviation| self.keyword(deviation)).collect();
        let keys = self.keys(spanned, &algorithms, &lenient);
        Some(Issuer {
            name: issuer_name(spanned).to_owned(),
            issuer: issuer_id(spanned),
            claim: claim?,
            from,
            claims: claims?,
            types: raw.types.iter().map(|text| text.value.clone()).collect(),
            lenient,
            key_hints: key_hints?,
            leeway,
            max_age,
            max_lifetime,
            require_exp: true,
            keys: keys?,
        })
    }

    /// What the `iss` of an issuer's tokens is.
    fn issuer_claim(&mut self, raw: &RawIssuer) -> Option<IssuerClaim> {
        const HELP: &str = "write `tenants: any`, or a list of them";
        let Some(node) = &raw.tenants else {
            return self.issuer_claim_without_tenants(raw);
        };
        if let Value::String(word) = &node.value
            && word != "any"
            && ["any", "all"].iter().any(|known| word.eq_ignore_ascii_case(known))
        {
            let message = format!("`{word}` is the name of one tenant here");
            let help = format!("write `any` for all tenants, or `[{word}]` for the one");
            self.refuse(node.span, message, help);
        }
        let listed = listed_tenants(node);
        if listed.is_some_and(<[Node]>::is_empty) {
            self.refuse(node.span, "a list of no tenants", HELP);
            return None;
        }
        let names = listed.unwrap_or_default().iter().map(|node| self.tenant(node));
        let tenants = names.collect::<Option<Vec<_>>>()?;
        let found = TenantIssuer::parse(&raw.issuer.value, tenants);
        if found.is_none() {
            let message = "`tenants` needs one claim in braces, which stands for the tenant";
            let help = "write one such as https://login.microsoftonline.com/{tid}/v2.0";
            self.refuse(raw.issuer.span, message, help);
        }
        found.map(IssuerClaim::Tenants)
    }

    fn issuer_claim_without_tenants(&mut self, raw: &RawIssuer) -> Option<IssuerClaim> {
        if raw.issuer.value != NO_ISSUER {
            return Some(IssuerClaim::Exact);
        }
        // Routes, overrides, logs and messages could not say which one is meant, and with a name
        // that it gets later its callers would be others.
        if raw.name.is_none() {
            let message = "an issuer whose tokens have no `iss` needs a name";
            self.refuse(raw.issuer.span, message, "add a `name`, such as `name: main`");
            return None;
        }
        Some(IssuerClaim::Absent)
    }

    fn tenant(&mut self, node: &Node) -> Option<Box<str>> {
        let name = self.text(node)?;
        if !is_tenant_name(name) {
            let message = format!("`{name}` is not the name of a tenant");
            self.note(node.span, message, "use up to 128 letters, digits, `-`, `_` and `.`");
            return None;
        }
        Some(name.into())
    }

    fn signature_algorithm(&mut self, name: &Spanned<String>) -> Option<Algorithm> {
        let algorithm = Algorithm::from_str(&name.value).ok();
        if algorithm.is_none() {
            let message = format!("signature algorithm `{}` is not supported", name.value);
            self.note(
                name.span,
                message,
                "one of: HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, \
                 ES384, EdDSA",
            );
        }
        algorithm
    }

    pub(super) fn claim_rules(
        &mut self,
        audience: &[Spanned<String>],
        required: &Entries<Node>,
        names: &Entries<Spanned<String>>,
    ) -> Option<ClaimRules> {
        let mut claims = Vec::new();
        for (path, node) in required.iter() {
            let accepted = match &node.value {
                Value::Null => Vec::new(),
                Value::Sequence(nodes) => {
                    nodes.iter().map(|node| self.claim_value(node)).collect::<Option<_>>()?
                }
                _ => vec![self.claim_value(node)?],
            };
            claims.push(RequiredClaim { path: self.bare_claim_path(path)?, accepted });
        }
        let audience = audience.iter().map(|text| text.value.clone()).collect();
        let mut places = Vec::new();
        for (name, path) in names.iter() {
            places.push((self.bare_claim_path(name)?, self.bare_claim_path(path)?));
        }
        Some(ClaimRules { audience, required: claims, names: places })
    }

    pub(super) fn claim_value(&mut self, node: &Node) -> Option<serde_json::Value> {
        match &node.value {
            Value::String(text) => Some(text.as_str().into()),
            Value::Integer(number) => Some((*number).into()),
            Value::Bool(truth) => Some((*truth).into()),
            other => {
                let message =
                    format!("expected text, a number or true/false, found {}", other.kind());
                self.note(node.span, message, "write the value that the claim must have");
                None
            }
        }
    }

    fn keys(
        &mut self,
        issuer: &Spanned<RawIssuer>,
        algorithms: &[Algorithm],
        lenient: &[Deviation],
    ) -> Option<IssuerKeys> {
        let raw = &issuer.value;
        let given: Vec<(&Spanned<String>, KeySource)> = [
            (&raw.public_key_file, KeySource::Pem),
            (&raw.jwks_file, KeySource::Jwks),
            (&raw.secret_file, KeySource::SecretFile),
            (&raw.secret_env, KeySource::SecretVariable),
            (&raw.jwks_url, KeySource::Url),
        ]
        .into_iter()
        .filter_map(|(field, source)| Some((field.as_ref()?, source)))
        .collect();
        let discover = raw.discover.filter(|discover| discover.value);
        let (place, source) = match (given.as_slice(), discover) {
            ([(place, source)], None) => (*place, *source),
            ([], Some(field)) if raw.tenants.is_some() || raw.issuer.value == NO_ISSUER => {
                let message =
                    "without one `iss` of all its tokens an issuer has nothing to discover";
                self.refuse(field.span, message, "write where its keys are as `jwks_url`");
                return None;
            }
            ([], Some(_)) => (&raw.issuer, KeySource::Discovery),
            ([], None) => {
                self.fetch_times(raw);
                self.refuse(
                    raw.issuer.span,
                    "an issuer without keys",
                    "add one of: jwks_url, discover, jwks_file, public_key_file, secret_file, \
                     secret_env",
                );
                return None;
            }
            ([.., (last, _)], _) => {
                self.fetch_times(raw);
                self.refuse(
                    last.span,
                    "keys from more than one source",
                    "keep one of: jwks_url, discover, jwks_file, public_key_file, secret_file, \
                     secret_env",
                );
                return None;
            }
        };
        if let KeySource::Url | KeySource::Discovery = source {
            let mut spec = self.remote_spec(raw, place, source, algorithms)?;
            spec.lenient = lenient.to_vec();
            return Some(IssuerKeys::Remote { spec: Box::new(spec), position: 0 });
        }
        self.refuse_without_url(raw);
        if self.is_by_name(place) {
            return Some(IssuerKeys::Fixed(Arc::new(KeySet::empty())));
        }
        let material = match source {
            KeySource::SecretVariable => {
                self.secret_variable(place, "set it to the shared secret")?.into_bytes()
            }
            KeySource::SecretFile => self.read_secret(place, MAX_KEY_FILE_BYTES)?,
            _ => self.read_for_identity(place, MAX_KEY_FILE_BYTES)?,
        };
        let keys = match source {
            KeySource::Pem => KeySet::from_pem(&material, algorithms),
            KeySource::Jwks => {
                KeySet::from_jwks(&material, algorithms, lenient).map(|(keys, skipped)| {
                    for key in skipped {
                        let message = format!("skipped a key of `{}`: {key}", place.value);
                        self.warn(Rule::SkippedKey, place.span, message, "");
                    }
                    keys
                })
            }
            // Editors end files with a line break that is no part of the secret.
            KeySource::SecretFile => KeySet::from_secret(material.trim_ascii_end(), algorithms),
            KeySource::SecretVariable => KeySet::from_secret(&material, algorithms),
            // They are not here yet.
            KeySource::Url | KeySource::Discovery => return None,
        };
        match keys {
            Ok(keys) => Some(IssuerKeys::Fixed(Arc::new(keys))),
            Err(error) => {
                self.refuse(place.span, error.to_string(), "");
                None
            }
        }
    }

    fn remote_spec(
        &mut self,
        raw: &RawIssuer,
        place: &Spanned<String>,
        source: KeySource,
        algorithms: &[Algorithm],
    ) -> Option<RemoteSpec> {
        for (name, algorithm) in raw.algorithms.iter().zip(algorithms) {
            if algorithm.is_symmetric() {
                let message =
                    format!("{algorithm} is for shared secrets, which are never published");
                self.refuse(name.span, message, "list RS*, PS*, ES* or EdDSA");
                return None;
            }
        }
        let [timeout, cache, cooldown, max_stale] = self.fetch_times(raw);
        let url = match source {
            KeySource::Discovery if place.value.contains('?') => {
                let message = "an issuer with a query publishes nothing to discover";
                self.refuse(place.span, message, "write where its keys are as `jwks_url`");
                return None;
            }
            KeySource::Discovery => discovery_url(&place.value),
            _ => place.value.clone(),
        };
        let access = Access { allow_http: raw.allow_http, ca_file: raw.ca_file.as_ref() };
        let server = self.issuer_server(&url, place, &access, timeout)?;
        let location = match source {
            KeySource::Discovery => {
                KeyLocation::Discovery { issuer: raw.issuer.value.clone(), server }
            }
            _ => KeyLocation::Jwks(server),
        };
        Some(RemoteSpec {
            location,
            algorithms: algorithms.to_vec(),
            lenient: Vec::new(),
            cache,
            cooldown,
            max_stale,
        })
    }

    /// How long fetching may take, how long keys are kept, how soon they are fetched again, and how
    /// long they do after that failed.
    fn fetch_times(&mut self, raw: &RawIssuer) -> [Duration; 4] {
        [
            self.time_or(&raw.timeout, TIMEOUTS, Duration::from_secs(5)),
            self.time_or(&raw.cache, UP_TO_A_DAY, Duration::from_secs(600)),
            self.time_or(&raw.cooldown, UP_TO_A_DAY, Duration::from_secs(30)),
            self.time_or(&raw.max_stale, SECOND..=30 * DAY, Duration::from_secs(3600)),
        ]
    }

    /// What only says how keys are fetched means nothing where they are not.
    fn refuse_without_url(&mut self, raw: &RawIssuer) {
        for (name, field) in [
            ("ca_file", &raw.ca_file),
            ("cache", &raw.cache),
            ("cooldown", &raw.cooldown),
            ("timeout", &raw.timeout),
            ("max_stale", &raw.max_stale),
        ] {
            if let Some(field) = field {
                let message = format!("`{name}` needs `jwks_url` or `discover`");
                self.refuse(field.span, message, "remove it");
            }
        }
    }

    /// A server of an issuer: `url`, which the policy says at `place`.
    fn issuer_server(
        &mut self,
        url: &str,
        place: &Spanned<String>,
        access: &Access<'_>,
        timeout: Duration,
    ) -> Option<IssuerServer> {
        let ca = match access.ca_file {
            Some(path) if self.is_by_name(path) => None,
            Some(path) => Some(Arc::from(self.read_for_identity(path, MAX_KEY_FILE_BYTES)?)),
            None => None,
        };
        match IssuerServer::parse(url, access.allow_http, ca, timeout) {
            Ok(server) => Some(server),
            Err(error) => {
                let place =
                    access.ca_file.filter(|_| error.is_about_authorities()).unwrap_or(place);
                self.note(place.span, error.to_string(), error.help());
                None
            }
        }
    }

    pub(super) fn introspection(&mut self, raw: &RawIntrospection) -> Option<Introspection> {
        let name = raw.name.as_ref();
        name.into_iter().for_each(|name| self.check_name(name, "issuer"));
        let secret = self.password(raw);
        let timeout = self.time_or(&raw.timeout, TIMEOUTS, Duration::from_secs(2));
        let cache = self.time_or(&raw.cache, UP_TO_A_DAY, Duration::from_secs(60));
        let claims = self.claim_rules(&raw.audience, &raw.required_claims, &raw.claim_names);
        let access = Access { allow_http: raw.allow_http, ca_file: raw.ca_file.as_ref() };
        let server = self.issuer_server(&raw.url.value, &raw.url, &access, timeout)?;
        let name = name.map_or(INTROSPECTION, |name| &name.value);
        Some(Introspection {
            // Not by the URL: callers stay who they are when it moves.
            id: format!("introspection:{name}").into(),
            name: name.into(),
            introspector: Introspector::new(server, &raw.client_id.value, &secret?),
            claims: claims?,
            cache,
        })
    }

    /// This proxy's password at an authorization server.
    fn password(&mut self, raw: &RawIntrospection) -> Option<String> {
        match (&raw.client_secret_env, &raw.client_secret_file) {
            (Some(name), None) | (None, Some(name)) if self.is_by_name(name) => Some(String::new()),
            (Some(variable), None) => self.secret_variable(variable, "set it to the password"),
            (None, Some(path)) => {
                let content = self.read_secret(path, MAX_SECRET_FILE_BYTES)?;
                // Editors end files with a line break that is no part of the secret.
                let secret = std::str::from_utf8(content.trim_ascii_end()).unwrap_or_default();
                if secret.is_empty() {
                    let message = format!("`{}` holds no password", path.value);
                    self.refuse(path.span, message, "write the password into it, as text");
                    return None;
                }
                Some(secret.to_owned())
            }
            (None, None) => {
                self.refuse(
                    raw.client_id.span,
                    "a client without a password",
                    "add client_secret_env or client_secret_file",
                );
                None
            }
            (Some(_), Some(path)) => {
                self.refuse(path.span, "a password from two sources", "keep one of them");
                None
            }
        }
    }

    /// The keys, and the header that carries them.
    pub(super) fn api_keys(&mut self, raw: &RawApiKeys) -> Option<(ApiKeyRules, HeaderName)> {
        let name = raw.name.as_ref();
        name.into_iter().for_each(|name| self.check_name(name, "kind of key"));
        let header = match &raw.header {
            None => HeaderName::from_static("x-api-key"),
            Some(raw) => self.own_header(raw)?,
        };
        let id = format!("api_keys:{}", name.map_or(API_KEYS, |name| &name.value)).into();
        if self.is_by_name(&raw.file) {
            return Some((ApiKeyRules { id, keys: ApiKeys::empty() }, header));
        }
        let content = self.read_for_identity(&raw.file, MAX_API_KEYS_BYTES)?;
        let Ok(text) = str::from_utf8(&content) else {
            let message = format!("`{}` is not UTF-8 text", raw.file.value);
            self.refuse(raw.file.span, message, "write it with `tollgate key`");
            return None;
        };
        let shown = self.inspection.folder.join(&raw.file.value).display().to_string();
        match ApiKeys::parse(&shown, text) {
            Ok(keys) => Some((ApiKeyRules { id, keys }, header)),
            // Each with its place in that file.
            Err(problems) => {
                self.inspection.problems.extend(problems);
                None
            }
        }
    }
}

/// How a server is reached.
struct Access<'r> {
    allow_http: bool,
    ca_file: Option<&'r Spanned<String>>,
}

/// What routes call an issuer.
pub(super) fn issuer_name(raw: &Spanned<RawIssuer>) -> &str {
    raw.value.name.as_ref().map_or(&raw.value.issuer.value, |name| &name.value)
}

/// The tenants that `tenants` lists, or the one that it names; none: any.
pub(super) fn listed_tenants(node: &Node) -> Option<&[Node]> {
    match &node.value {
        Value::String(word) if word == "any" => None,
        Value::Sequence(nodes) => Some(nodes),
        _ => Some(std::slice::from_ref(node)),
    }
}

/// What the policy writes for an issuer whose tokens have no `iss`.
pub(super) const NO_ISSUER: &str = "none";

/// What distinguishes callers of an issuer: its `iss`, or its name.
fn issuer_id(raw: &Spanned<RawIssuer>) -> String {
    match raw.value.issuer.value.as_str() {
        NO_ISSUER => format!("{NO_ISSUER}:{}", issuer_name(raw)),
        issuer => issuer.to_owned(),
    }
}

/// Where an issuer says where its keys are (OpenID Connect Discovery 1.0 section 4).
fn discovery_url(issuer: &str) -> String {
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    format!("{issuer}/.well-known/openid-configuration")
}
