//! Envoy's text format as it ships, and Istio's.
//!
//! `[%START_TIME%] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM-TIME
//! "X-FORWARDED-FOR" "USER-AGENT" "REQUEST-ID" "AUTHORITY" "UPSTREAM"`: Istio has three fields more
//! behind the flags, one of them in quotes. The start is the arrival. The peer's address is not in
//! it; Envoy adds that at the end of `x-forwarded-for` if it is an edge proxy
//! (`use_remote_address`).

use std::borrow::Cow;

use tollgate_usage::logged::LoggedUse;

use super::{
    Format,
    draft::{Draft, Fault, Line, address, forwarded_for, known, status, time_of, wanted_value},
    duration::millis,
    instant, named,
    value_cache::ValueCache,
};

const SHAPE: &str = "it does not have the form of Envoy's default text format: `[time] \"request\" \
                     code flags received sent duration …`; a line of another program, or cut off";

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    line: &str,
    wanted: &[String],
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let (time, rest) =
        line.strip_prefix('[').and_then(|rest| rest.split_once("] \"")).ok_or(SHAPE)?;
    let (request, rest) = rest.split_once("\" ").ok_or(SHAPE)?;
    let code = rest.split(' ').next().ok_or(SHAPE)?;
    if code.is_empty() || !code.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SHAPE.into());
    }
    // What clients send may have quotes, which are not escaped: the fields that they cannot choose
    // as freely are found from both ends, and the user agent is what is left.
    let (front, rest) = rest.split_once("\" \"").ok_or(SHAPE)?;
    let (numbers, forwarded) = front.rsplit_once('"').ok_or(SHAPE)?;
    // The duration, and the time of the upstream, which is a hyphen if there was none.
    let mut from_end = numbers.trim_end().rsplit(' ').skip(1);
    let took = from_end.next().and_then(known);
    let mut bytes = || from_end.next().and_then(|bytes| bytes.parse().ok());
    let (response_bytes, request_bytes) = (bytes(), bytes());
    let mut parts = rest.rsplitn(4, "\" \"");
    let (last, authority, id) =
        (parts.next().ok_or(SHAPE)?, parts.next().ok_or(SHAPE)?, parts.next().ok_or(SHAPE)?);
    let user_agent = parts.next().ok_or(SHAPE)?;
    let (_upstream, after) = last.split_once('"').ok_or(SHAPE)?;
    // Istio has the peer's address in one of the words at the end.
    let peer = after.split_ascii_whitespace().nth(3).filter(|word| address(word).is_some());
    let mut draft = Draft {
        written: Some(time_of(instant::iso(time), time)?),
        client: peer.or_else(|| forwarded_for(forwarded)),
        host: known(authority).map(Cow::Borrowed),
        status: status(code),
        used: LoggedUse { request_bytes, response_bytes, ..LoggedUse::default() },
        user_agent: known(user_agent).map(Cow::Borrowed),
        ..Draft::default()
    };
    if let Some(took) = took {
        draft.set_took(millis(took));
    }
    read_request(&mut draft, request)?;
    let value = |name: &str| match name {
        "x_forwarded_for" => Some(forwarded),
        "user_agent" => Some(user_agent),
        "request_id" | "x_request_id" => Some(id),
        "authority" | "host" => Some(authority),
        _ => None,
    };
    draft.fields = wanted.iter().map(|name| wanted_value(value(name))).collect();
    draft.finish(repeated)
}

/// Whether a line has the form at its start, whatever its request is.
pub(super) fn has_shape(line: &str) -> bool {
    if line.starts_with('{') {
        return named::has_shape(Format::Envoy, line);
    }
    let parts = line.strip_prefix('[').and_then(|rest| rest.split_once("] \""));
    parts.is_some_and(|(time, rest)| {
        instant::iso(time).is_some() && rest.starts_with("- - ") && rest.contains("\" \"")
    })
}

/// The request line: `- - -` if the head was never read.
fn read_request<'l>(draft: &mut Draft<'l>, request: &'l str) -> Result<(), Fault> {
    draft.read_request_line(if request.starts_with("- - ") { "-" } else { request })
}
