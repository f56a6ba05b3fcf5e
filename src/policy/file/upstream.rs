//! Upstreams as they are written: servers, how they are spoken to, which of them gets a request, and
//! what becomes of one that fails.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shape;
use crate::{
    policy::{Balance, Protocol, Sharing},
    yaml::{Choice, Node, Spanned},
};

/// A group of servers that can stand in for each other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "upstream")]
pub(in crate::policy) struct RawUpstream {
    /// The addresses of its servers: `http://host:port`, or `{ url: "http://host:port", weight: 3
    /// }`. All with `http://`, or all with `https://`. All addresses of a name are used.
    #[schemars(with = "Vec<shape::Server>", length(min = 1))]
    pub(in crate::policy) servers: Spanned<Vec<Node>>,
    /// The version of HTTP that they are spoken to in: `http1`, or `h2`, as gRPC needs it. Default:
    /// http1.
    pub(in crate::policy) protocol: Option<Spanned<Choice<Protocol>>>,
    /// Which server gets a request. `least_loaded`: of two that are drawn at random, the one with
    /// less to do; `round_robin`: one after the other; `caller`: always the same one for a caller.
    /// Default: least_loaded.
    pub(in crate::policy) balance: Option<Spanned<Choice<Balance>>>,
    /// For servers with `https://`: whom to trust, and what to show. Left out: the authorities of
    /// the platform, and no certificate.
    #[schemars(extend("examples" = [{ "ca_file": "../keys/ca.pem" }]))]
    pub(in crate::policy) tls: Option<Spanned<RawUpstreamTls>>,
    /// How servers are asked whether they are well. Left out: they are not asked.
    #[schemars(extend("examples" = [{ "path": "/healthz" }]))]
    pub(in crate::policy) health_check: Option<Spanned<RawHealthCheck>>,
    /// When a server that fails requests gets none for a while, or `off`. The last one that is left
    /// always gets them.
    #[schemars(with = "Option<shape::Ejection>")]
    pub(in crate::policy) ejection: Option<Node>,
    /// Connections to one server, of all workers together, 1 to 65535; over HTTP/2, each worker may
    /// have one whatever the number. Default: 1024.
    #[schemars(range(min = 1, max = 65535))]
    pub(in crate::policy) max_connections: Option<Spanned<u32>>,
    /// Requests that wait for a connection to a server.
    #[schemars(extend("examples" = [{ "size": 1024 }]))]
    pub(in crate::policy) queue: Option<RawQueue>,
    /// How connections to a server (in HTTP/2, its streams) are shared out among clients when they
    /// get scarce. `address`: an address, or a network of 64 bits in IPv6, gets one of the last
    /// eighth only while it uses fewer than are free, and waits otherwise; fewer than eight are not
    /// shared out. `off`: whoever comes first gets them. Default: address.
    pub(in crate::policy) shares: Option<Spanned<Choice<Sharing>>>,
    /// When a request is tried again, at another server if there is one, or `off`. Only requests
    /// without a body whose method may be repeated are, and those that were never sent.
    #[schemars(with = "Option<shape::Retries>")]
    pub(in crate::policy) retries: Option<Node>,
    /// How long a connection may take to be made, TLS included, up to a day. Default: 2s.
    #[schemars(extend("examples" = ["2s"]))]
    pub(in crate::policy) connect_timeout: Option<Spanned<String>>,
    /// How long the head of a response may take, up to a day. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(in crate::policy) response_timeout: Option<Spanned<String>>,
    /// How long a body may make no progress, up to a day. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(in crate::policy) idle_timeout: Option<Spanned<String>>,
    /// How long a connection that is not used is kept, up to a day. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(in crate::policy) keep_alive: Option<Spanned<String>>,
    /// How often names of servers are resolved again, 10ms to a day. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    pub(in crate::policy) resolve_every: Option<Spanned<String>>,
}

/// A server, and its share of the requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "server")]
pub(in crate::policy) struct RawServer {
    /// Its address: `http://host:port` or `https://host:port`. Default port: 80 or 443.
    #[schemars(extend("examples" = ["http://127.0.0.1:9000"]))]
    pub(in crate::policy) url: Spanned<String>,
    /// Its share of the requests, beside the shares of the others: 1 to 1000. Default: 1.
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::policy) weight: Option<Spanned<u32>>,
}

/// What TLS towards an upstream takes. Files are named from the policy's folder.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "upstream tls section")]
pub(in crate::policy) struct RawUpstreamTls {
    /// A file with the certificates of the authorities to trust, in PEM form. Left out: those of the
    /// platform.
    #[schemars(extend("examples" = ["../keys/ca.pem"]))]
    pub(in crate::policy) ca_file: Option<Spanned<String>>,
    /// The name that the certificates must be for. Left out: each server's own.
    #[schemars(extend("examples" = ["api.internal"]))]
    pub(in crate::policy) server_name: Option<Spanned<String>>,
    /// A file with the certificate to show to servers that ask for one, and those between it and its
    /// authority, in PEM form. Needs `key_file`.
    #[schemars(extend("examples" = ["../keys/client.pem"]))]
    pub(in crate::policy) certificate_file: Option<Spanned<String>>,
    /// A file with the key of that certificate, in PEM form.
    #[schemars(extend("examples" = ["../keys/client.key"]))]
    pub(in crate::policy) key_file: Option<Spanned<String>>,
}

/// How servers are asked whether they are well.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "health_check section")]
pub(in crate::policy) struct RawHealthCheck {
    /// The path that is asked for with GET, such as /healthz.
    #[schemars(extend("examples" = ["/healthz"]))]
    pub(in crate::policy) path: Spanned<String>,
    /// The host that is asked for. Left out: the server's own.
    #[schemars(extend("examples" = ["api.internal"]))]
    pub(in crate::policy) host: Option<Spanned<String>>,
    /// From one question to the next, 10ms to 1h. Default: 5s.
    #[schemars(extend("examples" = ["5s"]))]
    pub(in crate::policy) interval: Option<Spanned<String>>,
    /// How long an answer may take, up to a day. Default: 2s.
    #[schemars(extend("examples" = ["2s"]))]
    pub(in crate::policy) timeout: Option<Spanned<String>>,
    /// Good answers in a row after which a server gets requests again, 1 to 1000. Default: 2.
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::policy) healthy_after: Option<Spanned<u32>>,
    /// Bad answers in a row after which it gets none, 1 to 1000. Default: 3.
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::policy) unhealthy_after: Option<Spanned<u32>>,
    /// Statuses (`200`) and classes of them (`2xx`) that are good answers. Default: 2xx.
    #[schemars(with = "Option<Vec<shape::Status>>", length(min = 1))]
    #[schemars(extend("examples" = [["2xx"]]))]
    pub(in crate::policy) status: Option<Spanned<Vec<Node>>>,
}

/// When a server that fails requests gets none for a while.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "ejection section")]
pub(in crate::policy) struct RawEjection {
    /// Failures in a row, 1 to 1000: no connection, no response in time, a broken one, or one of
    /// `status`. Default: 5.
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::policy) failures: Option<Spanned<u32>>,
    /// Statuses (`503`) and classes of them (`5xx`) that count as failures. Default: none.
    #[schemars(with = "Option<Vec<shape::Status>>")]
    #[schemars(extend("examples" = [["5xx"]]))]
    pub(in crate::policy) status: Option<Vec<Node>>,
    /// How long it gets none the first time, up to a day; twice as long each time after that.
    /// Default: 10s.
    #[schemars(extend("examples" = ["10s"]))]
    pub(in crate::policy) time: Option<Spanned<String>>,
    /// How long at most, up to a day. Default: 5m, or `time` if that is longer.
    #[schemars(extend("examples" = ["5m"]))]
    pub(in crate::policy) max_time: Option<Spanned<String>>,
}

/// Requests that wait for a connection to a server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "queue section")]
pub(in crate::policy) struct RawQueue {
    /// How many may wait, of all workers together, 0 to 65535. Those beyond are answered 503.
    /// Default: 1024.
    #[schemars(range(min = 0, max = 65535))]
    pub(in crate::policy) size: Option<Spanned<u32>>,
    /// How long one may wait, up to a day; it is answered 503 then. Default: 1s.
    #[schemars(extend("examples" = ["1s"]))]
    pub(in crate::policy) timeout: Option<Spanned<String>>,
}

/// When a request is tried again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "retries section")]
pub(in crate::policy) struct RawRetries {
    /// How often, after the first time: 0 to 5. Default: 1.
    #[schemars(range(min = 0, max = 5))]
    pub(in crate::policy) attempts: Option<Spanned<u32>>,
    /// Retries among a hundred requests, at most: 0 to 100. A few are always allowed. Default: 20.
    #[schemars(range(min = 0, max = 100))]
    pub(in crate::policy) budget: Option<Spanned<u32>>,
    /// Statuses (`503`) and classes of them (`5xx`) for which a request is tried again. Default:
    /// none.
    #[schemars(with = "Option<Vec<shape::Status>>")]
    #[schemars(extend("examples" = [[503]]))]
    pub(in crate::policy) status: Option<Vec<Node>>,
}
