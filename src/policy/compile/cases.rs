//! Tests inside a policy: what is given, and what is expected of it.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, uri::PathAndQuery};
use serde_json::{Map, Number};

use super::{Compiler, WrittenNames, words::Names};
use crate::{
    identity::{IdentityRules, VerifiedToken, VouchError, Vouched},
    policy::{
        Case, Expect, Given, HostPattern,
        file::{RawCase, RawExpect, RawGiven, RawIdentity, RawPolicy, RawResponse},
    },
    target::Host,
    yaml::{Entries, Node, Spanned, Value, suggest},
};

/// How often one test may send its request.
const MAX_REPEAT: u32 = 100_000;
/// How long after another a test may be: the longest window, and a little more.
const MAX_AFTER: Duration = Duration::from_secs(400 * 86_400);

/// The address that requests come from unless they say otherwise (RFC 5737).
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// What tests refer to.
struct CaseContext<'c> {
    raw: &'c RawPolicy,
    names: &'c WrittenNames<'c>,
    hosts: &'c [HostPattern],
    /// None: there are mistakes in it.
    identity: Option<&'c IdentityRules>,
}

impl Compiler<'_> {
    pub(super) fn cases(
        &mut self,
        raw: &RawPolicy,
        names: &WrittenNames<'_>,
        hosts: &[HostPattern],
        identity: Option<&IdentityRules>,
    ) -> Vec<Case> {
        let context = CaseContext { raw, names, hosts, identity };
        let first = raw.tests.first().and_then(|test| test.value.after.as_ref());
        if let Some(after) = first {
            let message = "there is no test before this one";
            self.refuse(after.span, message, "remove `after`, or put a test before it");
        }
        raw.tests.iter().filter_map(|test| self.case(test, &context)).collect()
    }

    fn case(&mut self, raw: &Spanned<RawCase>, context: &CaseContext<'_>) -> Option<Case> {
        let RawCase { name, after, given, repeat, expect } = &raw.value;
        let help = "write up to 400d, such as 61s";
        let after = match after {
            None => Some(None),
            Some(after) => self.duration_within(after, Duration::ZERO..=MAX_AFTER, help).map(Some),
        };
        let times = repeat.as_ref().map_or(1, |repeat| repeat.value);
        if let Some(repeat) = repeat
            && !(1..=MAX_REPEAT).contains(&times)
        {
            self.refuse(repeat.span, "out of range", format!("write 1 to {MAX_REPEAT}"));
        }
        let (given, expect) = (self.given(given, context), self.expect(expect, context));
        // Only its place is wanted: nothing is wrong with it.
        let place = self.document.problem(raw.span, "", "");
        Some(Case {
            name: name.as_ref().map(|name| name.value.as_str().into()),
            place: format!("{}:{}:{}", place.file(), place.line(), place.column()).into(),
            after: after?,
            given: given?,
            repeat: times,
            expect: expect?,
        })
    }

    fn given(&mut self, raw: &RawGiven, context: &CaseContext<'_>) -> Option<Given> {
        let method = match &raw.method {
            None => Some(Method::GET),
            Some(method) => self.method(method),
        };
        let host = match &raw.host {
            None => Some(HostPattern::sample(context.hosts)),
            Some(host) => self.case_host(host, context.hosts),
        };
        let target = self.case_target(&raw.path);
        let headers = self.case_headers(&raw.headers);
        let token = self.case_token(raw, context);
        let address = match &raw.address {
            None => Some(CLIENT),
            Some(address) => self.case_address(address),
        };
        let response = self.case_response(&raw.response);
        Some(Given {
            method: method?,
            host: host?,
            target: target?,
            headers: headers?,
            token: token?,
            address: address?,
            response: response?,
        })
    }

    fn case_host(&mut self, raw: &Spanned<String>, hosts: &[HostPattern]) -> Option<Box<str>> {
        let Ok(host) = Host::parse(raw.value.as_bytes()) else {
            let message = format!("`{}` is not a host", raw.value);
            self.refuse(raw.span, message, "write a name such as api.example.com");
            return None;
        };
        if !hosts.is_empty() && !hosts.iter().any(|pattern| pattern.matches(host.as_str())) {
            let help = "write one of the policy's `hosts`";
            self.refuse(raw.span, "no request for this host comes here", help);
        }
        Some(raw.value.as_str().into())
    }

    fn case_target(&mut self, raw: &Spanned<String>) -> Option<PathAndQuery> {
        let target = raw.value.parse::<PathAndQuery>().ok();
        let target = target.filter(|_| raw.value.starts_with('/') && !raw.value.contains('#'));
        if target.is_none() {
            let message = format!("`{}` is not a path", raw.value);
            self.refuse(raw.span, message, "write one such as /search/x?q=1");
        }
        target
    }

    fn case_headers(&mut self, raw: &Entries<Spanned<String>>) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in raw {
            let Some(known) = self.header_name(name) else { continue };
            if known == http::header::HOST {
                self.refuse(
                    name.span,
                    "the host is not one of the headers",
                    "write `host: …` beside",
                );
            }
            match HeaderValue::from_str(&value.value) {
                Ok(value) => drop(headers.append(known, value)),
                Err(_) => {
                    self.refuse(value.span, "no header can hold this", "write printable text")
                }
            }
        }
        (headers.len() == raw.len()).then_some(headers)
    }

    /// The token of a request; none if it has none.
    fn case_token(&mut self, raw: &RawGiven, context: &CaseContext<'_>) -> Option<Option<Vouched>> {
        match (&raw.jwt, &raw.api_key) {
            (None, None) => Some(None),
            (Some(_), Some(key)) => {
                self.refuse(key.span, "a request with two credentials", "keep one of them");
                None
            }
            (Some(claims), None) => self.case_claims(claims, context.identity?).map(Some),
            (None, Some(key)) => self.case_key(key, context.identity?).map(Some),
        }
    }

    fn case_claims(
        &mut self,
        raw: &Spanned<Entries<Node>>,
        identity: &IdentityRules,
    ) -> Option<Vouched> {
        let claims = raw.value.iter().map(|(name, node)| (name.value.clone(), json(&node.value)));
        let error = match identity.vouch(claims.collect()) {
            Ok(token) => return Some(token),
            Err(error) => error,
        };
        let place = |name: &str| raw.value.get(name).map_or(raw.span, |node| node.span);
        let (span, help) = match &error {
            VouchError::NoIssuer => (raw.span, "add one under `identity: jwt`".to_owned()),
            VouchError::UnknownIssuer(name) => {
                let known = || identity.issuers.iter().map(|issuer| issuer.issuer.as_str());
                let help = match suggest(name, known()) {
                    Some(issuer) => format!("did you mean `{issuer}`?"),
                    None => format!("one of: {}", known().collect::<Vec<_>>().join(", ")),
                };
                (place("iss"), help)
            }
            VouchError::NotText(name) => (place(name), "put it in quotes".into()),
        };
        self.refuse(span, error.to_string(), help);
        None
    }

    fn case_key(&mut self, raw: &Spanned<String>, identity: &IdentityRules) -> Option<Vouched> {
        let Some(rules) = &identity.api_keys else {
            let help = "add `api_keys: { file: ... }` to `identity`";
            self.refuse(raw.span, "no request has an API key: the policy knows none", help);
            return None;
        };
        let key = rules.keys.get(&raw.value);
        if key.is_none() {
            let message = format!("no API key has the id `{}`", raw.value);
            self.refuse(raw.span, message, "write the part of a key before its dot");
        }
        let (at, key) = (identity.api_keys_at(), key?);
        Some(Ok(VerifiedToken::vouched(at, key.claims.clone(), key.expires)))
    }

    fn case_address(&mut self, raw: &Spanned<String>) -> Option<IpAddr> {
        let address = raw.value.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        if address.is_none() {
            let message = format!("`{}` is not an address", raw.value);
            self.refuse(raw.span, message, "write one such as 192.0.2.1 or 2001:db8::1");
        }
        address
    }

    fn case_response(&mut self, raw: &RawResponse) -> Option<Response<()>> {
        let status = match &raw.status {
            None => Some(StatusCode::OK),
            Some(status) => self.case_status(status, 200),
        };
        let mut response = Response::new(());
        *response.headers_mut() = self.case_headers(&raw.headers)?;
        *response.status_mut() = status?;
        Some(response)
    }

    fn case_status(&mut self, raw: &Spanned<u16>, least: u16) -> Option<StatusCode> {
        let status = StatusCode::from_u16(raw.value).ok();
        let status = status.filter(|_| (least..=599).contains(&raw.value));
        if status.is_none() {
            let message = format!("{} is not the status of a response", raw.value);
            self.refuse(raw.span, message, format!("write {least} to 599"));
        }
        status
    }

    fn expect(&mut self, raw: &RawExpect, context: &CaseContext<'_>) -> Option<Expect> {
        let CaseContext { raw: policy, names, .. } = context;
        let routes = policy.routes.value.iter();
        let routes = routes.map(|route| route.value.matcher.path.value.as_str()).collect();
        let routes = Names { kind: "route", names: routes };
        let status = raw.status.as_ref().map(|status| self.case_status(status, 100));
        let limit = raw.limit.as_ref().map(|name| self.known(name, &names.limits));
        let route = raw.route.as_ref().map(|name| self.known(name, &routes));
        let identity: &RawIdentity = &policy.identity;
        let caller = raw.caller.as_ref().map(|name| self.caller_name(name, identity, names));
        let headers = self.expected_headers(&raw.headers);
        Some(Expect {
            status: optional(status)?,
            limit: optional(limit)?,
            route: optional(route)?,
            caller: optional(caller)?,
            headers: headers?,
        })
    }

    fn known(&mut self, name: &Spanned<String>, names: &Names<'_>) -> Option<Box<str>> {
        self.resolve(name, names).map(|_| name.value.as_str().into())
    }

    fn expected_headers(
        &mut self,
        raw: &Entries<Node>,
    ) -> Option<Vec<(HeaderName, Option<Box<str>>)>> {
        let mut headers = Vec::new();
        for (name, node) in raw {
            let known = self.header_name(name);
            let value = match &node.value {
                Value::Null => Some(None),
                Value::String(text) => Some(Some(text.as_str().into())),
                Value::Integer(number) => Some(Some(number.to_string().into())),
                Value::Bool(truth) => Some(Some(truth.to_string().into())),
                other => {
                    let message = format!("expected text, found {}", other.kind());
                    let help = "write what the header says, or `null` if it is not to be there";
                    self.refuse(node.span, message, help);
                    None
                }
            };
            headers.extend(known.zip(value));
        }
        (headers.len() == raw.len()).then_some(headers)
    }
}

/// What may be left out, and is wrong if what is there cannot be read.
fn optional<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

/// A claim as it is written in YAML.
fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => {
            Number::from_f64(*number).map_or(serde_json::Value::Null, Into::into)
        }
        Value::String(text) => text.as_str().into(),
        Value::Sequence(nodes) => nodes.iter().map(|node| json(&node.value)).collect(),
        Value::Mapping(entries) => {
            let members =
                entries.iter().map(|(name, node)| (name.value.clone(), json(&node.value)));
            serde_json::Value::Object(members.collect::<Map<_, _>>())
        }
    }
}
