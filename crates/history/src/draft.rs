//! What a format has read of a line, on its way to a record: the rules that all formats share.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use http::Method;
use tollgate_clock::Timestamp;
use tollgate_usage::logged::{LoggedCost, LoggedUse};

use super::{
    OwnFields, Place, Record, Target,
    escapes::unescape,
    instant::{self, Instant},
    value_cache::ValueCache,
};

/// What a line tells of.
pub(super) enum Line {
    /// A request.
    Request {
        record: Box<Record>,
        /// The time that is written, which the record's may be earlier than.
        written: Instant,
        doubts: Doubts,
    },
    /// Something that no limit counts: why.
    Skipped(&'static str),
}

/// What a reader of a report has to know of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubts {
    /// Whether the client is written as a name, and so has no address.
    pub(super) has_named_client: bool,
    /// Whether the client is of a list of forwarded addresses.
    pub(super) has_forwarded_client: bool,
    /// Whether a duration is written that is in no form that is read.
    pub(super) has_unread_took: bool,
    /// Whether the line does not say of which end of the request its time is.
    pub(super) has_no_side: bool,
}

/// What is wrong with a line, and what to do: a part of a sentence.
pub(super) type Fault = Cow<'static, str>;

/// What a format has read of a line.
#[derive(Default)]
pub(super) struct Draft<'l> {
    /// The time that is written.
    pub(super) written: Option<Instant>,
    /// Whether that is when the response had ended.
    pub(super) is_end: bool,
    /// How long the request took.
    pub(super) took: Option<Duration>,
    /// What it has used besides, and cost.
    pub(super) used: LoggedUse,
    pub(super) doubts: Doubts,
    /// The client's address, perhaps with a port.
    pub(super) client: Option<&'l str>,
    pub(super) method: Cow<'l, str>,
    pub(super) host: Option<Cow<'l, str>>,
    /// What was asked for: a path, or a URL.
    pub(super) target: Cow<'l, str>,
    pub(super) status: Option<u16>,
    pub(super) user_agent: Option<Cow<'l, str>>,
    pub(super) referer: Option<Cow<'l, str>>,
    pub(super) own: Option<OwnFields>,
    pub(super) fields: Vec<Option<Box<str>>>,
}

/// A line of a request whose head could not be read.
pub(super) const NO_HEAD: &str = "the request never had a readable head, so no limit counted it";

impl<'l> Draft<'l> {
    /// Takes method and target from a request line: `GET /path HTTP/1.1`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read_request_line(&mut self, line: &'l str) -> Result<(), Fault> {
        if line.is_empty() || line == "-" {
            return Err(
                "there is no request line (`-`): the connection ended before a request, or \
                        was refused; nothing to do"
                    .into(),
            );
        }
        let (method, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !is_method(method) {
            return Err("the request line is not HTTP: a scanner, or TLS at a port without it; \
                        nothing to do"
                .into());
        }
        // HTTP/0.9 has no version. A target with spaces is cut nowhere else than at the version.
        let target = rest.rsplit_once(" HTTP/").map_or(rest, |(target, _)| target).trim();
        if target.is_empty() {
            return Err(
                "the request line has no target: the request was malformed; nothing to do".into()
            );
        }
        self.method = Cow::Borrowed(method);
        self.target = unescape(target);
        Ok(())
    }

    /// Sets how long the request took, as it was read; none: it could not be.
    pub(super) fn set_took(&mut self, read: Option<Duration>) {
        self.took = read;
        self.doubts.has_unread_took = read.is_none();
    }

    /// The record of all this; its place is yet to come.
    ///
    /// # Errors
    /// What is missing, or no request.
    pub(super) fn finish(self, repeated: &mut ValueCache) -> Result<Line, Fault> {
        let Some(written) = self.written else {
            return Err("it has no time that can be read".into());
        };
        if self.method == "CONNECT" {
            return Ok(Line::Skipped("CONNECT names no path, so no limit counts it"));
        }
        let (of_target, target) = split_target(&self.target);
        let Some(target) = target else {
            return match self.target.as_ref() {
                "*" => Ok(Line::Skipped("`OPTIONS *` is about no path, so no limit counts it")),
                _ => Err("what was asked for does not begin with a slash: the request was \
                          malformed; nothing to do"
                    .into()),
            };
        };
        let method = match self.method.as_ref() {
            "GET" => Method::GET,
            "" => return Err("it has no method".into()),
            other if is_method(other) => Method::from_bytes(other.as_bytes())
                .map_err(|_| Fault::from("its method is not one of HTTP"))?,
            _ => return Err("its method is not one of HTTP".into()),
        };
        let host = self.host.as_deref().and_then(known).or(of_target).map(without_port);
        // It would have begun before 1970: the unit is another one, or the number is wrong.
        let has_long_took =
            self.is_end && self.took > Some(written.time.saturating_since(Timestamp::default()));
        let took = self.took.filter(|_| !has_long_took);
        let time = match took {
            Some(took) if self.is_end => written.time.saturating_sub(took),
            _ => written.time,
        };
        let mut value = |text: Option<&str>| repeated.value(text.and_then(known)?);
        let user_agent = value(self.user_agent.as_deref());
        let referer = value(self.referer.as_deref());
        let host = value(host);
        let target = match repeated.target(&target) {
            Some(valid) => Target::Valid(valid),
            None => Target::Invalid(target.into()),
        };
        let client = self.client.and_then(address);
        let mut doubts = self.doubts;
        doubts.has_named_client = client.is_none() && self.client.and_then(known).is_some();
        let record = Box::new(Record {
            time,
            place: Place::default(),
            client,
            method,
            host,
            target,
            status: self.status,
            took,
            used: LoggedUse { took, ..self.used },
            user_agent,
            referer,
            own: self.own,
            fields: self.fields,
        });
        doubts.has_unread_took |= has_long_took;
        Ok(Line::Request { record, written, doubts })
    }
}

/// A time, or what is wrong.
///
/// # Errors
/// If it is in none of the forms that are read.
pub(super) fn time_of(read: Option<Instant>, text: &str) -> Result<Instant, Fault> {
    read.ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        format!(
            "its time, `{shown}`, is in no form that is read: RFC 3339, 21/Nov/2026:08:41:00 \
                 +0000, or seconds since 1970"
        )
        .into()
    })
}

/// A value, unless the log says by a hyphen that there is none.
pub(super) fn known(value: &str) -> Option<&str> {
    (!value.is_empty() && value != "-").then_some(value)
}

/// A status, unless it is the 0 or -1 by which logs say that there was none.
pub(super) fn status(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|status| (100..=999).contains(status))
}

/// Whether this is a word that can be a method. HTTP allows more; what clients send in error is
/// among that, and no method that is in use.
fn is_method(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 32
        && word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-' || byte == b'_')
        && word != "-"
}

/// The authority of a target that is a URL, and its path, with the query; none: it has no path.
fn split_target(target: &str) -> (Option<&str>, Option<Cow<'_, str>>) {
    if target.starts_with('/') {
        return (None, Some(target.into()));
    }
    let Some((scheme, rest)) = target.split_once("://") else { return (None, None) };
    if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
        return (None, None);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path: Cow<'_, str> =
        if path.starts_with('/') { path.into() } else { format!("/{path}").into() };
    (known(authority), Some(path))
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    if memchr::memchr(b':', host.as_bytes()).is_none() {
        return host;
    }
    match host.rsplit_once(':') {
        // Not within the brackets of an IPv6 address, and not a bare one.
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// An address, perhaps in brackets, with a port or a zone; none: it is a name, or is not known.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let bare = |text: &str| text.split('%').next().and_then(|text| text.parse::<IpAddr>().ok());
    let address =
        text.parse().ok().or_else(|| bare(text)).or_else(|| match text.strip_prefix('[') {
            Some(text) => bare(text.split(']').next()?),
            None => bare(text.rsplit_once(':')?.0),
        })?;
    // A server that listens for both writes IPv4 as IPv6.
    Some(address.to_canonical())
}

/// The address that the nearest proxy has added to `x-forwarded-for`: the last one.
pub(super) fn forwarded_for(text: &str) -> Option<&str> {
    known(text.rsplit(',').next()?.trim())
}

/// A time in any form, or what is wrong.
///
/// # Errors
/// If it is in none of the forms that are read.
pub(super) fn any_time(text: &str) -> Result<Instant, Fault> {
    time_of(instant::any(text), text)
}

/// A time whose day may be apart, or what is wrong.
///
/// # Errors
/// If it is in none of the forms that are read.
pub(super) fn dated_time(date: Option<&str>, text: &str) -> Result<Instant, Fault> {
    let dated = date.and_then(|date| {
        // As RFC 3339 has both, or as common does.
        ["T", ":"].iter().find_map(|between| instant::any(&format!("{date}{between}{text}")))
    });
    dated.map_or_else(|| any_time(text), Ok)
}

/// A target with the query that is apart from it.
pub(super) fn with_query<'l>(target: &'l str, query: Option<&str>) -> Cow<'l, str> {
    match query {
        Some(query) if !target.contains('?') => {
            Cow::Owned(format!("{target}?{}", query.trim_start_matches('?')))
        }
        _ => Cow::Borrowed(target),
    }
}

/// What a log of another program may have of what ours says: `caller`, `tier` and `denied`.
pub(super) fn own_fields<'l>(
    value: impl Fn(&str) -> Option<&'l str>,
    repeated: &mut ValueCache,
) -> Option<OwnFields> {
    let [caller, tier, denied] = ["caller", "tier", "denied"].map(value);
    caller.or(tier).or(denied)?;
    Some(OwnFields {
        caller: caller.map(|caller| repeated.text(caller)),
        tier: tier.map(|tier| repeated.text(tier)),
        denied: denied.map(Box::from),
        stands_for: 1,
        ..OwnFields::default()
    })
}

/// What a request has used, by the values of fields that name it.
pub(super) fn used<'l>(value: impl Fn(&str) -> Option<&'l str>) -> LoggedUse {
    let number = |what: &str| value(what)?.trim().parse().ok();
    LoggedUse {
        costs: value("cost").and_then(LoggedCost::parse).into_iter().collect(),
        request_bytes: number("request_bytes"),
        response_bytes: number("response_bytes"),
        took: None,
    }
}

/// The value of a wanted field.
pub(super) fn wanted_value(value: Option<&str>) -> Option<Box<str>> {
    value.and_then(known).map(Box::from)
}
