//! From a line of a log to a request that can be judged. What the log lacks is counted.

use std::{mem::take, net::Ipv4Addr, time::Duration};

use http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header, uri::PathAndQuery};
use serde_json::{Map, Value};
use tollgate_history::{OwnFields, Record, Target};
use tollgate_identity::AssumedCaller;
use tollgate_policy::{HostPattern, Policies};
use tollgate_preview::{Draft, PastRequest};
use tollgate_response::DenialReason;
use tollgate_usage::logged::LoggedUse;

/// Where a log has the names of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerField {
    /// The kind of caller, as policies call it: `user`.
    pub kind: String,
    /// The field of the log.
    pub field: String,
}

/// What the records lack that were translated, and what they say besides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lacks {
    pub(super) requests: u64,
    /// Without a caller's name.
    pub(super) caller: u64,
    /// Without a client's address.
    pub(super) client: u64,
    /// Without a host.
    pub(super) host: u64,
    /// Lines of tollgate without facts.
    pub(super) facts: u64,
    /// Lines of others, which have no facts.
    pub(super) foreign: u64,
    /// Denied by a limit then, or answered with 429.
    pub(super) denied: u64,
    /// Without a duration.
    pub(super) duration: u64,
}

/// Translates records.
pub(super) struct Translator {
    /// The kinds of [`Record::fields`], in the same order.
    kinds: Vec<String>,
    /// The host of requests whose log has none.
    host: Option<HeaderValue>,
    pub(super) lacks: Lacks,
}

/// The value that logs have for what is not known.
const UNKNOWN: [&str; 2] = ["-", ""];

impl Translator {
    /// `host`: the host of requests whose log has none; else that of the policy, if there is one
    /// policy only.
    pub(super) fn new(
        callers: &[CallerField],
        host: Option<&str>,
        policies: &Policies,
    ) -> Translator {
        let mut all = policies.iter();
        let only = all.next().filter(|_| all.next().is_none());
        let of_policy = only.map(|policy| HostPattern::sample(&policy.hosts));
        let host = host.or(of_policy.as_deref());
        Translator {
            kinds: callers.iter().map(|caller| caller.kind.clone()).collect(),
            host: host.and_then(|host| HeaderValue::from_str(host).ok()),
            lacks: Lacks::default(),
        }
    }

    /// A request to be filled.
    pub(super) fn blank() -> PastRequest {
        let (head, ()) = Request::new(()).into_parts();
        PastRequest::new(Draft {
            head,
            body: Box::default(),
            address: Ipv4Addr::UNSPECIFIED.into(),
            token: None,
        })
    }

    /// Makes `past` the request of a record, which stands for so many requests. Target and headers
    /// are taken out of the record, because to copy them takes longer.
    ///
    /// # Errors
    /// No request with this target could be forwarded.
    pub(super) fn fill(
        &mut self,
        past: &mut PastRequest,
        record: &mut Record,
        times: u32,
    ) -> Result<(), &'static str> {
        let count = |lacks: bool| if lacks { u64::from(times) } else { 0 };
        self.lacks.requests += count(true);
        let target = match &mut record.target {
            Target::Valid(target) => std::mem::replace(target, PathAndQuery::from_static("/")),
            Target::Invalid(_) => return Err("invalid target"),
        };
        let head = &mut past.draft.head;
        head.method.clone_from(&record.method);
        head.uri = Uri::from(target);
        head.headers.clear();
        self.lacks.host += count(record.host.is_none());
        let values = [
            (header::HOST, record.host.take().or_else(|| self.host.clone())),
            (header::USER_AGENT, record.user_agent.take()),
            (header::REFERER, record.referer.take()),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                head.headers.insert(name, value);
            }
        }
        self.lacks.client += count(record.client.is_none());
        past.draft.address = record.client.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let status = record.status.and_then(|status| StatusCode::from_u16(status).ok());
        let own_denial = record.own.as_ref().and_then(|own| own.denied.as_deref());
        // A policy may deny with another status.
        let is_denied = own_denial == Some(DenialReason::Limit.name())
            || status == Some(StatusCode::TOO_MANY_REQUESTS);
        self.lacks.denied += count(is_denied);
        // What the upstream would have answered to a request that was denied then is not known.
        let status = status.filter(|_| !is_denied).unwrap_or(StatusCode::OK);
        *past.answer.status_mut() = status;
        past.answer.headers_mut().clear();
        past.draft.body = Box::default();
        let own = record.own.as_ref();
        match own.map(|own| own.facts.as_ref()) {
            Some(Some(facts)) => add_facts(past, facts),
            Some(None) => self.lacks.facts += count(true),
            None => self.lacks.foreign += count(true),
        }
        self.lacks.duration += count(record.took.is_none());
        // A denial has used nothing; what the request would have used is not known either.
        *past.used_mut() = if is_denied { LoggedUse::default() } else { take(&mut record.used) };
        // Its memory is used again.
        let before = past.set_caller(None).unwrap_or_default();
        let caller = self.caller(record, own, before);
        self.lacks.caller += count(caller.is_none());
        past.set_caller(caller);
        Ok(())
    }

    fn caller(
        &self,
        record: &Record,
        own: Option<&OwnFields>,
        mut caller: AssumedCaller,
    ) -> Option<AssumedCaller> {
        let is_known = |value: &&str| !UNKNOWN.contains(value);
        let mut fields = self.kinds.iter().zip(&record.fields);
        let named =
            fields.find_map(|(kind, value)| Some((kind, value.as_deref().filter(is_known)?)));
        caller.name.clear();
        match named {
            Some((kind, value)) => caller.name.extend([kind, ":", value]),
            None => caller.name.push_str(own?.caller.as_deref().filter(is_known)?),
        }
        let facts = own.and_then(|own| own.facts.as_ref());
        let text = |name: &str| facts?.get(name)?.as_str();
        caller.issuer = text("issuer").map(str::to_owned);
        let tier = own.and_then(|own| own.tier.as_deref()).or_else(|| text("tier"));
        match (tier, &mut caller.tier) {
            (Some(tier), Some(before)) => tier.clone_into(before),
            (tier, before) => *before = tier.map(str::to_owned),
        }
        caller.claims = facts.map(claims).unwrap_or_default();
        Some(caller)
    }
}

/// The most requests that one line may stand for: as many as `access_log.denials` allows.
const MOST_IN_A_LINE: u32 = 1_000_000;

/// How many requests a line stands for.
pub(super) fn stands_for(record: &Record) -> u32 {
    record.own.as_ref().map_or(1, |own| own.stands_for).clamp(1, MOST_IN_A_LINE)
}

/// How long a request took: until then it counts for limits of requests in flight.
pub(super) fn duration(record: &Record) -> Duration {
    record.took.unwrap_or_default()
}

fn claims(facts: &Map<String, Value>) -> Map<String, Value> {
    let claim = |(name, value): (&String, &Value)| {
        Some((name.strip_prefix("jwt.")?.to_owned(), stand_in(value)))
    };
    facts.iter().filter_map(claim).collect()
}

/// Adds what limits count by, and what the response says that the request has cost.
fn add_facts(past: &mut PastRequest, facts: &Map<String, Value>) {
    let mut cookies = String::new();
    for (name, value) in facts {
        let Value::String(text) = stand_in(value) else {
            if let (Some(cost), Value::Number(units)) = (name.strip_prefix("cost."), value) {
                let value = HeaderValue::from_str(&units.to_string()).ok();
                insert(past.answer.headers_mut(), cost, value);
            }
            continue;
        };
        let value = HeaderValue::from_str(&text).ok();
        if let Some(header) = name.strip_prefix("header.") {
            insert(&mut past.draft.head.headers, header, value);
        } else if let Some(cookie) = name.strip_prefix("cookie.") {
            let separator = if cookies.is_empty() { "" } else { "; " };
            cookies += &format!("{separator}{cookie}={text}");
        } else if name == "mcp.session" {
            insert(&mut past.draft.head.headers, "mcp-session-id", value);
        }
    }
    past.draft.body = body_of(facts);
    if !cookies.is_empty() {
        let cookies = HeaderValue::from_str(&cookies).ok();
        insert(&mut past.draft.head.headers, "cookie", cookies);
    }
    if facts.get("revalidation") == Some(&Value::Bool(true)) {
        // Which tag it was is not known, and does not matter.
        let tag = HeaderValue::from_static("\"-\"");
        insert(&mut past.draft.head.headers, "if-none-match", Some(tag));
    }
}

/// A body that has what limits count by, as JSON; empty: none of that is in bodies.
fn body_of(facts: &Map<String, Value>) -> Box<[u8]> {
    let mut body = Value::Null;
    for (name, value) in facts {
        let path = match name.as_str() {
            "mcp.method" => Some("method"),
            "mcp.tool" => Some("params.name"),
            _ => name.strip_prefix("body."),
        };
        if let Some(place) = path.and_then(|path| place_in(&mut body, path)) {
            *place = stand_in(value);
        }
    }
    if facts.contains_key("mcp.tool")
        && !facts.contains_key("mcp.method")
        && let Some(place) = place_in(&mut body, "method")
    {
        *place = "tools/call".into();
    }
    match body {
        Value::Null => Box::default(),
        body => body.to_string().into_bytes().into(),
    }
}

/// Where a path leads in a document that has nothing else. None: it is too far into an array.
fn place_in<'b>(body: &'b mut Value, path: &str) -> Option<&'b mut Value> {
    const LONGEST: usize = 64;
    let mut place = body;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        let index = step.strip_suffix(']').map(|index| index.parse().unwrap_or(0));
        place = match index {
            None => {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                place.as_object_mut()?.entry(step).or_insert(Value::Null)
            }
            Some(LONGEST..) => return None,
            Some(index) => {
                if !place.is_array() {
                    *place = Value::Array(Vec::new());
                }
                let elements = place.as_array_mut()?;
                elements.resize(elements.len().max(index + 1), Value::Null);
                elements.get_mut(index)?
            }
        };
    }
    Some(place)
}

/// Of a value that the log has as a hash, the hash: it tells callers apart as well.
fn stand_in(value: &Value) -> Value {
    match value.get("hash") {
        Some(hash) => hash.clone(),
        None => value.clone(),
    }
}

fn insert(headers: &mut http::HeaderMap, name: &str, value: Option<HeaderValue>) {
    if let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
        headers.insert(name, value);
    }
}
