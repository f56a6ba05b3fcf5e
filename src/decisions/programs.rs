//! Calls of programs over HTTP: JSON in, JSON out, errors as problem details (RFC 9457).

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use tollgate_clock::Timestamp;
use tollgate_gate::{Gate, Program, X_REQUEST_ID};
use tollgate_limit::Standing;
use tollgate_response::{Body, problem};
use tollgate_settings::{Permission, TokenRefusal};
use tollgate_upstream::{ClientBody, downstream::Peer};

use super::{
    calls::{
        Answer, Call, CallAnswer, CallError, DENIED, Operation, Reason, RefusedCall,
        WindowStanding, answer, refuse,
    },
    named_limits::{
        ChargeTime, MAX_WAIT, NamedCharge, ReceiptError, SettledCost, instant_of, parse_instant,
    },
    origin::check_origin,
    whole_body::{WholeBodyError, whole},
};
use crate::guard::{Suspicion, check_call};

/// Bytes of a call's body.
const MAX_BODY: usize = 64 * 1024;

const PROTOCOL: &str = "http";

const WAIT_AND_AT: &str =
    "Write either `wait` or `at`: what is charged at an instant does not wait for another.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChargeCall {
    charges: Vec<WrittenCharge>,
    wait: Option<String>,
    at: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCharge {
    limit: String,
    key: String,
    cost: Option<u32>,
    tier: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleCall {
    receipt: String,
    give_back: Option<bool>,
    cost: Option<u32>,
    /// What a response of a language model says that it has used.
    usage: Option<Map<String, Value>>,
    limit: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseCall {
    receipt: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetCall {
    limit: String,
    key: String,
    why: Option<String>,
}

/// What a query for a standing asks.
struct StandingQuery {
    limit: String,
    key: String,
    tier: Option<String>,
    at: Option<Timestamp>,
}

/// Why a call has no answer.
struct Refusal {
    status: StatusCode,
    detail: String,
    /// What goes with it.
    field: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    fn new(status: StatusCode, detail: String) -> Refusal {
        Refusal { status, detail, field: None }
    }
}

impl From<TokenRefusal> for Refusal {
    fn from(refusal: TokenRefusal) -> Refusal {
        let (status, name, value) = refusal.answer();
        let detail = sentence(&refusal);
        Refusal { status, detail, field: Some((name, value)) }
    }
}

impl From<WholeBodyError> for Refusal {
    fn from(error: WholeBodyError) -> Refusal {
        Refusal::new(error.status(), format!("The body is no call: {error}."))
    }
}

impl From<Suspicion> for Refusal {
    fn from(suspicion: Suspicion) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, suspicion.to_string())
    }
}

impl Operation {
    /// What is called at this path; none: it is no call of a program.
    pub(super) fn of(path: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.path() == path)
    }
}

/// Answers a call of a program.
pub(super) async fn answer_program(
    gate: &Gate,
    operation: Operation,
    parts: &Parts,
    body: ClientBody,
    peer: &Peer,
) -> Response<Body> {
    let program = Program {
        address: peer.address,
        protocol: PROTOCOL,
        user_agent: parts.headers.get(header::USER_AGENT),
    };
    let decided = match admit(operation, parts, peer) {
        Ok(()) => decide(gate, operation, parts, body, program).await,
        Err(refusal) => Err(refusal),
    };
    let answered = match decided {
        Ok(answered) => answered,
        Err(Refusal { status, detail, field }) => {
            let mut response = problem(status, &detail);
            let method = parts.method.clone();
            let refused = RefusedCall { method, operation, status, error: detail };
            let (account, request_id) = refuse(gate, program, refused);
            let field = field.map(|(name, value)| (name, HeaderValue::from_static(value)));
            response.headers_mut().extend(field);
            response.headers_mut().insert(X_REQUEST_ID.clone(), request_id);
            response.body_mut().set_account(account);
            return response;
        }
    };
    respond(answered)
}

/// Refuses what a web page may have sent, other methods than the operation's, and who lacks the
/// token.
fn admit(operation: Operation, parts: &Parts, peer: &Peer) -> Result<(), Refusal> {
    check_origin(parts, peer)?;
    if parts.method != operation.method() {
        let detail = format!("{} takes {}.", operation.path(), operation.method());
        let field = Some((header::ALLOW, operation.method_name()));
        return Err(Refusal { status: StatusCode::METHOD_NOT_ALLOWED, detail, field });
    }
    if parts.method == Method::POST {
        check_call(&parts.headers)?;
    }
    let asked = peer.listener.asked.as_ref();
    if let Some(token) = asked.and_then(|asked| asked.token.as_ref()) {
        let checked = token.check(Permission::Write, &parts.headers, peer.address, Instant::now());
        if checked == Err(TokenRefusal::WrongToken) {
            tracing::warn!(peer = %peer.address, "a program has sent a wrong token");
        }
        checked?;
    }
    Ok(())
}

async fn decide(
    gate: &Gate,
    operation: Operation,
    parts: &Parts,
    body: ClientBody,
    program: Program<'_>,
) -> Result<CallAnswer, Refusal> {
    Ok(match operation {
        Operation::Standing => {
            let StandingQuery { limit, key, tier, at } =
                standing_query(parts.uri.query().unwrap_or_default())?;
            let of = NamedCharge {
                limit: &limit,
                key: key.as_bytes(),
                cost: None,
                tier: tier.as_deref(),
            };
            answer(gate, Call::Standing(of, at), program).await
        }
        Operation::Charge => {
            let ChargeCall { charges, wait, at } = read(body).await?;
            let time = match (wait, at) {
                (None, None) => ChargeTime::Now(Duration::ZERO),
                (Some(wait), None) => ChargeTime::Now(wait_of(&wait)?),
                (None, Some(at)) => ChargeTime::At(instant(&at)?),
                (Some(_), Some(_)) => return Err(bad(WAIT_AND_AT)),
            };
            let charges: Vec<NamedCharge<'_>> = charges
                .iter()
                .map(|own| NamedCharge {
                    limit: &own.limit,
                    key: own.key.as_bytes(),
                    cost: own.cost,
                    tier: own.tier.as_deref(),
                })
                .collect();
            answer(gate, Call::Charge(&charges, time), program).await
        }
        Operation::Settle => {
            let call: SettleCall = read(body).await?;
            let usage = call.usage.as_ref().map(|usage| json!(usage).to_string());
            let cost = call.settled_cost(usage.as_deref())?;
            answer(gate, Call::Settle(&call.receipt, call.limit.as_deref(), cost), program).await
        }
        Operation::Release => {
            let ReleaseCall { receipt } = read(body).await?;
            answer(gate, Call::Release(&receipt), program).await
        }
        Operation::Reset => {
            let ResetCall { limit, key, why } = read(body).await?;
            let why = Reason::parse(why.as_deref().unwrap_or_default());
            let why = why.map_err(|error| bad(format!("`why`: {error}.")))?;
            let of = NamedCharge { limit: &limit, key: key.as_bytes(), cost: None, tier: None };
            answer(gate, Call::Reset(of, &why), program).await
        }
    })
}

impl SettleCall {
    /// What it settles to, which may be the cost of this usage.
    fn settled_cost<'u>(&self, usage: Option<&'u str>) -> Result<SettledCost<'u>, Refusal> {
        match (self.give_back, self.cost, usage) {
            (Some(true), None, None) => Ok(SettledCost::Units(0)),
            (None, Some(cost), None) => Ok(SettledCost::Units(cost)),
            (None, None, Some(usage)) => Ok(SettledCost::Usage(usage)),
            _ => Err(bad("Write one of `\"give_back\": true`, `\"cost\"` and `\"usage\"`.")),
        }
    }
}

/// The response with an answer.
fn respond(answered: CallAnswer) -> Response<Body> {
    let CallAnswer { answer, headers, account, request_id } = answered;
    let mut response = match answer {
        Ok(Answer { denied: Some(denied), standings, .. }) => {
            let retry_after = denied.retry_after.map(|wait| wait.as_secs_f64());
            let body = json!({
                "allowed": false,
                "denied_by": denied.by,
                "retry_after": retry_after,
                "standings": written_standings(&standings),
            });
            let mut response = written(&body);
            *response.status_mut() = DENIED;
            if let Some(wait) = denied.retry_after {
                let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
        Ok(Answer { standings, receipt, .. }) => {
            let mut body = json!({ "allowed": true, "standings": written_standings(&standings) });
            if let (Some(receipt), Some(body)) = (receipt, body.as_object_mut()) {
                body.insert("receipt".to_owned(), receipt.into());
            }
            written(&body)
        }
        Err(error) => {
            let mut response = problem(error.status(), &sentence(&error));
            if let CallError::Store(_)
            | CallError::NotReset(_)
            | CallError::Receipt(ReceiptError::Store(_)) = error
            {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            response
        }
    };
    response.headers_mut().extend(headers);
    response.headers_mut().insert(X_REQUEST_ID.clone(), request_id);
    response.body_mut().set_account(account);
    response
}

/// A response with a body in JSON, for now only.
pub(super) fn written(body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::full(format!("{body}\n")));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn written_standings(standings: &[WindowStanding]) -> Value {
    let written = standings.iter().map(|own| {
        let WindowStanding { limit, window_seconds, standing } = own;
        let Standing { limit: of, used, remaining, .. } = standing;
        let mut written = json!({ "limit": limit, "of": of, "used": used, "remaining": remaining });
        for (name, number) in [("window_seconds", *window_seconds), ("reset", own.reset())] {
            if let (Some(number), Some(written)) = (number, written.as_object_mut()) {
                written.insert(name.to_owned(), number.into());
            }
        }
        written
    });
    written.collect()
}

fn sentence(error: &impl Display) -> String {
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text + "."
}

fn bad(detail: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, detail.into())
}

async fn read<T: DeserializeOwned>(body: ClientBody) -> Result<T, Refusal> {
    serde_json::from_slice(&whole(body, MAX_BODY).await?)
        .map_err(|error| bad(format!("The body is not as it should be: {error}.")))
}

fn wait_of(text: &str) -> Result<Duration, Refusal> {
    let wait = humantime::parse_duration(text).ok().filter(|wait| *wait <= MAX_WAIT);
    wait.ok_or_else(|| bad(format!("`wait` is {text:?}: write a time up to 5m, such as \"5s\".")))
}

/// What `at` says.
fn instant(at: &Value) -> Result<Timestamp, Refusal> {
    let instant = match at {
        Value::String(text) => parse_instant(text),
        Value::Number(seconds) => seconds.as_f64().and_then(instant_of),
        _ => None,
    };
    instant.ok_or_else(|| no_instant(at))
}

fn no_instant(at: impl Display) -> Refusal {
    bad(format!(
        "`at` is {at}: write an instant such as \"2026-11-25T14:00:00Z\", or seconds since 1970."
    ))
}

/// From a query such as `limit=zendesk&key=acct-7`.
fn standing_query(query: &str) -> Result<StandingQuery, Refusal> {
    const FORM: &str = "?limit=…&key=…, &tier=… and &at=… for an instant";
    let (mut limit, mut key, mut tier, mut at) = (None, None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place = match &*name {
            "limit" => &mut limit,
            "key" => &mut key,
            "tier" => &mut tier,
            "at" => &mut at,
            other => return Err(bad(format!("{other:?} is not known: write {FORM}."))),
        };
        if place.replace(value.into_owned()).is_some() {
            return Err(bad(format!("{name:?} is there twice.")));
        }
    }
    let (limit, key) = limit.zip(key).ok_or_else(|| bad(format!("Write {FORM}.")))?;
    let at = at.map(|at| parse_instant(&at).ok_or_else(|| no_instant(format!("{at:?}"))));
    Ok(StandingQuery { limit, key, tier, at: at.transpose()? })
}
