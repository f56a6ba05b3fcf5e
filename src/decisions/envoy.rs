//! Calls of gRPC, by which Envoy asks.

mod check;
mod json;
mod rate_limit;

use std::rc::Rc;

use http::{Method, Response, StatusCode, request::Parts};
use tollgate_gate::Gate;
use tollgate_response::{Body, GrpcCode, call_error, call_response, is_grpc_call, problem};
use tollgate_settings::AskProtocol;
use tollgate_upstream::{ClientBody, downstream::Peer};
use tollgate_wire::{
    envoy::{
        frame::{self, FrameError},
        health::{HealthCheckRequest, HealthCheckResponse, ServingStatus},
    },
    forward_auth::{AskError, Asker},
};

use self::{check::check, json::rate_limit_by_json, rate_limit::rate_limit_by_grpc};
use super::whole_body::{WholeBodyError, whole};
use crate::guard::check_page;

/// What is called at a listener of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteCall {
    /// `envoy.service.auth.v3.Authorization/Check`.
    Check,
    /// `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`.
    RateLimit,
    /// The same in JSON, without gRPC.
    Json,
    /// `grpc.health.v1.Health/Check`.
    Health,
    /// No method of gRPC that is known here.
    Unknown,
}

/// Bytes of a call's body: what gRPC reads by default. Envoy may send a request's body along.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// The services that `grpc.health.v1` tells of; the first is the server as a whole.
const SERVICES: [&str; 3] =
    ["", "envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService"];

impl RemoteCall {
    /// What is called at this path; none: the listener does not speak gRPC.
    pub(super) fn of(path: &str, protocol: AskProtocol) -> Option<RemoteCall> {
        (protocol == AskProtocol::Grpc).then(|| match path {
            "/grpc.health.v1.Health/Check" => RemoteCall::Health,
            rate_limit::PATH => RemoteCall::RateLimit,
            json::PATH => RemoteCall::Json,
            path if path == Asker::Envoy.path() => RemoteCall::Check,
            _ => RemoteCall::Unknown,
        })
    }
}

/// Answers a call.
pub(super) async fn answer_remote(
    gate: &Rc<Gate>,
    call: RemoteCall,
    parts: &Parts,
    body: ClientBody,
    peer: &Peer,
) -> Response<Body> {
    let may_ask = peer.listener.asked.as_ref().is_some_and(|it| it.askers.contains(peer.address));
    if !is_grpc_call(parts) {
        return match (may_ask, call) {
            (false, _) => problem(StatusCode::FORBIDDEN, &AskError::NotAnAsker.to_string()),
            (true, RemoteCall::Json) => rate_limit_by_json(gate, parts, body, peer).await,
            (true, _) => not_a_call(parts),
        };
    }
    if !may_ask {
        return call_error(GrpcCode::PermissionDenied, &AskError::NotAnAsker.to_string());
    }
    // Its authority is a name of the caller's choice, such as that of a cluster. No browser sends
    // gRPC without TLS, nor to another origin.
    if let Err(suspicion) = check_page(&parts.uri, &parts.headers) {
        return call_error(GrpcCode::PermissionDenied, &suspicion.to_string());
    }
    if let RemoteCall::Unknown | RemoteCall::Json = call {
        let message = format!("there is no method {}", parts.uri.path());
        return call_error(GrpcCode::Unimplemented, &message);
    }
    let message = match whole(body, MAX_BODY).await {
        Ok(message) => message,
        Err(error) => return call_error(code_of(error), &error.to_string()),
    };
    let answered = match call {
        RemoteCall::Check => check(gate, &message, peer).await,
        RemoteCall::RateLimit => rate_limit_by_grpc(gate, parts, &message, peer).await,
        RemoteCall::Health => healthy(&message),
        RemoteCall::Json | RemoteCall::Unknown => {
            Err(Fault::new(GrpcCode::Unimplemented, "no such method"))
        }
    };
    answered.unwrap_or_else(|Fault { code, message }| call_error(code, &message))
}

/// Why a call has no answer.
struct Fault {
    code: GrpcCode,
    message: String,
}

impl Fault {
    fn new(code: GrpcCode, message: impl Into<String>) -> Fault {
        Fault { code, message: message.into() }
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Fault {
        let code = match error {
            FrameError::Compressed => GrpcCode::Unimplemented,
            FrameError::Length | FrameError::Malformed(_) => GrpcCode::InvalidArgument,
        };
        Fault::new(code, error.to_string())
    }
}

impl From<AskError> for Fault {
    fn from(error: AskError) -> Fault {
        Fault::new(GrpcCode::InvalidArgument, error.to_string())
    }
}

fn code_of(error: WholeBodyError) -> GrpcCode {
    match error {
        WholeBodyError::TooLarge(_) => GrpcCode::ResourceExhausted,
        WholeBodyError::Malformed => GrpcCode::InvalidArgument,
        WholeBodyError::Late => GrpcCode::DeadlineExceeded,
    }
}

fn not_a_call(parts: &Parts) -> Response<Body> {
    let detail = "A call of gRPC is a POST over HTTP/2 with a content type such as \
                  application/grpc; /json takes a POST of JSON. Programs (/v1/…) and other proxies \
                  (/decide/…) ask at a listener with `protocol: http`.";
    let status = match parts.method {
        Method::POST => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        _ => StatusCode::NOT_FOUND,
    };
    problem(status, detail)
}

fn healthy(message: &[u8]) -> Result<Response<Body>, Fault> {
    let HealthCheckRequest { service } = frame::read(message)?;
    if !SERVICES.contains(&&*service) {
        return Err(Fault::new(GrpcCode::NotFound, format!("there is no service {service:?}")));
    }
    let response = HealthCheckResponse { status: ServingStatus::Serving.into() };
    Ok(call_response(frame::written(&response)))
}
