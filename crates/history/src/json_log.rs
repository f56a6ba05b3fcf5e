//! Logs of JSON of other programs: the names that each of them uses, and one reader for all.

use std::borrow::Cow;

use super::{
    Format,
    draft::{Draft, Fault, Line, any_time, forwarded_for, status},
    duration::{MILLIS, NANOS, SECONDS, duration},
    json_fields::JsonFields,
    value_cache::ValueCache,
};

/// The names that a program has for what is known of a request; the first one that has a value is
/// taken.
struct Names {
    /// When the request came.
    starts: &'static [&'static str],
    /// When its response had ended; asked for if there is no start.
    ends: &'static [&'static str],
    /// How long it took, and the nanoseconds of its unit.
    took: &'static [(&'static str, f64)],
    client: &'static [&'static str],
    method: &'static [&'static str],
    host: &'static [&'static str],
    target: &'static [&'static str],
    /// The query, where the target is without.
    query: &'static [&'static str],
    /// The whole request line.
    request_line: &'static [&'static str],
    status: &'static [&'static str],
    user_agent: &'static [&'static str],
    referer: &'static [&'static str],
}

/// nginx writes when the response has ended: all of its times are that. `msec` has the finest
/// grain.
const NGINX: Names = Names {
    starts: &[],
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
};

/// Caddy logs when the response has ended: `ts`. `client_ip` is what trusted proxies say, else the
/// peer.
const CADDY: Names = Names {
    starts: &[],
    ends: &["ts"],
    took: &[("duration", SECONDS)],
    client: &["request.client_ip", "request.remote_ip", "request.remote_addr"],
    method: &["request.method"],
    host: &["request.host"],
    target: &["request.uri"],
    query: &[],
    request_line: &[],
    status: &["status"],
    user_agent: &["request.headers.User-Agent"],
    referer: &["request.headers.Referer"],
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
    query: &[],
    request_line: &[],
    status: &["DownstreamStatus", "OriginStatus"],
    user_agent: &["request_User-Agent"],
    referer: &["request_Referer"],
};

/// Envoy's `%START_TIME%` is the start. Names are those of its documentation and of Istio.
const ENVOY: Names = Names {
    starts: &["start_time"],
    ends: &[],
    took: &[("duration", MILLIS)],
    client: &[
        "downstream_remote_address",
        "downstream_remote_address_without_port",
        "downstream_direct_remote_address",
    ],
    method: &["method"],
    host: &["authority", ":authority", "host"],
    target: &["x_envoy_original_path", "path"],
    query: &[],
    request_line: &[],
    status: &["response_code", "status"],
    user_agent: &["user_agent", "user-agent"],
    referer: &["referer"],
};

/// HAProxy ships no JSON; these are names that are usual. Its dates are when the request came, and
/// its timers have milliseconds: the active time (`%Ta`), or the total one (`%Tt`), which also has
/// what was idle before.
const HAPROXY: Names = Names {
    starts: &["accept_date", "request_date", "date_time", "time", "timestamp", "date", "ts"],
    ends: &[],
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
};

/// The headers by which a proxy says for whom it asks, as logs name them.
const FORWARDED: &[&str] = &["http_x_forwarded_for", "x_forwarded_for", "xff"];

const fn names(format: Format) -> &'static Names {
    match format {
        Format::Caddy => &CADDY,
        Format::Traefik => &TRAEFIK,
        Format::Envoy => &ENVOY,
        Format::Haproxy => &HAPROXY,
        _ => &NGINX,
    }
}

/// Reads a line of JSON of another program than ours.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    format: Format,
    line: &str,
    wanted: &[String],
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let fields = JsonFields::read(line)?;
    let names = names(format);
    if is_event(format, &fields) {
        return Ok(Line::Skipped("an event of the program, not a request"));
    }
    let mut draft = draft(&fields, names)?;
    draft.fields = fields.wanted(wanted);
    draft.finish(repeated)
}

/// Whether a line is about what the program itself has done: both programs log that into the same
/// file, unless they are configured otherwise. The name of the time tells which program it is; a
/// request of the one is no event of the other.
fn is_event(format: Format, fields: &JsonFields<'_>) -> bool {
    let time = match format {
        Format::Caddy => "ts",
        Format::Traefik => "time",
        _ => return false,
    };
    fields.has("level")
        && fields.has(time)
        && (format == Format::Caddy || !fields.has("ts"))
        && !fields.has("request")
        && !fields.has("RequestMethod")
}

/// Whether a line has a time and a status by the names of this format, whatever its request is.
pub(super) fn has_shape(format: Format, line: &str) -> bool {
    let names = names(format);
    JsonFields::read(line).is_ok_and(|fields| {
        fields.first(names.starts).or_else(|| fields.first(names.ends)).is_some()
            && fields.first(names.status).is_some()
    })
}

/// What the fields say, by these names.
fn draft<'f>(fields: &'f JsonFields<'_>, names: &Names) -> Result<Draft<'f>, Fault> {
    let start = fields.first(names.starts);
    let Some(time) = start.or_else(|| fields.first(names.ends)) else {
        let known = [names.starts, names.ends].concat().join(", ");
        return Err(format!(
            "it has no time: none of the fields {known}; log one of them, or pass another --format"
        )
        .into());
    };
    let forwarded = || fields.first(FORWARDED).and_then(forwarded_for);
    let mut draft = Draft {
        written: Some(any_time(time)?),
        is_end: start.is_none(),
        client: fields.first(names.client).or_else(forwarded),
        host: fields.first(names.host).map(Cow::Borrowed),
        status: fields.first(names.status).and_then(status),
        user_agent: fields.first(names.user_agent).map(Cow::Borrowed),
        referer: fields.first(names.referer).map(Cow::Borrowed),
        ..Draft::default()
    };
    // HAProxy says by -1 that a duration was never known, and by a plus that it is the least.
    let took = names.took.iter().find_map(|(name, unit)| Some((fields.value(name)?, unit)));
    if let Some((took, unit)) = took.filter(|(took, _)| *took != "-1") {
        draft.set_took(duration(took.trim_start_matches('+'), *unit));
    }
    // The request line has the target as it came; nginx's `uri` is rewritten.
    match (fields.first(names.method), fields.first(names.target)) {
        (Some(method), Some(target)) => {
            draft.method = Cow::Borrowed(method);
            draft.target = match fields.first(names.query) {
                Some(query) if !target.contains('?') => {
                    let query = query.trim_start_matches('?');
                    Cow::Owned(format!("{target}?{query}"))
                }
                _ => Cow::Borrowed(target),
            };
        }
        (method, target) => match fields.first(names.request_line) {
            Some(line) => draft.read_request_line(line)?,
            None if names.request_line.iter().any(|name| fields.has(name)) => {
                draft.read_request_line("-")?;
            }
            None => {
                let missing = if method.is_none() { names.method } else { names.target };
                let what = if method.is_none() { "method" } else { "path" };
                debug_assert!(method.is_none() || target.is_none(), "one of them is missing");
                return Err(format!(
                    "it has no {what}: none of the fields {}; either the connection ended before a \
                     request, or the log lacks it: then log one of them",
                    missing.join(", ")
                )
                .into());
            }
        },
    }
    Ok(draft)
}
