//! The formats of Apache and nginx: common, combined, and what people add to them.
//!
//! The time between brackets is when the request came in Apache (`%t`), and when its response had
//! ended in nginx (`$time_local`). A line does not say whose it is, so the time is taken as it is,
//! which is early by no more than the request took. Only nginx writes durations as seconds with
//! three decimals (`$request_time`): of a line with such a number at its end, the arrival is the
//! time less that. Apache adds whole numbers (`%D`, `%T`), and Traefik a whole number with `ms`;
//! both have the start.

use std::borrow::Cow;

use tollgate_usage::logged::LoggedUse;

use super::{
    draft::{Draft, Fault, Line, known, status, time_of, wanted_value},
    duration::{millis, seconds},
    escapes::unescape,
    front::{Front, NoFront},
    instant,
    prefix::{is_host, without_prefix},
    value_cache::ValueCache,
};

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    line: &str,
    wanted: &[String],
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let parts = Parts::of(line)?;
    let mut draft = Draft {
        written: Some(time_of(instant::clf(parts.time), parts.time)?),
        client: Some(parts.client),
        host: parts.host.map(Cow::Borrowed),
        status: status(parts.status),
        used: LoggedUse { response_bytes: parts.bytes.parse().ok(), ..LoggedUse::default() },
        referer: parts.referer.and_then(known).map(unescape),
        user_agent: parts.user_agent.and_then(known).map(unescape),
        ..Draft::default()
    };
    draft.read_request_line(parts.request)?;
    let took = parts.took.and_then(nginx_time).or_else(|| nginx_time(parts.rest));
    draft.took = took.and_then(seconds);
    draft.is_end = draft.took.is_some();
    if !draft.is_end {
        draft.took = traefik_time(parts.rest).and_then(millis);
    }
    draft.doubts.has_no_side = draft.took.is_none();
    draft.doubts.has_forwarded_client = parts.is_forwarded;
    draft.fields = wanted.iter().map(|name| parts.wanted(name)).collect();
    draft.finish(repeated)
}

/// Whether a line has the two fields more that combined has.
pub(super) fn is_combined(line: &str) -> bool {
    Parts::of(line).is_ok_and(|parts| parts.user_agent.is_some())
}

/// Whether a line has the form, whatever its request is.
pub(super) fn has_shape(line: &str) -> bool {
    Parts::of(line).is_ok_and(|parts| instant::clf(parts.time).is_some())
}

/// The parts of a line.
struct Parts<'l> {
    /// The virtual host, in front or behind the time.
    host: Option<&'l str>,
    client: &'l str,
    is_forwarded: bool,
    user: &'l str,
    time: &'l str,
    request: &'l str,
    status: &'l str,
    /// Of the response's body.
    bytes: &'l str,
    /// What is before the referer, where APISIX has the duration.
    took: Option<&'l str>,
    referer: Option<&'l str>,
    user_agent: Option<&'l str>,
    /// What is behind.
    rest: &'l str,
}

const SHAPE: &str = "it does not have the form of common or combined: `address - user [time] \
                     \"request\" status bytes`; a line of another program, or cut off";

const PREFIX: &str = "it does not begin with the client's address or name: another program has put \
                      something in front; cut that off, as with `sed 's/^PREFIX//'`";

impl<'l> Parts<'l> {
    fn of(line: &'l str) -> Result<Parts<'l>, Fault> {
        let (front, rest) = line.split_once(" [").ok_or(SHAPE)?;
        let (time, rest) = rest.split_once(']').ok_or(SHAPE)?;
        let Front { host, client, is_forwarded, user } =
            Front::of(without_prefix(front)).map_err(|lacks| match lacks {
                NoFront::Shape => SHAPE,
                NoFront::Prefix => PREFIX,
            })?;
        let (host_behind, rest) = split_host(rest.strip_prefix(' ').ok_or(SHAPE)?);
        let rest = rest.strip_prefix('"').ok_or(SHAPE)?;
        let (request, rest) = split_request(rest).ok_or(SHAPE)?;
        let mut words = rest.splitn(3, ' ');
        let status = words.next().filter(|word| is_status(word)).ok_or(SHAPE)?;
        let bytes = words.next().unwrap_or("-");
        if bytes != "-" && !bytes.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SHAPE.into());
        }
        let rest = words.next().unwrap_or_default();
        let (took, rest) = split_number(rest);
        let quoted = split_quoted(rest).and_then(|(referer, rest)| {
            let (user_agent, rest) = split_quoted(rest.trim_start())?;
            Some((Some(referer), Some(user_agent), rest))
        });
        let (referer, user_agent, rest) = quoted.unwrap_or((None, None, rest));
        Ok(Parts {
            host: host.or(host_behind),
            client,
            is_forwarded,
            user,
            time,
            request,
            status,
            bytes,
            took,
            referer,
            user_agent,
            rest,
        })
    }

    /// The value of a field that callers are named by.
    fn wanted(&self, name: &str) -> Option<Box<str>> {
        let text = match name {
            "remote_user" | "user" => self.user,
            "remote_addr" | "remote_host" | "client" => self.client,
            "host" => self.host?,
            "http_user_agent" | "user_agent" => self.user_agent?,
            "http_referer" | "referer" => self.referer?,
            // What nginx's own `main` has at the end.
            "http_x_forwarded_for" | "x_forwarded_for" => split_quoted(self.rest.trim_start())?.0,
            _ => return None,
        };
        wanted_value(Some(&unescape(known(text)?)))
    }
}

/// The host between the time and the request, as APISIX has it, perhaps in quotes; and what is
/// behind it.
fn split_host(text: &str) -> (Option<&str>, &str) {
    let split = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\" "),
        None => text.split_once(' '),
    };
    match split.filter(|(word, rest)| is_host(word) && rest.starts_with('"')) {
        Some((word, rest)) => (known(word), rest),
        None => (None, text),
    }
}

/// A number before the referer, and what is behind it.
fn split_number(text: &str) -> (Option<&str>, &str) {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.split_once(' ') {
        Some((word, rest)) if rest.starts_with('"') && (word == "-" || is_number(word)) => {
            (Some(word), rest)
        }
        _ => (None, text),
    }
}

fn is_status(word: &str) -> bool {
    word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The request line, whose opening quote is gone, and what is behind it: a status.
///
/// Old servers do not escape quotes, so a quote that no status follows is a part of the line.
fn split_request(text: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', text.as_bytes().get(from..)?)?;
        let (request, rest) = text.split_at_checked(at)?;
        let rest = rest.get(1..)?.strip_prefix(' ').unwrap_or_default();
        if rest.get(..3).is_some_and(is_status) && !is_escaped(request) {
            return Some((request, rest));
        }
        from = at + 1;
    }
}

/// What is between quotes at the start, and what is behind them.
fn split_quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', text.as_bytes().get(from..)?)?;
        let (quoted, rest) = text.split_at_checked(at)?;
        if !is_escaped(quoted) {
            return Some((quoted, rest.get(1..)?));
        }
        from = at + 1;
    }
}

/// Whether what follows a text is escaped: by an odd number of backslashes.
fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The duration that Traefik has at the end: `12ms`.
fn traefik_time(rest: &str) -> Option<&str> {
    let word = rest.rsplit(' ').next()?;
    let number = word.strip_suffix("ms")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(word)
}

/// The `$request_time` of nginx among what is behind the known fields.
fn nginx_time(rest: &str) -> Option<&str> {
    rest.split_ascii_whitespace()
        .map(|word| word.strip_prefix("request_time=").or(word.strip_prefix("rt=")).unwrap_or(word))
        .map(|word| word.trim_matches('"'))
        .find(|word| {
            word.split_once('.').is_some_and(|(whole, millis)| {
                let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
                !whole.is_empty() && millis.len() == 3 && is_number(whole) && is_number(millis)
            })
        })
}
