//! The doors by which a request comes to be judged: it comes in here, or another proxy asks about
//! it. What one door promises, all of them do.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Version;
use tollgate_wire::envoy::{
    HeaderValue, HeaderValueOption,
    authorization::{
        Address, AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, HttpRequest,
        HttpResponse, OkHttpResponse, Peer, Request as EnvoyRequest, SocketAddress,
    },
    frame,
};

use super::{Proxy, Request, client::get, http2};

/// A way for a request to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// It comes in by HTTP/1.1.
    Http1,
    /// It comes in by HTTP/2.
    Http2,
    /// Traefik, Caddy or HAProxy asks.
    Forward,
    /// nginx asks.
    Nginx,
    /// Envoy's filter `ext_authz` asks.
    Envoy,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Judged {
    /// 200: it is forwarded, here or by the proxy that asked.
    pub(crate) status: u16,
    /// Fields of the answer; of an admission by Envoy, those that the request gets.
    pub(crate) fields: BTreeMap<String, String>,
    /// Fields that Envoy is to remove.
    pub(crate) removed: Vec<String>,
    /// Parameters of the query that Envoy is to remove.
    pub(crate) parameters: Vec<String>,
}

impl Door {
    /// Those at which another proxy asks, which then forwards the request itself.
    pub(crate) const ASKERS: [Door; 3] = [Door::Forward, Door::Nginx, Door::Envoy];

    pub(crate) const ALL: [Door; 5] =
        [Door::Http1, Door::Http2, Door::Forward, Door::Nginx, Door::Envoy];

    /// Where programs ask in a proxy whose requests come by all doors: first by HTTP, then by gRPC.
    pub(crate) const LISTENERS: &str = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: \
                                        http }, { address: 127.0.0.1:0, protocol: grpc }]";

    /// Has a request judged. `from` is the address that the asker names; one that comes in here
    /// comes from loopback.
    pub(crate) fn judge(self, proxy: &Proxy, request: &Request, from: &str) -> Judged {
        match self {
            Door::Http1 => of_response(proxy.send(request.clone())),
            Door::Http2 => {
                let mut asked = http::Request::builder()
                    .version(Version::HTTP_2)
                    .method(request.method)
                    .uri(format!("http://{}{}", request.host, request.target));
                for (name, value) in &request.fields {
                    asked = asked.header(name, value);
                }
                let answers = http2(proxy.address(), vec![asked.body(String::new()).unwrap()]);
                let fields = answers[0].headers().iter().map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                });
                let status = match answers[0].status().as_u16() {
                    204 => 200,
                    status => status,
                };
                Judged {
                    status,
                    fields: fields.collect(),
                    removed: Vec::new(),
                    parameters: Vec::new(),
                }
            }
            Door::Forward => of_response(proxy.ask(self.question(request, from))),
            Door::Nginx => of_response(proxy.ask(self.question(request, from))),
            Door::Envoy => of_envoy(proxy, request, from),
        }
    }

    /// What a proxy asks by fields.
    fn question(self, request: &Request, from: &str) -> Request {
        let question = match self {
            Door::Nginx => get("/decide/nginx")
                .host(&request.host)
                .field("x-original-method", request.method)
                .field("x-original-uri", &request.target),
            _ => get("/decide/forward")
                .field("x-forwarded-method", request.method)
                .field("x-forwarded-host", &request.host)
                .field("x-forwarded-uri", &request.target),
        };
        let fields = request.fields.iter();
        fields.fold(question.from(from), |asked, (name, value)| asked.field(name, value))
    }
}

fn of_response(response: super::Response) -> Judged {
    let own = response.field("x-tollgate-status").and_then(|status| status.parse().ok());
    let status = match response.status {
        204 => 200,
        status => own.unwrap_or(status),
    };
    let names = response.fields.names().into_iter();
    let fields = names.map(|name| (name.clone(), response.fields.all(&name).join(", ")));
    Judged { status, fields: fields.collect(), removed: Vec::new(), parameters: Vec::new() }
}

fn asked_by_envoy(proxy: &Proxy, request: &Request, from: &str) -> http::Response<Bytes> {
    let fields = request.fields.iter().map(|(name, value)| HeaderValue::new(name, value));
    let http = HttpRequest {
        method: request.method.to_owned(),
        path: request.target.clone(),
        host: request.host.clone(),
        header_map: Some(tollgate_wire::envoy::authorization::HeaderMap {
            headers: fields.collect(),
        }),
        ..HttpRequest::default()
    };
    let address = SocketAddress { address: from.to_owned() };
    let question = CheckRequest {
        attributes: Some(AttributeContext {
            source: Some(Peer { address: Some(Address { socket_address: Some(address) }) }),
            request: Some(EnvoyRequest { http: Some(http) }),
        }),
    };
    let call = http::Request::post("http://tollgate/envoy.service.auth.v3.Authorization/Check")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(frame::written(&question))
        .unwrap();
    http2(proxy.asked_at(1), vec![call]).remove(0)
}

fn of_envoy(proxy: &Proxy, request: &Request, from: &str) -> Judged {
    let answer = asked_by_envoy(proxy, request, from);
    let answer: CheckResponse = frame::read(answer.body())
        .unwrap_or_else(|error| panic!("{error}: {:?}", answer.headers()));
    match answer.http_response.unwrap() {
        HttpResponse::Denied(DeniedHttpResponse { status, headers, .. }) => Judged {
            status: u16::try_from(status.unwrap().code).unwrap(),
            fields: written(headers),
            removed: Vec::new(),
            parameters: Vec::new(),
        },
        HttpResponse::Ok(OkHttpResponse {
            headers,
            headers_to_remove,
            query_parameters_to_remove,
            ..
        }) => Judged {
            status: 200,
            fields: written(headers),
            removed: headers_to_remove,
            parameters: query_parameters_to_remove,
        },
    }
}

fn written(options: Vec<HeaderValueOption>) -> BTreeMap<String, String> {
    let fields = options.into_iter().filter_map(|option| option.header);
    fields.map(|field| (field.key, field.value)).collect()
}
