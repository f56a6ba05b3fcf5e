//! Envoy's filter `ext_authz`: may this request be forwarded?
//!
//! The request is judged like one that came in here. Envoy changes its head as this proxy would,
//! and the client's response gets the limit headers.

use std::{net::IpAddr, rc::Rc};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use tollgate_gate::{Gate, HeadChanges, Undecided};
use tollgate_identity::{address_told, canonical};
use tollgate_response::{Body, GrpcCode, call_response};
use tollgate_upstream::downstream::Peer;
use tollgate_wire::{
    envoy::{
        AppendAction, HeaderValue as EnvoyField, HeaderValueOption,
        authorization::{
            AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, HttpRequest,
            HttpResponse, HttpStatus, OkHttpResponse, Status,
        },
        frame,
    },
    forward_auth::{AskError, Asker, Description, head_of},
};

use super::Fault;

/// The code in a message that denies: `google.rpc.Code`.
const PERMISSION_DENIED: i32 = 7;

/// Answers whether a request may be forwarded.
pub(super) async fn check(
    gate: &Rc<Gate>,
    message: &[u8],
    peer: &Peer,
) -> Result<Response<Body>, Fault> {
    let asked: CheckRequest = frame::read(message)?;
    let AttributeContext { source, request } =
        asked.attributes.ok_or(AskError::Missing("attributes"))?;
    let address = source.and_then(|source| source.address?.socket_address);
    let address = address.ok_or(AskError::Missing("source address"))?.address;
    let address: IpAddr = address.parse().map_err(|_| AskError::Malformed("source address"))?;
    let http = request.and_then(|request| request.http).ok_or(AskError::Missing("request"))?;
    let parts = match head(http) {
        // With a fault, Envoy's `failure_mode_allow` would decide about what a client has written.
        Err(error @ AskError::Malformed(_)) => {
            let body = format!("This cannot be decided: {error}.\n");
            return Ok(answer(Err(denied(StatusCode::BAD_REQUEST, &HeaderMap::new(), body))));
        }
        parts => parts?,
    };

    let named = canonical(address);
    let is_trusted = gate.shared().trusted_proxies.contains(named);
    let client = Peer {
        address: match is_trusted {
            true => address_told(named, &parts.headers, &gate.shared().trusted_proxies),
            false => named,
        },
        address_value: HeaderValue::from_str(&address.to_string())
            .map_err(|_| AskError::Malformed("source address"))?,
        is_trusted,
        ..peer.clone()
    };
    let response = gate.handle_described(parts, Asker::Envoy, Rc::new(client)).await;
    let (mut head, body) = response.into_parts();
    // Bodies made here are whole, and their end is that of the request's line in the log.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if head.extensions.remove::<Undecided>().is_some() {
        // Envoy's `failure_mode_allow` decides.
        return Err(Fault::new(GrpcCode::Unavailable, "the store did not decide"));
    }
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(answer(match head.extensions.remove::<HeadChanges>() {
        Some(changes) => Ok(admitted(changes, &head.headers)),
        None => {
            Err(denied(head.status, &head.headers, String::from_utf8_lossy(&body).into_owned()))
        }
    }))
}

fn answer(answer: Result<OkHttpResponse, DeniedHttpResponse>) -> Response<Body> {
    let (code, response) = match answer {
        Ok(admitted) => (0, HttpResponse::Ok(admitted)),
        Err(denied) => (PERMISSION_DENIED, HttpResponse::Denied(denied)),
    };
    let answer = CheckResponse { status: Some(Status { code }), http_response: Some(response) };
    call_response(frame::written(&answer))
}

/// The head of the request that is asked about.
fn head(http: HttpRequest) -> Result<Parts, AskError> {
    let HttpRequest { method, headers, path, host, size, header_map } = http;
    let mut fields = HeaderMap::new();
    let mut add = |name: &str, value: &[u8]| {
        // Those of HTTP/2 that begin with a colon are said otherwise.
        if name.starts_with(':') {
            return Ok(());
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed())?;
        let value = HeaderValue::from_bytes(value).map_err(|_| malformed())?;
        fields.try_append(name, value).map_err(|_| malformed())?;
        Ok(())
    };
    for (name, value) in &headers {
        add(name, value.as_bytes())?;
    }
    for field in header_map.iter().flat_map(|map| &map.headers) {
        add(&field.key, field.bytes())?;
    }
    if let Ok(bytes @ 1..) = u64::try_from(size) {
        fields.insert(header::CONTENT_LENGTH, bytes.into());
    }
    head_of(Description { method: &method, target: &path, host: &host }, fields)
}

fn malformed() -> AskError {
    AskError::Malformed("headers")
}

fn admitted(changes: HeadChanges, response: &HeaderMap) -> OkHttpResponse {
    let HeadChanges { set, removed, removed_parameters } = changes;
    OkHttpResponse {
        headers: options(&set),
        headers_to_remove: removed.iter().map(ToString::to_string).collect(),
        response_headers_to_add: options(response),
        query_parameters_to_remove: removed_parameters,
    }
}

fn denied(status: StatusCode, headers: &HeaderMap, body: String) -> DeniedHttpResponse {
    let status = HttpStatus { code: status.as_u16().into() };
    DeniedHttpResponse { status: Some(status), headers: options(headers), body }
}

/// Fields as Envoy is to set them. The first of a name replaces those that are there, but for lists
/// that others write too.
fn options(headers: &HeaderMap) -> Vec<HeaderValueOption> {
    let mut all: Vec<HeaderValueOption> = Vec::with_capacity(headers.len());
    for name in headers.keys() {
        let is_shared = [header::ACCESS_CONTROL_EXPOSE_HEADERS, header::VARY].contains(name);
        for (at, value) in headers.get_all(name).iter().enumerate() {
            let action = match at {
                0 if !is_shared => AppendAction::Overwrite,
                _ => AppendAction::Append,
            };
            let header = match value.to_str() {
                Ok(value) => EnvoyField::new(name.as_str(), value),
                Err(_) => EnvoyField {
                    raw_value: value.as_bytes().to_vec(),
                    ..EnvoyField::new(name.as_str(), "")
                },
            };
            all.push(HeaderValueOption { header: Some(header), append_action: action.into() });
        }
    }
    all
}
