//! Our own log as JSON: `docs/log.md` describes the fields.

use std::{borrow::Cow, sync::LazyLock, time::Duration};

use memchr::memmem::Finder;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tollgate_usage::logged::{LoggedCost, LoggedUse};

use super::{
    OwnFields,
    draft::{Draft, Fault, Line, NO_HEAD, known, time_of},
    fields::{Fields, Text, fault},
    instant,
    value_cache::ValueCache,
};

/// The fields of a line that matter here.
#[derive(Debug, PartialEq, Deserialize)]
struct OwnLine<'l> {
    #[serde(borrow)]
    time: Cow<'l, str>,
    /// It is asked for so that no other log is taken for ours.
    #[serde(borrow)]
    request_id: Cow<'l, str>,
    #[serde(borrow)]
    client: Cow<'l, str>,
    caller: Option<Text<'l>>,
    tier: Option<Text<'l>>,
    #[serde(borrow)]
    method: Cow<'l, str>,
    host: Option<Text<'l>>,
    #[serde(borrow)]
    path: Cow<'l, str>,
    status: u16,
    asked_by: Option<Text<'l>>,
    denied: Option<Text<'l>>,
    user_agent: Option<Text<'l>>,
    facts: Option<Map<String, Value>>,
    denials: Option<u32>,
    total_ms: Option<f64>,
    /// What limits were charged, and what the body of the response told.
    #[serde(default, rename = "limits", deserialize_with = "costs")]
    costs: Vec<LoggedCost>,
    request_bytes: Option<u64>,
    response_bytes: Option<u64>,
}

/// What a limit was charged.
#[derive(Deserialize)]
struct OwnLimit<'l> {
    #[serde(borrow)]
    name: Cow<'l, str>,
    cost: u64,
    reserved: Option<u64>,
    #[serde(borrow)]
    cost_source: Option<Cow<'l, str>>,
}

fn costs<'l, D: Deserializer<'l>>(deserializer: D) -> Result<Vec<LoggedCost>, D::Error> {
    let limits = Option::<Vec<OwnLimit<'l>>>::deserialize(deserializer)?.unwrap_or_default();
    // Most lines have none, and are read without a parser.
    if limits.iter().all(|own| own.reserved.is_none()) {
        return Ok(Vec::new());
    }
    let costs = limits.into_iter().map(|own| LoggedCost {
        limit: Some(own.name.into()),
        units: own.cost_source.filter(|source| is_told_by_body(source)).map(|_| own.cost),
        reserved: own.reserved.or(Some(own.cost)),
    });
    Ok(costs.collect())
}

/// Whether a `cost_source` is what the body of the response says: bytes and time are in fields of
/// their own, and a reserve that has stayed says nothing.
pub(super) fn is_told_by_body(source: &str) -> bool {
    !matches!(source, "reserve" | "response_bytes" | "request_bytes" | "upstream_time")
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    line: &str,
    wanted: &[String],
    repeated: &mut ValueCache,
) -> Result<Line, Fault> {
    let own = match as_written(line) {
        Some(own) => own,
        None => serde_json::from_str(line).map_err(|error| fault(line, &error))?,
    };
    if let Some(reason) =
        skipped(own.asked_by.as_ref().map(|Text(asker)| asker), [&own.method, &own.path])
    {
        return Ok(Line::Skipped(reason));
    }
    let mut draft = Draft {
        written: Some(time_of(instant::iso(&own.time), &own.time)?),
        client: Some(&own.client),
        method: own.method,
        host: own.host.map(|Text(host)| host),
        target: own.path,
        status: Some(own.status),
        user_agent: own.user_agent.map(|Text(agent)| agent),
        own: Some(OwnFields {
            caller: own.caller.map(|Text(caller)| repeated.text(&caller)),
            tier: own.tier.map(|Text(tier)| repeated.text(&tier)),
            facts: own.facts,
            denied: boxed(own.denied),
            asked_by: boxed(own.asked_by),
            stands_for: own.denials.unwrap_or(1).max(1),
        }),
        used: LoggedUse {
            costs: own.costs,
            request_bytes: own.request_bytes,
            response_bytes: own.response_bytes,
            took: None,
        },
        took: own.total_ms.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok()),
        ..Draft::default()
    };
    if !wanted.is_empty() {
        draft.fields = Fields::read(line)?.wanted(wanted);
    }
    draft.finish(repeated)
}

/// Reads a line whose fields are in the order in which we write them, without a JSON parser: that
/// is three times as fast. None: it is not so, perhaps because a value has escapes.
fn as_written(line: &str) -> Option<OwnLine<'_>> {
    let mut scan = Scan { rest: line };
    let time = scan.literal("{\"time\":")?.text()?;
    let request_id = scan.literal(",\"request_id\":")?.text()?;
    if scan.literal(",\"trace_id\":").is_some() {
        scan.text()?;
    }
    let client = scan.literal(",\"client\":")?.text()?;
    let caller = scan.literal(",\"caller\":")?.text_or_null()?;
    let tier = scan.literal(",\"tier\":")?.text_or_null()?;
    let method = scan.literal(",\"method\":")?.text()?;
    let host = scan.literal(",\"host\":")?.text_or_null()?;
    let path = scan.literal(",\"path\":")?.text()?;
    scan.literal(",\"route\":")?.text_or_null()?;
    let status = scan.literal(",\"status\":")?.word().parse().ok()?;
    scan.literal(",\"exempt\":")?.word();
    let asked_by = match scan.literal(",\"asked_by\":") {
        Some(scan) => Some(scan.text()?),
        None => None,
    };
    scan.literal(",\"decided_by\":")?.text_or_null()?;
    let denied = scan.literal(",\"denied\":")?.text_or_null()?;
    for name in [",\"denied_by\":", ",\"would_deny\":", ",\"error\":"] {
        scan.literal(name)?.text_or_null()?;
    }
    // Limits and their numbers: names of limits are the only texts there, and need no escapes.
    let limits = scan.literal(",\"limit\":")?.skip_to(&USER_AGENT)?;
    if RESERVED.find(limits.as_bytes()).is_some() {
        return None;
    }
    let user_agent = scan.text_or_null()?;
    let facts = match scan.literal(",\"facts\":") {
        Some(scan) => Some(scan.object()?),
        None => None,
    };
    let (mut denials, mut total_ms) = (None, None);
    let (mut request_bytes, mut response_bytes) = (None, None);
    while scan.rest != "}" {
        let name = scan.literal(",")?.text()?;
        match (name, scan.literal(":")?.word()) {
            ("denials", number) => denials = Some(number.parse().ok()?),
            ("request_bytes", number) => request_bytes = Some(number.parse().ok()?),
            ("response_bytes", number) => response_bytes = Some(number.parse().ok()?),
            ("total_ms", number) => total_ms = Some(number.parse().ok()?),
            (_, word) if word.starts_with(['"', '{', '[']) => return None,
            _ => {}
        }
    }
    Some(OwnLine {
        time: time.into(),
        request_id: request_id.into(),
        client: client.into(),
        caller: caller.map(borrowed),
        tier: tier.map(borrowed),
        method: method.into(),
        host: host.map(borrowed),
        path: path.into(),
        status,
        asked_by: asked_by.map(borrowed),
        denied: denied.map(borrowed),
        user_agent: user_agent.map(borrowed),
        facts,
        denials,
        total_ms,
        costs: Vec::new(),
        request_bytes,
        response_bytes,
    })
}

fn borrowed(text: &str) -> Text<'_> {
    Text(Cow::Borrowed(text))
}

/// What is behind the list of limits.
static USER_AGENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("],\"user_agent\":"));

/// What stands with a cost that the response told: such lines are rarer, and left to the parser.
static RESERVED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"reserved\":"));

/// A line that is read from the front.
struct Scan<'l> {
    rest: &'l str,
}

impl<'l> Scan<'l> {
    fn literal(&mut self, expected: &str) -> Option<&mut Scan<'l>> {
        self.rest = self.rest.strip_prefix(expected)?;
        Some(self)
    }

    /// A text without escapes.
    fn text(&mut self) -> Option<&'l str> {
        let rest = self.rest.strip_prefix('"')?;
        let end = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
        let (text, rest) = rest.split_at_checked(end)?;
        self.rest = rest.strip_prefix('"')?;
        Some(text)
    }

    fn text_or_null(&mut self) -> Option<Option<&'l str>> {
        if self.literal("null").is_some() {
            return Some(None);
        }
        self.text().map(Some)
    }

    /// A number, or a word such as `null`: what is before a comma or a brace.
    fn word(&mut self) -> &'l str {
        let end = self.rest.bytes().position(|byte| matches!(byte, b',' | b'}'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// What is before this, which is skipped.
    fn skip_to(&mut self, end: &Finder<'_>) -> Option<&'l str> {
        let at = end.find(self.rest.as_bytes())?;
        let (skipped, rest) = self.rest.split_at_checked(at)?;
        self.rest = rest.get(end.needle().len()..)?;
        Some(skipped)
    }

    fn object(&mut self) -> Option<Map<String, Value>> {
        let mut objects = serde_json::Deserializer::from_str(self.rest).into_iter();
        let object = objects.next()?.ok()?;
        self.rest = self.rest.get(objects.byte_offset()..)?;
        Some(object)
    }
}

fn boxed(text: Option<Text<'_>>) -> Option<Box<str>> {
    text.map(|Text(text)| text.into())
}

/// Why a line of ours tells of no request of a client, if it does not.
///
/// A head that could not be read has no path; of its method there is what was read.
pub(super) fn skipped(
    asked_by: Option<impl AsRef<str>>,
    [method, path]: [&str; 2],
) -> Option<&'static str> {
    match asked_by.as_ref().map(AsRef::as_ref) {
        Some("http") => return Some("a charge by a program over HTTP, not a request of a client"),
        Some("redis") => {
            return Some(
                "a charge by a program over the Redis protocol, not a request of a client",
            );
        }
        Some("rls") => return Some("descriptors that Envoy has asked about, not a request"),
        _ => {}
    }
    (known(method).is_none() || known(path).is_none()).then_some(NO_HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"time":"2026-11-21T08:41:00.123Z","request_id":"1f","#;
    const MIDDLE: &str = r#""client":"203.0.113.7","caller":"user:42","tier":null,"method":"POST","host":"api.example.com","path":"/search/code","route":"/search/**","status":429,"exempt":false,"#;
    const LIMITS: &str = r#""decided_by":"memory","denied":"limit","denied_by":"search","would_deny":null,"error":"denied by limit search","limit":"search","used":10,"of":10,"cost":0,"limits":[{"name":"search","mode":"enforce","window_seconds":60,"limit":10,"used":10,"remaining":0,"reset":1795250520,"cost":0,"decision":"deny","decided_by":"memory"}],"#;
    const NO_LIMITS: &str = r#""decided_by":null,"denied":null,"denied_by":null,"would_deny":null,"error":null,"limit":null,"used":null,"of":null,"cost":null,"limits":[],"#;
    const END: &str = r#""request_bytes":0,"response_bytes":112,"total_ms":0.214}"#;

    #[test]
    fn lines_as_they_are_written_are_read_as_the_json_that_they_are() {
        for line in [
            format!(r#"{START}{MIDDLE}{LIMITS}"user_agent":"curl","upstream_ms":null,{END}"#),
            format!(r#"{START}{MIDDLE}{NO_LIMITS}"user_agent":null,"upstream_ms":1.5,{END}"#),
            format!(
                r#"{START}"trace_id":"4bf9",{MIDDLE}"asked_by":"forward",{LIMITS}"user_agent":"[1],","facts":{{"tier":"pro","jwt.org":"a\"}}","l":["x"],"c":{{"hash":"9"}}}},"upstream_ms":null,"denials":10,"grpc_status":8,"stands_for":429,{END}"#
            ),
            format!(
                r#"{START}{MIDDLE}{NO_LIMITS}"user_agent":"x","upstream_ms":2,"up":5,"down":6,"request_bytes":0,"response_bytes":112,"total_ms":0.214,"aborted":true}}"#
            ),
        ] {
            let expected: OwnLine<'_> = serde_json::from_str(&line).unwrap();
            assert_eq!(as_written(&line), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_are_left_to_the_parser() {
        let line = format!(r#"{START}{MIDDLE}{LIMITS}"user_agent":"c","upstream_ms":null,{END}"#);
        assert!(as_written(&line).is_some());
        for (from, to) in [
            ("user:42", r"user:\u00e4"),
            (r#""client""#, r#" "client""#),
            ("0.214}", "0.214} "),
            ("0.214}", "0.214"),
            ("0.214}", r#"0.214,"new":"text"}"#),
            (r#""user_agent":"c""#, r#""user_agent":"\"],\"user_agent\":c""#),
        ] {
            assert_eq!(as_written(&line.replace(from, to)), None, "{to}");
        }
    }
}
