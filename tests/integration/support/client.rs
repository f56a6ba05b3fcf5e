//! Clients: HTTP/1.1 byte by byte, and HTTP/2 by hyper.

use std::{
    fmt,
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use tokio::time::timeout;

use super::{
    PATIENCE, token,
    wire::{Fields, Length, Wire},
};

/// The host that requests are for unless they say otherwise.
const HOST: &str = "api.example.com";

/// A request to be sent.
#[derive(Clone)]
pub(crate) struct Request {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) host: String,
    pub(super) fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

pub(crate) fn get(target: &str) -> Request {
    Request::new("GET", target)
}

pub(crate) fn post(target: &str, body: impl Into<Vec<u8>>) -> Request {
    Request { body: Some(body.into()), ..Request::new("POST", target) }
}

pub(crate) fn delete(target: &str) -> Request {
    Request::new("DELETE", target)
}

pub(crate) fn options(target: &str) -> Request {
    Request::new("OPTIONS", target)
}

impl Request {
    pub(crate) fn new(method: &'static str, target: &str) -> Request {
        let target = target.to_owned();
        let host = HOST.to_owned();
        Request { method, target, host, fields: Vec::new(), body: None }
    }

    pub(crate) fn host(mut self, host: &str) -> Request {
        self.host = host.to_owned();
        self
    }

    pub(crate) fn field(mut self, name: &str, value: &str) -> Request {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As a program sends it to a listener for decisions.
    pub(crate) fn by_program(self) -> Request {
        self.host("localhost").field("content-type", "application/json")
    }

    /// With this token.
    pub(crate) fn token(self, token: &str) -> Request {
        self.field("authorization", &format!("Bearer {token}"))
    }

    /// With a good token of `sub`.
    pub(crate) fn by(self, sub: &str) -> Request {
        self.token(&token(sub))
    }

    /// Asks [`Upstream::as_asked`](super::Upstream::as_asked) for this status.
    pub(crate) fn wants(self, status: u16) -> Request {
        let request = self.field("x-want-status", &status.to_string());
        if status == 304 { request.revalidating() } else { request }
    }

    /// Asks whether what the client has is still current, as those do that get a 304.
    pub(crate) fn revalidating(self) -> Request {
        self.field("if-none-match", "\"what-it-has\"")
    }

    /// Asks it to say that the request has cost this.
    pub(crate) fn costing(self, cost: &str) -> Request {
        self.field("x-want-cost", cost)
    }

    /// From this address, as a proxy in front would say.
    pub(crate) fn from(self, address: &str) -> Request {
        self.field("x-forwarded-for", address)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Request { method, target, host, fields, body } = self;
        let mut text = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n");
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        [text.as_bytes(), body.as_deref().unwrap_or_default()].concat()
    }
}

/// A connection to the proxy.
pub(crate) struct Client {
    wire: Wire,
    /// What was written last, for the messages of failed tests.
    written: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        Client { wire: Wire::new(stream), written: String::new() }
    }

    pub(crate) fn send(&mut self, request: &Request) -> Response {
        self.write(request.to_bytes());
        self.read_answer_to(request.method)
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let shown = &bytes[..bytes.len().min(1000)];
        self.written = String::from_utf8_lossy(shown).into_owned();
        self.wire.write(bytes);
    }

    /// A whole response.
    pub(crate) fn read(&mut self) -> Response {
        self.read_answer_to("GET")
    }

    /// A whole response to a request with this method, without the interim ones before it.
    pub(crate) fn read_answer_to(&mut self, method: &str) -> Response {
        let mut response = self.read_head();
        while (102..200).contains(&response.status) {
            response = self.read_head();
        }
        let length = response.length(method);
        (response.body, response.trailers) = self.wire.read_body(length);
        response
    }

    /// A response up to its body.
    pub(crate) fn read_head(&mut self) -> Response {
        let Some((start, fields)) = self.wire.read_head() else {
            panic!("the connection was closed without a response to\n{}", self.written)
        };
        let status = start.split(' ').nth(1).and_then(|status| status.parse().ok());
        Response {
            status: status.unwrap_or_else(|| panic!("not a status line: {start}")),
            fields,
            body: Vec::new(),
            trailers: Fields::default(),
            request: self.written.clone(),
        }
    }

    /// The next chunk of a response's body; none at its end.
    pub(crate) fn read_chunk(&mut self) -> Option<Vec<u8>> {
        self.wire.read_chunk()
    }

    /// So much of a response's body.
    pub(crate) fn read_bytes(&mut self, bytes: usize) -> Vec<u8> {
        self.wire.read_body(Length::Bytes(bytes)).0
    }

    /// Sends nothing more, and goes on reading.
    pub(crate) fn end(&mut self) {
        self.wire.stream().shutdown(Shutdown::Write).unwrap();
    }

    /// Whether something has come that was not read.
    pub(crate) fn has_answer(&self) -> bool {
        self.wire.has_more()
    }

    /// All that comes until the proxy closes.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        self.wire.read_to_end()
    }

    /// Waits until the proxy closes, which it does without another byte.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.wire.read_to_end();
        assert_eq!(String::from_utf8_lossy(&rest), "", "after\n{}", self.written);
    }
}

impl Drop for Client {
    /// Goes away in a way that the proxy notices at once. One that only closes its side may still wait
    /// for a response.
    fn drop(&mut self) {
        let _ = SockRef::from(self.wire.stream()).set_linger(Some(Duration::ZERO));
    }
}

/// A response as it came from the proxy.
#[derive(Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
    request: String,
}

impl Response {
    fn length(&self, method: &str) -> Length {
        let coding = self.fields.one("transfer-encoding");
        match (self.status, self.fields.one("content-length"), coding) {
            (100..200 | 204 | 304, ..) => Length::Nothing,
            _ if method == "HEAD" => Length::Nothing,
            (_, Some(bytes), None) => Length::Bytes(bytes.parse().unwrap()),
            (_, None, Some("chunked")) => Length::Chunked,
            (_, None, None) => Length::UntilClose,
            _ => panic!("a response of ambiguous length:\n{self:?}"),
        }
    }

    /// The value of a field; none if it is not there.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.one(name)
    }

    /// The value of a field that is a number.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let number = self.field(name).and_then(|value| value.parse().ok());
        number.unwrap_or_else(|| panic!("{name} is no number\n{self:?}"))
    }

    pub(crate) fn assert_status(&self, status: u16) -> &Response {
        assert_eq!(self.status, status, "\n{self:?}");
        self
    }

    pub(crate) fn assert_field(&self, name: &str, value: &str) -> &Response {
        assert_eq!(self.field(name), Some(value), "{name}\n{self:?}");
        self
    }

    pub(crate) fn assert_no_field(&self, name: &str) -> &Response {
        assert_eq!(self.fields.all(name), [""; 0], "{name}\n{self:?}");
        self
    }

    /// That exactly these are the limit headers: limit, remaining, used, reset, resource.
    pub(crate) fn assert_limit(&self, expected: [&str; 5]) -> &Response {
        let names = ["limit", "remaining", "used", "reset", "resource"];
        for (name, value) in names.into_iter().zip(expected) {
            self.assert_field(&format!("x-ratelimit-{name}"), value);
        }
        assert_eq!(self.limit_fields().len(), names.len(), "\n{self:?}");
        self
    }

    pub(crate) fn assert_no_limit(&self) -> &Response {
        assert_eq!(self.limit_fields(), [""; 0], "\n{self:?}");
        self
    }

    fn limit_fields(&self) -> Vec<String> {
        let mut names = self.fields.names();
        names.retain(|name| name.replace('-', "").contains("ratelimit"));
        names
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON\n{self:?}"))
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Response { status, fields, request, .. } = self;
        let fields = format!("{fields:?}");
        write!(f, "{request}\n---- was answered\n{status}\n{fields:.3000}\n{:.3000}", self.text())
    }
}

/// Sends requests over one HTTP/2 connection, one after the other.
pub(crate) fn http2(
    address: SocketAddr,
    requests: Vec<http::Request<impl Into<Bytes>>>,
) -> Vec<http::Response<Bytes>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut responses = Vec::new();
        for request in requests {
            let request = request.map(|body| Full::new(body.into()));
            let (head, body) = sender.send_request(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            responses.push(http::Response::from_parts(head, body));
        }
        responses
    };
    runtime.block_on(async { timeout(PATIENCE, exchange).await.expect("no answer in time") })
}

/// Sends a request over HTTP/2, gives it up when `asked` returns, and keeps the connection until
/// `gone` does.
pub(crate) fn http2_given_up(
    address: SocketAddr,
    request: http::Request<String>,
    (asked, gone): (impl FnOnce() + Send + 'static, impl FnOnce() + Send + 'static),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let mut sending = sender.clone();
        let response = tokio::spawn(async move { sending.send_request(request).await });
        tokio::task::spawn_blocking(asked).await.unwrap();
        response.abort();
        tokio::task::spawn_blocking(gone).await.unwrap();
        drop(sender);
    });
}
