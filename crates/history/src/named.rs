//! Logs whose fields have names, such as those of JSON: one reader for all of them.

use std::{borrow::Cow, time::Duration};

use super::{
    Format,
    columns::Columns,
    draft::{Draft, Fault, Line, dated_time, forwarded_for, own_fields, status, used, with_query},
    duration::{MILLIS, SECONDS, duration},
    escapes::unescape,
    fields::Fields,
    front::first_address,
    instant::Instant,
    names::{Escapes, FORWARDED, Names, names},
    options::Asked,
    value_cache::ValueCache,
};

/// Reads a line of JSON of another program than ours.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    format: Format,
    line: &str,
    asked: &Asked,
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let fields = Fields::read(line)?;
    if is_event(format, &fields) {
        return Ok(Line::Skipped("an event of the program, not a request"));
    }
    of_fields(format, &fields, asked, repeated)
}

/// Reads a line of these fields.
///
/// # Errors
/// What is wrong with it.
pub(super) fn of_fields(
    format: Format,
    fields: &Fields<'_>,
    asked: &Asked,
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let line = NamedLine { fields, columns: &asked.columns, format, names: names(format) };
    let mut draft = line.draft()?;
    let own = |what: &str| asked.columns.get(what).and_then(|name| fields.value(name));
    draft.own = own_fields(own, repeated);
    draft.fields = fields.wanted(&asked.wanted);
    draft.finish(repeated)
}

/// Whether a line is about what the program itself has done, which some log into the same file. The
/// name of the time tells which program it is; a request of the one is no event of the other.
fn is_event(format: Format, fields: &Fields<'_>) -> bool {
    let time = match format {
        Format::Caddy => "ts",
        Format::Traefik => "time",
        Format::Gcp => return fields.has("logName") && !fields.has("httpRequest"),
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
    Fields::read(line).is_ok_and(|fields| {
        fields.first(names.starts).or_else(|| fields.first(names.ends)).is_some()
            && fields.first(names.status).is_some()
    })
}

/// A line whose fields are found by the columns that were named, and the names of its format.
struct NamedLine<'f> {
    fields: &'f Fields<'f>,
    columns: &'f Columns,
    format: Format,
    names: &'static Names,
}

impl<'f> NamedLine<'f> {
    /// The value of the field that was named for this, or of the first of these names.
    fn value(&self, what: &str, names: &[&str]) -> Option<&'f str> {
        match self.columns.get(what) {
            Some(name) => self.fields.value(name),
            None => self.fields.first(names),
        }
    }

    fn draft(&self) -> Result<Draft<'f>, Fault> {
        let NamedLine { fields, columns, names, .. } = *self;
        let (written, is_end, between) = self.times()?;
        let forwarded = || fields.first(FORWARDED).and_then(forwarded_for);
        let mut draft = Draft {
            written: Some(written),
            is_end,
            took: between,
            client: self.value("client", names.client).map(client).or_else(forwarded),
            host: self.value("host", names.host).map(Cow::Borrowed),
            status: self.value("status", names.status).and_then(status),
            user_agent: self.value("user_agent", names.user_agent).map(|text| {
                match names.escapes {
                    Escapes::None => Cow::Borrowed(text),
                    Escapes::Backslashes => unescape(text),
                    Escapes::Blanks => with_blanks(text),
                }
            }),
            referer: self.value("referer", names.referer).map(Cow::Borrowed),
            used: used(|what| self.used(what)),
            ..Draft::default()
        };
        let named = [("duration", SECONDS), ("duration_ms", MILLIS)];
        let named = named.iter().find_map(|(what, unit)| Some((columns.get(what)?, unit)));
        let took = match named {
            Some((name, unit)) => fields.value(name).map(|took| (took, unit)),
            None => names.took.iter().find_map(|(name, unit)| Some((fields.value(name)?, unit))),
        };
        // HAProxy says by -1 that a duration was never known, and by a plus that it is the least.
        if let Some((took, unit)) = took.filter(|(took, _)| *took != "-1") {
            draft.set_took(duration(took.trim_start_matches('+'), *unit));
        }
        self.request(&mut draft)?;
        Ok(draft)
    }

    /// What says of one of these what the request has used.
    fn used(&self, what: &str) -> Option<&'f str> {
        let NamedLine { names, .. } = *self;
        self.value(
            what,
            match what {
                "cost" => names.cost,
                "request_bytes" => names.request_bytes,
                "response_bytes" => names.response_bytes,
                _ => &[],
            },
        )
    }

    /// The time, whether it is the end, and the duration where both are known.
    fn times(&self) -> Result<(Instant, bool, Option<Duration>), Fault> {
        let NamedLine { columns, names, .. } = *self;
        // Who names only the end does not mean a start of a usual name.
        let has_start = columns.get("time").is_some() || columns.get("end").is_none();
        let start = self.value("time", names.starts).filter(|_| has_start);
        let end = self.value("end", names.ends);
        let date = self.value("date", names.date);
        let Some(text) = start.or(end).or(date) else {
            let named = [columns.get("time"), columns.get("end")];
            let mut known: Vec<&str> = named.into_iter().flatten().collect();
            if known.is_empty() {
                known = [names.starts, names.ends].concat();
            }
            return Err(format!(
                "it has no time: none of the fields {}; log one of them, or pass another --format",
                known.join(", ")
            )
            .into());
        };
        let mut time = dated_time(date, text)?;
        time.has_offset |= names.is_utc;
        let end = start.and(end).filter(|_| names.took.is_empty());
        let end = end.and_then(|end| dated_time(date, end).ok());
        let between = end.map(|end| end.time.saturating_since(time.time));
        Ok((time, start.is_none(), between))
    }

    /// Fills in what was asked for.
    fn request(&self, draft: &mut Draft<'f>) -> Result<(), Fault> {
        let NamedLine { fields, columns, names, .. } = *self;
        let line = self.value("request", names.request_line);
        // Of fields with any name, nothing else is likelier.
        let usual = (self.format == Format::Json && line.is_none()).then_some("GET");
        let method = self.value("method", names.method).or(usual);
        let target = self.value("target", names.target);
        // The request line has the target as it came; nginx's `uri` is rewritten.
        match method.zip(target).filter(|_| columns.get("request").is_none()) {
            Some((method, target)) => {
                draft.method = Cow::Borrowed(method);
                draft.target = with_query(target, self.value("query", names.query));
                Ok(())
            }
            None => match line {
                Some(line) => {
                    draft.read_request_line(line)?;
                    if let Some(target) = target.filter(|_| columns.get("target").is_some()) {
                        draft.target = with_query(target, self.value("query", names.query));
                    }
                    Ok(())
                }
                None if names.request_line.iter().any(|name| fields.has(name)) => {
                    draft.read_request_line("-")
                }
                None => Err(self.lacks(method)),
            },
        }
    }

    /// Why it is unknown what was asked for.
    fn lacks(&self, method: Option<&str>) -> Fault {
        let NamedLine { columns, names, .. } = *self;
        let (what, known, names) = match (columns.get("request"), method) {
            (Some(request), _) => ("request line", Some(request), names.request_line),
            (None, None) => ("method", columns.get("method"), names.method),
            (None, Some(_)) => ("path", columns.get("target"), names.target),
        };
        let known = known.map_or_else(|| names.join(", "), str::to_owned);
        format!(
            "it has no {what}: none of the fields {known}; either the connection ended before a \
             request, or the log lacks it: then log one of them"
        )
        .into()
    }
}

/// The client that a field names: of a list of forwarded addresses, the first.
fn client(text: &str) -> &str {
    match text.contains(',') {
        true => first_address(text).unwrap_or(text),
        false => text,
    }
}

/// A text in which blanks are escaped as in URLs, or pluses.
fn with_blanks(text: &str) -> Cow<'_, str> {
    if !text.contains("%20") {
        return if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    }
    let hex = |digits: &str| u8::from_str_radix(digits, 16).ok();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        match behind.split_at_checked(2).and_then(|(digits, left)| Some((hex(digits)?, left))) {
            Some((byte, left)) => {
                bytes.push(byte);
                rest = left;
            }
            None => {
                bytes.push(b'%');
                rest = behind;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned().into()
}
