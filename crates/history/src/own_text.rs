//! Our own log as text: `docs/log.md` describes the fields.

use std::borrow::Cow;

use serde_json::{Map, Value};
use tollgate_usage::logged::{LoggedCost, LoggedUse};

use super::{
    OwnFields,
    draft::{Draft, Fault, Line, known, status, time_of},
    duration::millis,
    escapes::unescape,
    instant,
    own_json::{is_told_by_body, skipped},
    value_cache::ValueCache,
};

const SHAPE: &str = "it does not have the form of a text line of tollgate: `time id client caller \
                     tier method path route=… status …`; a line of another program, or cut off";

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    line: &str,
    wanted: &[String],
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let mut words = Words { rest: line };
    let mut word = || words.next().ok_or(SHAPE);
    let (time, _id, client, caller, tier) = (word()?, word()?, word()?, word()?, word()?);
    let (method, path, route, answer) = (word()?, word()?, word()?, word()?);
    if !route.starts_with("route=") || answer.len() != 3 {
        return Err(SHAPE.into());
    }
    let mut own = OwnFields {
        caller: known(caller).map(|caller| repeated.text(&unescape(caller))),
        tier: known(tier).map(|tier| repeated.text(&unescape(tier))),
        stands_for: 1,
        ..OwnFields::default()
    };
    let (mut took, mut used, mut cost, mut reserved) = (None, LoggedUse::default(), None, None);
    // What is not written is none.
    (used.request_bytes, used.response_bytes) = (Some(0), Some(0));
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "asked_by" => own.asked_by = Some(value.into()),
            "denied" => own.denied = Some(value.into()),
            "denials" => own.stands_for = value.parse().unwrap_or(1).max(1),
            "facts" => own.facts = facts(value)?,
            "total" => took = millis(value),
            "in" => used.request_bytes = value.parse().ok(),
            "out" => used.response_bytes = value.parse().ok(),
            "cost" => cost = value.parse().ok(),
            "reserved" => reserved = value.parse().ok(),
            "cost_source" if is_told_by_body(value) => {
                let told = |units| LoggedCost { limit: None, units: Some(units), reserved };
                used.costs = cost.map(told).into_iter().collect();
            }
            _ => {}
        }
    }
    if let Some(reason) = skipped(own.asked_by.as_ref(), [method, path]) {
        return Ok(Line::Skipped(reason));
    }
    let fields = wanted.iter().map(|name| match name.as_str() {
        "caller" => own.caller.as_deref().map(Box::from),
        "tier" => own.tier.as_deref().map(Box::from),
        "client" => known(client).map(Box::from),
        name => named(line, name).map(|value| unescape(value).into()),
    });
    Draft {
        written: Some(time_of(instant::iso(time), time)?),
        client: Some(client),
        method: Cow::Borrowed(method),
        target: unescape(path),
        status: status(answer),
        took,
        used,
        fields: fields.collect(),
        own: Some(own),
        ..Draft::default()
    }
    .finish(repeated)
}

fn facts(text: &str) -> Result<Option<Map<String, Value>>, Fault> {
    serde_json::from_str(text)
        .map_err(|_| Fault::from("its facts are no JSON: the line was cut off or changed"))
}

/// The value of a field that has a name.
fn named<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    Words { rest: line }.skip(7).find_map(|word| {
        let value = word.strip_prefix(name)?.strip_prefix('=')?;
        known(value.trim_matches('"'))
    })
}

/// The words of a line. A space between quotes ends no word; facts, which have quotes, have no
/// space.
struct Words<'l> {
    rest: &'l str,
}

impl<'l> Iterator for Words<'l> {
    type Item = &'l str;

    fn next(&mut self) -> Option<&'l str> {
        if self.rest.is_empty() {
            return None;
        }
        let mut is_quoted = false;
        let mut is_escaped = false;
        let end = self.rest.bytes().position(|byte| {
            match byte {
                b'"' if !is_escaped => is_quoted = !is_quoted,
                b' ' if !is_quoted => return true,
                _ => {}
            }
            is_escaped = byte == b'\\' && !is_escaped;
            false
        });
        let (word, rest) = self.rest.split_at_checked(end.unwrap_or(self.rest.len()))?;
        self.rest = rest.strip_prefix(' ').unwrap_or(rest);
        Some(word)
    }
}
