//! From the file's shapes to a [`Policy`], or every problem with its place and what to write
//! instead.
//!
//! Each section is compiled on its own, so that one mistake hides no other: what cannot be compiled
//! is left out and noted, and a policy with notes is never used.

mod identity;
mod limits;
mod routes;
mod upstreams;

use std::{borrow::Cow, collections::HashMap, fmt, path::Path, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;

use self::routes::RouteNames;
use super::{
    HeaderProfile, HostPattern, Limit, Matcher, Policy, Responses, Route, Router, Sources,
    Upstream,
    file::{LATER, RawPolicy, RawResponses, RawTiers},
};
use crate::{
    identity::{Tier, Tiers},
    yaml::{Document, Entries, Node, Problem, Span, Spanned, Value, suggest},
};

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

/// The names in a policy, whatever is wrong with what they name.
#[derive(Default, Deserialize)]
struct Written {
    #[serde(default)]
    upstreams: Entries<Node>,
    #[serde(default)]
    limits: Entries<Node>,
    #[serde(default)]
    identity: WrittenIdentity,
}

#[derive(Default, Deserialize)]
struct WrittenIdentity {
    #[serde(default)]
    jwt: Vec<WrittenIssuer>,
}

#[derive(Deserialize)]
struct WrittenIssuer {
    name: Option<String>,
    #[serde(default)]
    issuer: String,
}

impl WrittenIssuer {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.issuer)
    }
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

        // Routes refer to what was written, sound or not: one mistake is told once.
        let written: Written = self.document.decode(&[], &mut Vec::new()).unwrap_or_default();
        let names = RouteNames {
            limits: Names {
                kind: "limit",
                names: written.limits.iter().map(|(name, _)| name.as_str()).collect(),
            },
            upstreams: Names {
                kind: "upstream",
                names: written.upstreams.iter().map(|(name, _)| name.as_str()).collect(),
            },
            issuers: Names {
                kind: "issuer",
                names: written.identity.jwt.iter().map(WrittenIssuer::name).collect(),
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
        self.document.one_of(raw, choices, &mut self.problems)
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
