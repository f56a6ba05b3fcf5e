//! The names that programs and services have for what is known of a request.

use super::{
    Format, columns,
    duration::{MILLIS, NANOS, SECONDS},
};

/// The names that a program has for what is known of a request; the first one that has a value is
/// taken.
pub(super) struct Names {
    /// When the request came.
    pub(super) starts: &'static [&'static str],
    /// When its response had ended; asked for if there is no start.
    pub(super) ends: &'static [&'static str],
    /// The day of either, where the time is without.
    pub(super) date: &'static [&'static str],
    /// How long it took, and the nanoseconds of its unit.
    pub(super) took: &'static [(&'static str, f64)],
    pub(super) client: &'static [&'static str],
    pub(super) method: &'static [&'static str],
    pub(super) host: &'static [&'static str],
    pub(super) target: &'static [&'static str],
    /// The query, where the target is without.
    pub(super) query: &'static [&'static str],
    /// The whole request line.
    pub(super) request_line: &'static [&'static str],
    pub(super) status: &'static [&'static str],
    pub(super) user_agent: &'static [&'static str],
    pub(super) referer: &'static [&'static str],
    /// Units that the request has cost.
    pub(super) cost: &'static [&'static str],
    /// The length of the request's body.
    pub(super) request_bytes: &'static [&'static str],
    /// The length of the response's body.
    pub(super) response_bytes: &'static [&'static str],
    /// Whether times that do not say their offset are in UTC.
    pub(super) is_utc: bool,
    pub(super) escapes: Escapes,
}

/// How user agents are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// As they are.
    None,
    /// With backslashes.
    Backslashes,
    /// Without blanks: with escapes as in URLs, or with pluses.
    Blanks,
}

/// A format without any names.
const NONE: Names = Names {
    starts: &[],
    ends: &[],
    date: &[],
    took: &[],
    client: &[],
    method: &[],
    host: &[],
    target: &[],
    query: &[],
    request_line: &[],
    status: &[],
    user_agent: &[],
    referer: &[],
    cost: &[],
    request_bytes: &[],
    response_bytes: &[],
    is_utc: false,
    escapes: Escapes::None,
};

/// nginx writes when the response has ended: all of its times are that. `msec` has the finest
/// grain.
const NGINX: Names = Names {
    ends: &["msec", "time_iso8601", "time_local", "time", "timestamp", "@timestamp", "ts"],
    took: &[("request_time", SECONDS)],
    client: &["remote_addr", "client", "client_ip", "remote_ip"],
    method: &["request_method", "method"],
    host: &["http_host", "host", "server_name"],
    target: &["request_uri", "uri", "path"],
    query: &["args", "query_string"],
    request_line: &["request"],
    status: &["status"],
    user_agent: &["http_user_agent", "user_agent"],
    referer: &["http_referer", "http_referrer", "referer", "referrer"],
    request_bytes: &["content_length", "http_content_length", "request_length"],
    response_bytes: &["body_bytes_sent", "bytes_sent"],
    ..NONE
};

/// Caddy logs when the response has ended: `ts`. `client_ip` is what trusted proxies say, else the
/// peer.
const CADDY: Names = Names {
    ends: &["ts"],
    took: &[("duration", SECONDS)],
    client: &["request.client_ip", "request.remote_ip", "request.remote_addr"],
    method: &["request.method"],
    host: &["request.host"],
    target: &["request.uri"],
    status: &["status"],
    user_agent: &["request.headers.User-Agent"],
    referer: &["request.headers.Referer"],
    request_bytes: &["bytes_read"],
    response_bytes: &["size"],
    ..NONE
};

/// Traefik has the start; `time` is when the line was written.
const TRAEFIK: Names = Names {
    starts: &["StartUTC", "StartLocal"],
    ends: &["time"],
    took: &[("Duration", NANOS)],
    client: &["ClientHost", "ClientAddr"],
    method: &["RequestMethod"],
    host: &["RequestHost", "RequestAddr"],
    target: &["RequestPath"],
    status: &["DownstreamStatus", "OriginStatus"],
    user_agent: &["request_User-Agent"],
    referer: &["request_Referer"],
    request_bytes: &["RequestContentSize"],
    response_bytes: &["DownstreamContentSize"],
    ..NONE
};

/// Envoy's `%START_TIME%` is the start. Names are those of its documentation and of Istio.
const ENVOY: Names = Names {
    starts: &["start_time"],
    took: &[("duration", MILLIS)],
    client: &[
        "downstream_remote_address",
        "downstream_remote_address_without_port",
        "downstream_direct_remote_address",
    ],
    method: &["method"],
    host: &["authority", ":authority", "host"],
    target: &["x_envoy_original_path", "path"],
    status: &["response_code", "status"],
    user_agent: &["user_agent", "user-agent"],
    referer: &["referer"],
    request_bytes: &["bytes_received"],
    response_bytes: &["bytes_sent"],
    ..NONE
};

/// HAProxy ships no JSON; these are names that are usual. Its dates are when the request came, and
/// its timers have milliseconds: the active time (`%Ta`), or the total one (`%Tt`), which also has
/// what was idle before.
const HAPROXY: Names = Names {
    starts: &["accept_date", "request_date", "date_time", "time", "timestamp", "date", "ts"],
    took: &[
        ("Ta", MILLIS),
        ("ta", MILLIS),
        ("time_active", MILLIS),
        ("Tt", MILLIS),
        ("tt", MILLIS),
        ("time_total", MILLIS),
        ("total_time", MILLIS),
        ("duration", MILLIS),
    ],
    client: &["client_ip", "client", "clientip", "src"],
    method: &["http_method", "method", "request_method"],
    host: &["http_host", "host", "hdr_host"],
    target: &["http_uri", "uri", "http_path", "path"],
    query: &["http_query", "query"],
    request_line: &["http_request", "request", "request_line"],
    status: &["status_code", "http_status", "status"],
    user_agent: &["user_agent", "http_user_agent"],
    referer: &["referer"],
    request_bytes: &["bytes_uploaded"],
    response_bytes: &["bytes_read"],
    ..NONE
};

/// Cloudflare's Logpush, the data set of HTTP requests. Its times have the form that the job names:
/// RFC 3339, or seconds or nanoseconds since 1970.
const CLOUDFLARE: Names = Names {
    starts: &["EdgeStartTimestamp"],
    ends: &["EdgeEndTimestamp"],
    client: &["ClientIP"],
    method: &["ClientRequestMethod"],
    host: &["ClientRequestHost"],
    target: &["ClientRequestURI", "ClientRequestPath"],
    status: &["EdgeResponseStatus"],
    user_agent: &["ClientRequestUserAgent"],
    referer: &["ClientRequestReferer"],
    request_bytes: &["ClientRequestBytes"],
    response_bytes: &["EdgeResponseBodyBytes", "EdgeResponseBytes"],
    ..NONE
};

/// Google's load balancers, and what else of Google Cloud logs requests: the time is the start, and
/// the URL is whole.
const GCP: Names = Names {
    starts: &["timestamp"],
    took: &[("httpRequest.latency", SECONDS)],
    client: &["httpRequest.remoteIp"],
    method: &["httpRequest.requestMethod"],
    target: &["httpRequest.requestUrl"],
    status: &["httpRequest.status"],
    user_agent: &["httpRequest.userAgent"],
    referer: &["httpRequest.referer"],
    request_bytes: &["httpRequest.requestSize"],
    response_bytes: &["httpRequest.responseSize"],
    ..NONE
};

/// The extended log format of the W3C, by the names that IIS has.
const W3C: Names = Names {
    ends: &["time"],
    date: &["date"],
    took: &[("time-taken", MILLIS)],
    client: &["c-ip"],
    method: &["cs-method"],
    host: &["x-host-header", "cs-host", "cs(Host)"],
    target: &["cs-uri-stem", "cs-uri"],
    query: &["cs-uri-query"],
    status: &["sc-status"],
    user_agent: &["cs(User-Agent)"],
    referer: &["cs(Referer)"],
    request_bytes: &["cs-bytes"],
    response_bytes: &["sc-bytes"],
    is_utc: true,
    escapes: Escapes::Blanks,
    ..NONE
};

/// CloudFront has the same names, and one time more in its JSON.
const CLOUDFRONT: Names =
    Names { ends: &["timestamp(ms)", "time"], took: &[("time-taken", SECONDS)], ..W3C };

/// AWS's load balancers.
const ALB: Names = Names {
    starts: &["request_creation_time"],
    ends: &["time"],
    client: &["client:port"],
    request_line: &["request"],
    status: &["elb_status_code"],
    user_agent: &["user_agent"],
    request_bytes: &["received_bytes"],
    response_bytes: &["sent_bytes"],
    escapes: Escapes::Backslashes,
    ..NONE
};

/// JSON of which `--column` says which field has what: what it does not say is found by usual
/// names, as in columns.
const JSON: Names = Names {
    starts: &["time", "timestamp", "start", "start_time", "datetime", "@timestamp", "ts"],
    ends: &["end", "end_time"],
    date: &["date"],
    took: &[
        ("duration", SECONDS),
        ("request_time", SECONDS),
        ("seconds", SECONDS),
        ("duration_ms", MILLIS),
        ("total_ms", MILLIS),
        ("milliseconds", MILLIS),
    ],
    client: columns::CLIENT,
    method: columns::METHOD,
    host: columns::HOST,
    target: columns::TARGET,
    query: columns::QUERY,
    request_line: columns::REQUEST,
    status: columns::STATUS,
    user_agent: columns::USER_AGENT,
    referer: columns::REFERER,
    cost: columns::COST,
    request_bytes: columns::REQUEST_BYTES,
    response_bytes: columns::RESPONSE_BYTES,
    ..NONE
};

/// The headers by which a proxy says for whom it asks, as logs name them.
pub(super) const FORWARDED: &[&str] = &["http_x_forwarded_for", "x_forwarded_for", "xff"];

pub(super) const fn names(format: Format) -> &'static Names {
    match format {
        Format::Caddy => &CADDY,
        Format::Traefik => &TRAEFIK,
        Format::Envoy => &ENVOY,
        Format::Haproxy => &HAPROXY,
        Format::Cloudflare => &CLOUDFLARE,
        Format::Gcp => &GCP,
        Format::W3c => &W3C,
        Format::Cloudfront => &CLOUDFRONT,
        Format::Alb => &ALB,
        Format::Json => &JSON,
        _ => &NGINX,
    }
}
