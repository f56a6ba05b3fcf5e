//! Tests inside a policy: what is given, and what is expected of it.

use std::{
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, uri::PathAndQuery,
};
use serde_json::{Map, Number};
use tollgate_clock::Timestamp;
use tollgate_identity::{
    AssumedToken, AssumedTokenError, IdentityRules, Issuer, IssuerClaim, VerifiedToken,
};
use tollgate_wire::target::Host;
use tollgate_yaml::{Check, Entries, Node, Spanned, Value, suggest};

use super::{Compiler, WrittenNames, words::Names, written::written_at};
use crate::{
    Begin, Case, Expect, Given, HostPattern, MAX_REQUESTS,
    file::{RawCase, RawExpect, RawGiven, RawIdentity, RawPolicy, RawResponse},
};

/// How often one test may send its request.
const MAX_REPEAT: u32 = 100_000;
/// How long after another a test may be, and how long its own requests may take: the longest
/// window, and a little more.
const MAX_AFTER: Duration = Duration::from_secs(400 * 86_400);

/// When a test begins that does not say when: 2026-01-15T12:00:00Z.
const START: Timestamp = Timestamp::from_secs(1_768_478_400);
/// What instants a test may begin at: 2000-01-01 to 2199-12-31. Calendars end, and tests go on for
/// some time.
const STARTS: RangeInclusive<Timestamp> =
    Timestamp::from_secs(946_684_800)..=Timestamp::from_secs(7_258_118_399);

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
        let written = written_at(self.inspection.document, &["tests"]).map(|tests| &tests.value);
        // One before it may be of a wrong type.
        let is_first = |test: &&Spanned<RawCase>| match written {
            Some(Value::Sequence(tests)) => tests.first().is_some_and(|own| own.span == test.span),
            _ => true,
        };
        let first = raw.tests.first().filter(is_first);
        let first = first.and_then(|test| test.value.after.as_ref());
        if let Some(after) = first {
            let message = "there is no test before this one";
            self.refuse(after.span, message, "remove `after`, or put a test before it");
        }
        self.bound_requests(&raw.tests);
        raw.tests.iter().filter_map(|test| self.case(test, &context)).collect()
    }

    /// Refuses the first test that sends more than is left of what all may send.
    fn bound_requests(&mut self, tests: &[Spanned<RawCase>]) {
        let mut requests = 0_u64;
        for test in tests {
            let repeat = test.value.repeat.as_ref();
            requests = requests.saturating_add(repeat.map_or(1, |repeat| repeat.value.into()));
            if requests > MAX_REQUESTS {
                let span = repeat.map_or(test.span, |repeat| repeat.span);
                let message = "the tests of this policy send too many requests";
                let help = format!("write smaller limits or fewer repeats: {MAX_REQUESTS} in all");
                return self.refuse(span, message, help);
            }
        }
    }

    fn case(&mut self, raw: &Spanned<RawCase>, context: &CaseContext<'_>) -> Option<Case> {
        let RawCase { name, at, after, given, repeat, every, expect } = &raw.value;
        let begin = self.begin(at.as_ref(), after.as_ref());
        let times = self.number_or(repeat, 1..=MAX_REPEAT, 1);
        let every = match every {
            None => Some(Duration::ZERO),
            Some(every) => self.every(every, times),
        };
        if let Some(admitted) = &expect.admitted
            && admitted.value > times
        {
            let message = format!("the request is sent only {times} times");
            self.refuse(
                admitted.span,
                message,
                "write a larger `repeat`, or a smaller number here",
            );
        }
        let given = self.given(given, context);
        let expect = self.expect(expect, context);
        Some(Case {
            name: name.as_ref().map(|name| name.value.as_str().into()),
            // Only its place is wanted: nothing is wrong with it.
            place: self.inspection.document.problem(raw.span, "", ""),
            begin: begin?,
            given: given?,
            repeat: times,
            every: every?,
            expect: expect?,
        })
    }

    fn begin(
        &mut self,
        at: Option<&Spanned<String>>,
        after: Option<&Spanned<String>>,
    ) -> Option<Begin> {
        if let (Some(at), Some(_)) = (at, after) {
            let message = "a test with `after` goes on where the test before it ended";
            self.refuse(
                at.span,
                message,
                "remove `after`, or write `at` at the first test of them",
            );
            return None;
        }
        if let Some(after) = after {
            return self.time(after, Duration::ZERO..=MAX_AFTER).map(Begin::After);
        }
        let Some(at) = at else { return Some(Begin::At(START)) };
        let start = Timestamp::parse_start(&at.value).filter(|start| STARTS.contains(start));
        if start.is_none() {
            let message = format!("`{}` is not a day or an instant from 2000 to 2199", at.value);
            self.note(at.span, message, "write one such as 2026-12-31 or 2026-12-31T18:00:00Z");
        }
        start.map(Begin::At)
    }

    /// The time between `times` requests.
    fn every(&mut self, raw: &Spanned<String>, times: u32) -> Option<Duration> {
        if times < 2 {
            let message = "the request is sent only once";
            self.refuse(raw.span, message, "add `repeat`, or remove `every`");
            return None;
        }
        let longest = MAX_AFTER / (times - 1);
        let every = self.time(raw, Duration::from_micros(1)..=MAX_AFTER)?;
        if every > longest {
            let help = "write a time such as 10ms: all requests of a test are sent within 400d";
            self.refuse(raw.span, format!("`{}` is out of range", raw.value), help);
        }
        Some(every)
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
            body: raw
                .body
                .as_ref()
                .map(|body| written_text(body).into_bytes())
                .unwrap_or_default()
                .into(),
            token: token?,
            address: address?,
            response: response?,
        })
    }

    fn case_host(&mut self, raw: &Spanned<String>, hosts: &[HostPattern]) -> Option<Box<str>> {
        let Ok(host) = Host::parse(raw.value.as_bytes()) else {
            let message = format!("`{}` is not a host", raw.value);
            self.note(raw.span, message, "write a name such as api.example.com");
            return None;
        };
        if !hosts.is_empty() && !hosts.iter().any(|pattern| pattern.matches(host.as_str())) {
            let help = "write one of the policy's `hosts`";
            self.refuse(raw.span, "the policy is not for this host", help);
        }
        Some(raw.value.as_str().into())
    }

    fn case_target(&mut self, raw: &Spanned<String>) -> Option<PathAndQuery> {
        let target = raw.value.parse::<PathAndQuery>().ok();
        let target = target.filter(|_| raw.value.starts_with('/') && !raw.value.contains('#'));
        if target.is_none() {
            let message = format!("`{}` is not a path", raw.value);
            self.note(raw.span, message, "write one such as /search/x?q=1");
        }
        target
    }

    fn case_headers(&mut self, raw: &Entries<Spanned<String>>) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in raw {
            let Some(known) = self.header_name(name) else { continue };
            if known == http::header::HOST {
                self.note(
                    name.span,
                    "the host is not one of the headers",
                    "write `host: …` beside",
                );
            }
            match HeaderValue::from_str(&value.value) {
                Ok(value) => drop(headers.append(known, value)),
                Err(_) => self.note(value.span, "no header can hold this", "write printable text"),
            }
        }
        (headers.len() == raw.len()).then_some(headers)
    }

    /// The token of a request; none if it has none.
    fn case_token(
        &mut self,
        raw: &RawGiven,
        context: &CaseContext<'_>,
    ) -> Option<Option<AssumedToken>> {
        match (&raw.jwt, &raw.api_key) {
            (None, None) => Some(None),
            (Some(_), Some(key)) => {
                self.refuse(key.span, "a request with two credentials", "keep one of them");
                None
            }
            (Some(claims), None) => match context.identity {
                Some(identity) => self.case_claims(claims, identity).map(Some),
                None => {
                    self.check_claim_texts(claims);
                    None
                }
            },
            (None, Some(key)) => self.case_key(key, context.identity?).map(Some),
        }
    }

    fn case_claims(
        &mut self,
        raw: &Spanned<Entries<Node>>,
        identity: &IdentityRules,
    ) -> Option<AssumedToken> {
        let claims = raw.value.iter().map(|(name, node)| (name.value.clone(), json(&node.value)));
        let error = match identity.assume_token(claims.collect()) {
            Ok(token) => return Some(token),
            Err(error) => error,
        };
        let place = |name: &str| raw.value.get(name).map_or(raw.span, |node| node.span);
        let (span, help) = match &error {
            AssumedTokenError::NoIssuer => (raw.span, "add one under `identity: jwt`".to_owned()),
            AssumedTokenError::UnknownIssuer(name) => (place("iss"), known_issuers(name, identity)),
            AssumedTokenError::NotText(name) => (place(name), "put it in quotes".into()),
        };
        self.refuse(span, error.to_string(), help);
        None
    }

    /// Finds what is wrong with claims, by whichever issuer.
    fn check_claim_texts(&mut self, raw: &Spanned<Entries<Node>>) {
        for name in ["sub", "iss"] {
            let is_text = |node: &&Node| matches!(node.value, Value::String(_));
            if let Some(node) = raw.value.get(name).filter(|node| !is_text(node)) {
                let message = AssumedTokenError::NotText(name).to_string();
                self.note(node.span, message, "put it in quotes");
            }
        }
    }

    fn case_key(
        &mut self,
        raw: &Spanned<String>,
        identity: &IdentityRules,
    ) -> Option<AssumedToken> {
        let Some(rules) = &identity.api_keys else {
            let help = "add `api_keys: { file: ... }` to `identity`";
            self.refuse(raw.span, "no request has an API key: the policy knows none", help);
            return None;
        };
        let key = rules.keys.get(&raw.value);
        // By name, no key is known, and the test is left out.
        if key.is_none() && !self.inspection.sources.are_by_name() {
            let message = format!("no API key has the id `{}`", raw.value);
            self.refuse(raw.span, message, "write the part of a key before its dot");
        }
        let at = identity.api_keys_position();
        let key = key?;
        Some(Ok(VerifiedToken::trusted(at, key.claims.clone(), key.expires)))
    }

    fn case_address(&mut self, raw: &Spanned<String>) -> Option<IpAddr> {
        let address = raw.value.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        if address.is_none() {
            let message = format!("`{}` is not an address", raw.value);
            self.note(raw.span, message, "write one such as 192.0.2.1 or 2001:db8::1");
        }
        address
    }

    fn case_response(&mut self, raw: &RawResponse) -> Option<Response<Box<[u8]>>> {
        let status = match &raw.status {
            None => Some(StatusCode::OK),
            Some(status) => self.case_status(status, 200),
        };
        let (content_type, body) = match (&raw.json, &raw.sse) {
            (None, None) => (None, String::new()),
            (Some(body), None) => (Some("application/json"), json(&body.value).to_string()),
            (None, Some(events)) => {
                let data = events.value.iter().map(written_text);
                let events =
                    data.map(|data| format!("data: {}\n\n", data.replace('\n', "\ndata: ")));
                (Some("text/event-stream"), events.collect())
            }
            (Some(_), Some(events)) => {
                self.refuse(events.span, "a body of JSON and one of events", "keep one");
                return None;
            }
        };
        let mut response = Response::new(body.into_bytes().into());
        *response.headers_mut() = self.case_headers(&raw.headers)?;
        if let Some(content_type) = content_type {
            let content_type = HeaderValue::from_static(content_type);
            response.headers_mut().entry(header::CONTENT_TYPE).or_insert(content_type);
        }
        *response.status_mut() = status?;
        Some(response)
    }

    fn case_status(&mut self, raw: &Spanned<u16>, least: u16) -> Option<StatusCode> {
        let status = StatusCode::from_u16(raw.value).ok();
        let status = status.filter(|_| (least..=599).contains(&raw.value));
        if status.is_none() {
            let message = format!("{} is not the status of a response", raw.value);
            self.note(raw.span, message, format!("write {least} to 599"));
        }
        status
    }

    fn expect(&mut self, raw: &RawExpect, context: &CaseContext<'_>) -> Option<Expect> {
        let CaseContext { raw: policy, names, .. } = context;
        let status = raw.status.as_ref().map(|status| self.case_status(status, 100));
        let limit = raw.limit.as_ref().map(|name| self.known(name, &names.limits));
        let would_deny = raw.would_deny.as_ref().map(|limits| self.would_deny(limits, names));
        let route = raw.route.as_ref().map(|name| self.known(name, &names.routes));
        let identity: &RawIdentity = &policy.identity;
        let caller = raw.caller.as_ref().map(|name| self.caller_name(name, identity, names));
        let headers = self.expected_headers(&raw.headers);
        Some(Expect {
            status: optional(status)?,
            limit: optional(limit)?,
            would_deny: optional(would_deny)?,
            route: optional(route)?,
            caller: optional(caller)?,
            admitted: raw.admitted.as_ref().map(|admitted| admitted.value),
            headers: headers?,
        })
    }

    /// The names of limits: one, or a list of them; perhaps of their candidates.
    fn would_deny(&mut self, raw: &Node, names: &WrittenNames<'_>) -> Option<Vec<Box<str>>> {
        let nodes = match &raw.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(raw),
        };
        let mut limits: Vec<Box<str>> = Vec::new();
        for node in nodes {
            let Value::String(text) = &node.value else {
                let message = format!("expected the name of a limit, found {}", node.value.kind());
                self.note(node.span, message, "write `core`, or `[core, search]`");
                return None;
            };
            let name = text.strip_suffix(";candidate").unwrap_or(text);
            let name = Spanned { value: name.to_owned(), span: node.span };
            self.resolve(&name, &names.limits)?;
            limits.push(text.as_str().into());
        }
        limits.sort_unstable();
        Some(limits)
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
                    self.note(node.span, message, help);
                    None
                }
            };
            headers.extend(known.zip(value));
        }
        (headers.len() == raw.len()).then_some(headers)
    }
}

/// What `iss` may be in the claims of a test, for one who has written this.
fn known_issuers(written: &str, identity: &IdentityRules) -> String {
    let known = || {
        identity.issuers.iter().map(|issuer| match issuer.claim {
            IssuerClaim::Absent => &issuer.name,
            IssuerClaim::Exact | IssuerClaim::Tenants(_) => &issuer.issuer,
        })
    };
    if let Some(issuer) = suggest(written, known().map(String::as_str)) {
        return format!("did you mean `{issuer}`?");
    }
    let listed = known().map(String::as_str).collect::<Vec<_>>().join(", ");
    let is_without = |issuer: &&Issuer| issuer.claim == IssuerClaim::Absent;
    match identity.issuers.iter().find(is_without) {
        Some(Issuer { name, .. }) => format!(
            "one of: {listed}; tokens of `{name}` have no `iss`, and that name in its place says \
             that the token is one of them"
        ),
        None => format!("one of: {listed}"),
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
/// A text as it is, anything else as JSON.
fn written_text(node: &Node) -> String {
    match &node.value {
        Value::String(text) => text.clone(),
        value => json(value).to_string(),
    }
}

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
