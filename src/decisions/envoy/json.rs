//! The question of Envoy's rate limit filter in JSON, as Protocol Buffers write it, for people and
//! tests.

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Map, Value, json};
use tollgate_gate::Gate;
use tollgate_response::{Body, problem};
use tollgate_upstream::{ClientBody, downstream::Peer};
use tollgate_wire::envoy::rate_limit::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};

use super::rate_limit::{LimitError, RateLimitAnswer, rate_limit};
use crate::{
    decisions::{origin::check_origin, programs::written, whole_body::whole},
    guard::check_call,
};

/// Where it is asked.
pub(super) const PATH: &str = "/json";

/// Bytes of a question.
const MAX_BODY: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Question {
    domain: String,
    descriptors: Vec<Descriptor>,
    #[serde(default, alias = "hits_addend", deserialize_with = "number")]
    hits_addend: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Descriptor {
    entries: Vec<Pair>,
    #[serde(default, alias = "hits_addend", deserialize_with = "number")]
    hits_addend: Option<u64>,
    #[serde(default, alias = "is_negative_hits")]
    is_negative_hits: bool,
    /// Only policies say what is allowed.
    #[serde(default, rename = "limit")]
    _limit: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    key: String,
    value: String,
}

/// Numbers of 64 bits are texts, too.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Option::<Written>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Written::Number(number)) => Ok(Some(number)),
        Some(Written::Text(text)) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

impl From<Question> for RateLimitRequest {
    fn from(question: Question) -> RateLimitRequest {
        let Question { domain, descriptors, hits_addend } = question;
        let descriptors = descriptors.into_iter().map(|own| RateLimitDescriptor {
            entries: own
                .entries
                .into_iter()
                .map(|Pair { key, value }| Entry { key, value })
                .collect(),
            hits_addend: own.hits_addend,
            is_negative_hits: own.is_negative_hits,
        });
        RateLimitRequest {
            domain,
            descriptors: descriptors.collect(),
            hits_addend: hits_addend.map_or(0, |hits| u32::try_from(hits).unwrap_or(u32::MAX)),
        }
    }
}

/// Answers in JSON: 200, or 429 if a descriptor has no room.
pub(super) async fn rate_limit_by_json(
    gate: &Gate,
    parts: &Parts,
    body: ClientBody,
    peer: &Peer,
) -> Response<Body> {
    if let Err(suspicion) = check_origin(parts, peer) {
        return problem(StatusCode::FORBIDDEN, &suspicion.to_string());
    }
    if parts.method != Method::POST {
        let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "/json takes POST.");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    if let Err(suspicion) = check_call(&parts.headers) {
        return problem(StatusCode::FORBIDDEN, &suspicion.to_string());
    }
    let question = match whole(body, MAX_BODY).await {
        Ok(body) => serde_json::from_slice::<Question>(&body),
        Err(error) => {
            return problem(error.status(), &format!("The body is no question: {error}."));
        }
    };
    let request = match question {
        Ok(question) => RateLimitRequest::from(question),
        Err(error) => {
            let detail = format!("The body is not as it should be: {error}.");
            return problem(StatusCode::BAD_REQUEST, &detail);
        }
    };
    let RateLimitAnswer { answer, account } = rate_limit(gate, &request, PATH, parts, peer).await;
    let mut response = match answer {
        Ok(answer) => response_of(&answer),
        Err(LimitError::Descriptors(error)) => {
            problem(StatusCode::BAD_REQUEST, &format!("This cannot be asked: {error}."))
        }
        Err(LimitError::Store(error)) => {
            problem(StatusCode::SERVICE_UNAVAILABLE, &format!("Nothing was decided: {error}."))
        }
    };
    response.body_mut().set_account(account);
    response
}

fn response_of(answer: &RateLimitResponse) -> Response<Body> {
    let statuses: Vec<Value> = answer.statuses.iter().map(status).collect();
    let code = answer.overall_code();
    let mut all = Map::new();
    all.insert("overallCode".to_owned(), code.name().into());
    all.insert("statuses".to_owned(), statuses.into());
    let fields = answer.response_headers_to_add.iter();
    let fields: Vec<Value> =
        fields.map(|field| json!({ "key": field.key, "value": field.value })).collect();
    if !fields.is_empty() {
        all.insert("responseHeadersToAdd".to_owned(), fields.into());
    }
    let mut response = written(&Value::Object(all));
    if code == Code::OverLimit {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    response
}

fn status(status: &DescriptorStatus) -> Value {
    let mut all = Map::new();
    all.insert("code".to_owned(), status.code().name().into());
    if let Some(limit) = &status.current_limit {
        let limit = json!({
            "requestsPerUnit": limit.requests_per_unit,
            "unit": limit.unit().name(),
            "name": limit.name,
        });
        all.insert("currentLimit".to_owned(), limit);
    }
    if let Some(reset) = status.duration_until_reset {
        all.insert("limitRemaining".to_owned(), status.limit_remaining.into());
        let reset = format!("{}.{:09}s", reset.seconds, reset.nanos);
        all.insert("durationUntilReset".to_owned(), reset.into());
    }
    Value::Object(all)
}
