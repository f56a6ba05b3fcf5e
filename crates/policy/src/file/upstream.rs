//! The raw structs of upstreams: servers, their protocol, load balancing, and failures.

use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use tollgate_yaml::{Choice, Node, Size, Spanned};

use super::shape::{self, or_off, shapes};
use crate::{
    Balance, Framework, LetterCase, MatrixParams, PathInfo, Protocol, Sharing, Suffix,
    TrailingSlash,
};

/// A group of interchangeable servers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "upstream")]
pub(crate) struct RawUpstream {
    /// The addresses of its servers: `http://host:port`, or `{ url: "http://host:port", weight: 3
    /// }`. All with `http://`, or all with `https://`. All addresses of a name are used.
    #[schemars(with = "Vec<Server>", length(min = 1))]
    pub(crate) servers: Spanned<Vec<Node>>,
    /// The version of HTTP for connections to them: `http1`, or `h2`, which gRPC needs. Default:
    /// http1.
    pub(crate) protocol: Option<Spanned<Choice<Protocol>>>,
    /// Which server gets a request. `least_loaded`: of two drawn at random, the one with fewer
    /// requests; `round_robin`: one after the other; `caller`: always the same one for a caller.
    /// Default: least_loaded.
    pub(crate) balance: Option<Spanned<Choice<Balance>>>,
    /// For servers with `https://`: the trusted authorities and the client certificate. Left out:
    /// the authorities of the platform, and no certificate.
    #[schemars(extend("examples" = [{ "ca_file": "../keys/ca.pem" }]))]
    pub(crate) tls: Option<Spanned<RawUpstreamTls>>,
    /// How the health of servers is checked. Left out: it is not.
    #[schemars(extend("examples" = [{ "path": "/healthz" }]))]
    pub(crate) health_check: Option<Spanned<RawHealthCheck>>,
    /// When a server that fails requests is ejected for a while, or `off`. The last server that is
    /// left is never ejected.
    #[schemars(with = "Option<Ejection>")]
    pub(crate) ejection: Option<Node>,
    /// Connections to one server, of all workers together, 1 to 65535; over HTTP/2, each worker may
    /// have one whatever the number. Default: 1024.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) max_connections: Option<Spanned<u32>>,
    /// Requests that wait for a connection to a server.
    #[schemars(extend("examples" = [{ "size": 1024 }]))]
    pub(crate) queue: Option<RawQueue>,
    /// How connections to a server (in HTTP/2, its streams) are divided among clients when they get
    /// scarce. `address`: an address, or a network of 64 bits in IPv6, gets one of the last eighth
    /// only while it uses fewer than are free, and waits otherwise; fewer than eight are not
    /// divided. `off`: first come, first served. Default: address.
    pub(crate) shares: Option<Spanned<Choice<Sharing>>>,
    /// Bytes of its responses that are held for clients that do not read them, of all workers
    /// together, 1MiB to 64GiB. Beyond that, the response is broken off that has waited for
    /// longest; for one address, half of that. Default: 128MiB.
    #[schemars(with = "Option<Size>", extend("examples" = ["64MiB"]))]
    pub(crate) max_unread: Option<Node>,
    /// When a request is retried, at another server if there is one, or `off`. Only requests
    /// without a body whose method is idempotent are retried, and those that were never sent.
    #[schemars(with = "Option<Retries>")]
    pub(crate) retries: Option<Node>,
    /// How long a connection may take to be made, TLS included, up to a day. Default: 2s.
    #[schemars(extend("examples" = ["2s"]))]
    pub(crate) connect_timeout: Option<Spanned<String>>,
    /// How long the head of a response may take, up to a day. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(crate) response_timeout: Option<Spanned<String>>,
    /// How long a body may make no progress, up to a day. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(crate) idle_timeout: Option<Spanned<String>>,
    /// How long a connection that is not used is kept, up to a day. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(crate) keep_alive: Option<Spanned<String>>,
    /// How often names of servers are resolved, 10ms to a day. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    pub(crate) resolve_every: Option<Spanned<String>>,
    /// How its servers read a path, so that routes and counters read it in the same way: the
    /// framework that serves it, such as `express`, or a section. Left out: as it is written.
    #[schemars(with = "Option<Paths>")]
    pub(crate) paths: Option<Node>,
}

/// How the servers of an upstream read a path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "upstream paths section")]
pub(crate) struct RawUpstreamPaths {
    /// The framework that serves the upstream. The other fields change what it stands for. Left
    /// out: paths are read as they are written, but for the other fields.
    pub(crate) framework: Option<Spanned<Choice<Framework>>>,
    /// Whether letters differ by case: `exact`, or `ignore`. Default: what the framework does, else
    /// exact.
    pub(crate) case: Option<Spanned<Choice<LetterCase>>>,
    /// What a slash at the end means: `ignore` (nothing), or `segment` (an empty segment, to routes
    /// that have `{name}` or `*` there). Default: what the framework does, else ignore.
    pub(crate) trailing_slash: Option<Spanned<Choice<TrailingSlash>>>,
    /// What `;x` in a segment is: `keep` (a part of it), `strip` (nothing) or `query` (all that
    /// follows is the query). Default: what the framework does, else keep.
    pub(crate) matrix_params: Option<Spanned<Choice<MatrixParams>>>,
    /// What `.json` at the end is: `keep` (a part of the segment) or `ignore` (a format, and no
    /// part of the path). Default: what the framework does, else keep.
    pub(crate) suffix: Option<Spanned<Choice<Suffix>>>,
    /// What follows the name of a script, such as `/login.php/x`: `keep` (segments) or `strip`
    /// (nothing; and `index.php` stands for its folder). Default: what the framework does, else
    /// keep.
    pub(crate) path_info: Option<Spanned<Choice<PathInfo>>>,
}

/// A server, and its share of the requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "server")]
pub(crate) struct RawServer {
    /// Its address: `http://host:port` or `https://host:port`. Default port: 80 or 443.
    #[schemars(extend("examples" = ["http://127.0.0.1:9000"]))]
    pub(crate) url: Spanned<String>,
    /// Its weight relative to the other servers: 1 to 1000. Default: 1.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) weight: Option<Spanned<u32>>,
}

/// TLS to an upstream. Paths of files are relative to the policy's folder.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "upstream tls section")]
pub(crate) struct RawUpstreamTls {
    /// A file with the certificates of the authorities to trust, in PEM form. Left out: those of
    /// the platform.
    #[schemars(extend("examples" = ["../keys/ca.pem"]))]
    pub(crate) ca_file: Option<Spanned<String>>,
    /// The name that the certificates must be for. Left out: each server's own.
    #[schemars(extend("examples" = ["api.internal"]))]
    pub(crate) server_name: Option<Spanned<String>>,
    /// A file with the client certificate, for servers that request one, and those between it and
    /// its authority, in PEM form. Needs `key_file`.
    #[schemars(extend("examples" = ["../keys/client.pem"]))]
    pub(crate) certificate_file: Option<Spanned<String>>,
    /// A file with the key of that certificate, in PEM form.
    #[schemars(extend("examples" = ["../keys/client.key"]))]
    pub(crate) key_file: Option<Spanned<String>>,
}

/// How the health of servers is checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "health_check section")]
pub(crate) struct RawHealthCheck {
    /// The path to request with GET, such as /healthz.
    #[schemars(extend("examples" = ["/healthz"]))]
    pub(crate) path: Spanned<String>,
    /// The `Host` field of the request. Left out: the server's own.
    #[schemars(extend("examples" = ["api.internal"]))]
    pub(crate) host: Option<Spanned<String>>,
    /// The time between two checks, 10ms to 1h. Default: 5s.
    #[schemars(extend("examples" = ["5s"]))]
    pub(crate) interval: Option<Spanned<String>>,
    /// How long a response may take, up to a day. Default: 2s.
    #[schemars(extend("examples" = ["2s"]))]
    pub(crate) timeout: Option<Spanned<String>>,
    /// Successful checks in a row after which a server gets requests again, 1 to 1000. Default: 2.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) healthy_after: Option<Spanned<u32>>,
    /// Failed checks in a row after which it gets none, 1 to 1000. Default: 3.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) unhealthy_after: Option<Spanned<u32>>,
    /// Statuses (`200`) and classes of them (`2xx`) of a healthy server. Default: 2xx.
    #[schemars(with = "Option<Vec<shape::Status>>", length(min = 1))]
    #[schemars(extend("examples" = [["2xx"]]))]
    pub(crate) status: Option<Spanned<Vec<Node>>>,
}

/// When a server that fails requests is ejected for a while.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "ejection section")]
pub(crate) struct RawEjection {
    /// Failures in a row, 1 to 1000: no connection, no response in time, a broken one, or one of
    /// `status`. Default: 5.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) failures: Option<Spanned<u32>>,
    /// Statuses (`503`) and classes of them (`5xx`) that count as failures. Default: none.
    #[schemars(with = "Option<Vec<shape::Status>>")]
    #[schemars(extend("examples" = [["5xx"]]))]
    pub(crate) status: Option<Vec<Node>>,
    /// How long the first ejection lasts, up to a day; each later one lasts twice as long as the
    /// one before. Default: 10s.
    #[schemars(extend("examples" = ["10s"]))]
    pub(crate) time: Option<Spanned<String>>,
    /// The longest ejection, up to a day. Default: 5m, or `time` if that is longer.
    #[schemars(extend("examples" = ["5m"]))]
    pub(crate) max_time: Option<Spanned<String>>,
    /// How many of the servers may be ejected at once, 1 to 100 percent; one of several may always
    /// be. Default: 50.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) max_ejected: Option<Spanned<u32>>,
}

/// Requests that wait for a connection to a server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "queue section")]
pub(crate) struct RawQueue {
    /// How many may wait, of all workers together, 0 to 65535. More are answered with 503.
    /// Default: 1024.
    #[schemars(range(min = 0, max = 65535))]
    pub(crate) size: Option<Spanned<u32>>,
    /// How long a request may wait, up to a day; then it is answered with 503. Default: 1s.
    #[schemars(extend("examples" = ["1s"]))]
    pub(crate) timeout: Option<Spanned<String>>,
}

/// When a request is retried.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "retries section")]
pub(crate) struct RawRetries {
    /// The number of retries of a request: 0 to 5. Default: 1.
    #[schemars(range(min = 0, max = 5))]
    pub(crate) attempts: Option<Spanned<u32>>,
    /// The largest percentage of retries among all requests: 0 to 100. A few are always allowed.
    /// Default: 20.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) budget: Option<Spanned<u32>>,
    /// Statuses (`503`) and classes of them (`5xx`) for which a request is retried. Default:
    /// none.
    #[schemars(with = "Option<Vec<shape::Status>>")]
    #[schemars(extend("examples" = [[503]]))]
    pub(crate) status: Option<Vec<Node>>,
}

shapes! {
    /// A server's address, perhaps with a weight.
    Server = "server or address", |generator| json_schema!({
        "anyOf": [
            { "type": "string", "pattern": "^https?://", "examples": ["http://127.0.0.1:9000"] },
            generator.subschema_for::<RawServer>(),
        ],
    });

    /// When a server is left out, or never.
    Ejection = "ejection", |generator| or_off(&generator.subschema_for::<RawEjection>());

    /// How paths are read: by a framework, or as a section says.
    Paths = "upstream paths", |generator| json_schema!({
        "anyOf": [
            generator.subschema_for::<Choice<Framework>>(),
            generator.subschema_for::<RawUpstreamPaths>(),
        ],
    });

    /// When a request is tried again, or never.
    Retries = "retries", |generator| or_off(&generator.subschema_for::<RawRetries>());
}
