//! HAProxy's text format: `option httplog`, with or without what syslog puts in front.
//!
//! `10.0.1.2:33317 [06/Feb/2009:12:14:14.655] frontend backend/server 10/0/30/69/109 200 2750 - -
//! ---- 1/1/1/1/0 0/0 {captured} {headers} "GET /index.html HTTP/1.1"`. The date is when the
//! request came (`%tr`), or the connection. It is local and does not say of which zone; UTC is
//! taken, which moves all requests by the same time, but for one hour in each half-year. The date
//! of syslog, which has no year, is not read. Lines are cut off at 1,024 bytes unless HAProxy is
//! told otherwise, so a long target may lack its end, and its quote.

use std::time::Duration;

use tollgate_usage::logged::LoggedUse;

use super::{
    Format,
    draft::{Draft, Fault, Line, status, time_of},
    duration::millis,
    instant, named,
    options::Asked,
    prefix,
    value_cache::ValueCache,
};

const SHAPE: &str = "it does not have the form of HAProxy's `option httplog`: `address:port [date] \
                     frontend backend/server times status … \"request\"`; an event, a line of \
                     `option tcplog`, or cut off";

/// Reads a line of text or of JSON.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(line: &str, asked: &Asked, repeated: &mut ValueCache) -> Result<Line, Fault> {
    match prefix::json(line) {
        Some(json) => named::read(Format::Haproxy, json, asked, repeated),
        None => read_text(line, &asked.wanted, repeated),
    }
}

/// Whether a line has the form, whatever its request is.
pub(super) fn has_shape(line: &str) -> bool {
    match prefix::json(line) {
        Some(json) => named::has_shape(Format::Haproxy, json),
        None => Parts::of(line).is_some_and(|parts| instant::clf(parts.date).is_some()),
    }
}

/// The parts of a line of text.
struct Parts<'l> {
    client: &'l str,
    date: &'l str,
    server: &'l str,
    /// `TR/Tw/Tc/Tr/Ta`, each in milliseconds.
    timers: &'l str,
    status: &'l str,
    /// Of the response.
    bytes: &'l str,
    request: &'l str,
}

impl<'l> Parts<'l> {
    fn of(line: &'l str) -> Option<Parts<'l>> {
        let (front, date, rest) = split_at_date(line)?;
        let (client, _port) = front.rsplit(' ').next()?.rsplit_once(':')?;
        let mut words = rest.split_ascii_whitespace();
        let _frontend = words.next()?;
        let server = words.next().filter(|word| word.contains('/'))?;
        // A line of `option tcplog` has two times less and no status.
        let timers = words.next().filter(|word| word.split('/').count() >= 5)?;
        let status = words.next().filter(|word| word.parse::<i32>().is_ok())?;
        let bytes = words.next().unwrap_or_default();
        let request = rest.split('"').nth(1)?;
        Some(Parts { client, date, server, timers, status, bytes, request })
    }

    /// How long the request was active: the last timer, which counts from the date on. It is -1 if
    /// it was never known, and has a plus in front if the line was written before the end (`option
    /// logasap`): the request took longer then, and that is the least of it.
    fn took(&self) -> Option<Duration> {
        millis(self.timers.rsplit('/').next()?.trim_start_matches('+'))
    }
}

fn read_text(line: &str, wanted: &[String], repeated: &mut ValueCache) -> Result<Line, Fault> {
    let parts = Parts::of(line).ok_or(SHAPE)?;
    let Parts { client, date, server, request, .. } = parts;
    let mut draft = Draft {
        written: Some(time_of(instant::clf(date), date)?),
        client: Some(client),
        status: status(parts.status),
        took: parts.took(),
        used: LoggedUse {
            response_bytes: parts.bytes.trim_start_matches('+').parse().ok(),
            ..LoggedUse::default()
        },
        ..Draft::default()
    };
    if request == "<BADREQ>" {
        return Err("HAProxy could not read the request (`<BADREQ>`); nothing to do".into());
    }
    draft.read_request_line(request)?;
    draft.fields = wanted
        .iter()
        .map(|name| match name.as_str() {
            "client" | "client_ip" => Some(client.into()),
            "server" => Some(server.into()),
            _ => None,
        })
        .collect();
    draft.finish(repeated)
}

/// What is before the date, the date, and what is behind it. Syslog may put brackets in front, too.
fn split_at_date(line: &str) -> Option<(&str, &str, &str)> {
    line.match_indices(" [").find_map(|(at, _)| {
        let (front, rest) = line.split_at_checked(at)?;
        let (date, rest) = rest.get(2..)?.split_once("] ")?;
        let is_date = date.len() >= 20 && date.as_bytes().get(2) == Some(&b'/');
        is_date.then_some((front, date, rest))
    })
}
