//! `envoy.service.auth.v3`: may this request be forwarded?

use std::collections::HashMap;

use prost::{Message, Oneof};

use super::common::{HeaderValue, HeaderValueOption};

/// What Envoy asks.
#[derive(Clone, PartialEq, Message)]
pub struct CheckRequest {
    /// The request and its client.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<AttributeContext>,
}

/// A request and its client.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeContext {
    /// The client.
    #[prost(message, optional, tag = "1")]
    pub source: Option<Peer>,
    /// The request.
    #[prost(message, optional, tag = "4")]
    pub request: Option<Request>,
}

/// The other end of a connection.
#[derive(Clone, PartialEq, Message)]
pub struct Peer {
    /// Where it is.
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

/// Where something is.
#[derive(Clone, PartialEq, Message)]
pub struct Address {
    /// None: it has no address of the Internet.
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddress>,
}

/// An address of the Internet.
#[derive(Clone, PartialEq, Message)]
pub struct SocketAddress {
    /// As text.
    #[prost(string, tag = "2")]
    pub address: String,
}

/// A request, of whatever protocol.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// Of HTTP.
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

/// A request of HTTP.
#[derive(Clone, PartialEq, Message)]
pub struct HttpRequest {
    /// Its method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// Its fields; several of one name are one, with commas.
    #[prost(map = "string, string", tag = "3")]
    pub headers: HashMap<String, String>,
    /// Its path with the query.
    #[prost(string, tag = "4")]
    pub path: String,
    /// Its host, with the port if it has one.
    #[prost(string, tag = "5")]
    pub host: String,
    /// Bytes of its body; -1: not known.
    #[prost(int64, tag = "9")]
    pub size: i64,
    /// Its fields as they came, where `encode_raw_headers` is set; `headers` is empty then.
    #[prost(message, optional, tag = "13")]
    pub header_map: Option<HeaderMap>,
}

/// Fields as they came.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderMap {
    /// In their order.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// What Envoy gets.
#[derive(Clone, PartialEq, Message)]
pub struct CheckResponse {
    /// Code 0: the request may be forwarded.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// What Envoy is to do.
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub http_response: Option<HttpResponse>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// What Envoy is to do.
#[derive(Clone, PartialEq, Oneof)]
pub enum HttpResponse {
    /// Respond.
    #[prost(message, tag = "2")]
    Denied(DeniedHttpResponse),
    /// Forward.
    #[prost(message, tag = "3")]
    Ok(OkHttpResponse),
}

/// A response that the client gets.
#[derive(Clone, PartialEq, Message)]
pub struct DeniedHttpResponse {
    /// Its status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Its fields.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Its body.
    #[prost(string, tag = "3")]
    pub body: String,
}

/// `envoy.type.v3.HttpStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct HttpStatus {
    /// A status of HTTP.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// What becomes of a request that is forwarded, and of its response.
#[derive(Clone, PartialEq, Message)]
pub struct OkHttpResponse {
    /// Fields that the request gets.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Fields that the request loses.
    #[prost(string, repeated, tag = "5")]
    pub headers_to_remove: Vec<String>,
    /// Fields that the response gets.
    #[prost(message, repeated, tag = "6")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
    /// Query parameters that the request loses.
    #[prost(string, repeated, tag = "8")]
    pub query_parameters_to_remove: Vec<String>,
}
