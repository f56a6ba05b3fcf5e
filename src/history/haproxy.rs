//! HAProxy's text format: `option httplog`, with or without what syslog puts in front.
//!
//! `10.0.1.2:33317 [06/Feb/2009:12:14:14.655] frontend backend/server 10/0/30/69/109 200 2750 - -
//! ---- 1/1/1/1/0 0/0 {captured} {headers} "GET /index.html HTTP/1.1"`. The date is when the request
//! came (`%tr`), or the connection. It is local and does not say of which zone; UTC is taken, which
//! moves all requests by the same time, but for one hour in each half-year. The date of syslog, which
//! has no year, is not read. Lines are cut off at 1,024 bytes unless HAProxy is told otherwise, so a
//! long target may lack its end, and its quote.

use super::{
    Format,
    draft::{Draft, Fault, Line, status, time_of},
    instant, json_log,
    repeated::Repeated,
};

const SHAPE: &str = "it does not have the form of HAProxy's `option httplog`: `address:port [date] \
                     frontend backend/server times status … \"request\"`; an event, a line of \
                     `option tcplog`, or cut off";

/// Reads a line of text or of JSON.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(line: &str, wanted: &[String], repeated: &mut Repeated) -> Result<Line, Fault> {
    match line.find('{') {
        // Behind what syslog puts in front.
        Some(at) if !line.contains(" [") || at == 0 => {
            json_log::read(Format::Haproxy, line.get(at..).unwrap_or(line), wanted, repeated)
        }
        _ => read_text(line, wanted, repeated),
    }
}

fn read_text(line: &str, wanted: &[String], repeated: &mut Repeated) -> Result<Line, Fault> {
    let (front, date, rest) = split_at_date(line).ok_or(SHAPE)?;
    let client = front.rsplit(' ').next().unwrap_or_default();
    let (client, _port) = client.rsplit_once(':').ok_or(SHAPE)?;
    let mut words = rest.split_ascii_whitespace();
    let _frontend = words.next().ok_or(SHAPE)?;
    let server = words.next().filter(|word| word.contains('/')).ok_or(SHAPE)?;
    let times = words.next().filter(|word| word.contains('/')).ok_or(SHAPE)?;
    let answer = words.next().ok_or(SHAPE)?;
    // A line of `option tcplog` has two times less and no status.
    if times.split('/').count() < 5 || answer.parse::<i32>().is_err() {
        return Err(SHAPE.into());
    }
    let request = rest.split('"').nth(1).ok_or(SHAPE)?;
    let mut draft = Draft {
        written: Some(time_of(instant::clf(date), date)?),
        client: Some(client),
        status: status(answer),
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
