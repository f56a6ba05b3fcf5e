//! One line a request on standard output.
//!
//! Workers write lines into buffers of their own and send full ones, or old ones at each tick, down
//! one pipe, which drops lines rather than hold up a request. Tokens, queries and header values are
//! not among the fields, so no secret can get in.

use std::{
    cell::RefCell,
    fmt::{self, Display},
    io::Write,
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{clock::Timestamp, pipe::Pipe};

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people: fields in a fixed order.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// What a line says.
#[derive(Clone)]
pub struct Entry<'e> {
    /// When the request came.
    pub time: Timestamp,
    /// Its `x-request-id`.
    pub request_id: &'e str,
    /// The client's address.
    pub client: &'e dyn Display,
    /// Who called: kind and value.
    pub caller: Option<(&'e str, &'e dyn Display)>,
    /// The caller's tier.
    pub tier: Option<&'e str>,
    /// The request's method.
    pub method: &'e str,
    /// The host it was for.
    pub host: Option<&'e str>,
    /// Its path in normal form, without the query.
    pub path: &'e str,
    /// The route's pattern.
    pub route: Option<&'e str>,
    /// The limit that decided.
    pub limit: Option<Counted<'e>>,
    /// Limits that only count and would have denied it: `core, search;candidate`.
    pub would_deny: Option<&'e str>,
    /// Why it was not forwarded, or what went wrong.
    pub error: Option<&'e dyn Display>,
    /// The response's status.
    pub status: u16,
    /// Until the upstream's response head came.
    pub upstream: Option<Duration>,
}

/// The limit that decided and how much of it is used.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'e> {
    /// Its name.
    pub name: &'e str,
    /// Units used in the window.
    pub used: u32,
    /// Units a window.
    pub limit: u32,
}

/// The log: where workers get their buffers from.
#[derive(Clone)]
pub struct AccessLog {
    format: Format,
    pipe: Pipe,
}

/// A worker's buffer.
pub struct LogBuffer {
    format: Format,
    pipe: Pipe,
    lines: RefCell<Lines>,
}

#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

/// Size at which a buffer is handed over.
const BUFFER_BYTES: usize = 16 * 1024;

impl AccessLog {
    /// A log that goes to `pipe`.
    pub fn new(format: Format, pipe: Pipe) -> AccessLog {
        AccessLog { format, pipe }
    }

    /// A buffer for one worker.
    pub fn buffer(&self) -> LogBuffer {
        let pipe = self.pipe.clone();
        LogBuffer { format: self.format, pipe, lines: RefCell::default() }
    }
}

impl LogBuffer {
    /// Starts a line: all fields but those that are known when the response has been sent.
    pub fn begin(&self, entry: &Entry<'_>) -> Vec<u8> {
        let mut line = Vec::with_capacity(384);
        match self.format {
            Format::Text => write_text(&mut line, entry),
            Format::Json => write_json(&mut line, entry),
        }
        line
    }

    /// Ends a line.
    fn end(&self, mut line: Vec<u8>, total: Duration, is_complete: bool) {
        let millis = Millis(total);
        // Writing to memory does not fail.
        let _ = match self.format {
            Format::Text if is_complete => writeln!(line, " total={millis}ms"),
            Format::Text => writeln!(line, " total={millis}ms aborted"),
            Format::Json if is_complete => writeln!(line, ",\"total_ms\":{millis}}}"),
            Format::Json => writeln!(line, ",\"total_ms\":{millis},\"aborted\":true}}"),
        };
        let mut lines = self.lines.borrow_mut();
        lines.bytes.append(&mut line);
        lines.count += 1;
        if lines.bytes.len() >= BUFFER_BYTES {
            self.hand_over(&mut lines);
        }
    }

    /// Hands over what has gathered.
    pub fn flush(&self) {
        let mut lines = self.lines.borrow_mut();
        if !lines.bytes.is_empty() {
            self.hand_over(&mut lines);
        }
    }

    fn hand_over(&self, lines: &mut Lines) {
        let Lines { bytes, count } = std::mem::take(lines);
        self.pipe.send(bytes, count);
    }
}

/// A line that ends when its response does.
pub struct Tail {
    log: Rc<LogBuffer>,
    line: Vec<u8>,
    started: Instant,
}

impl Tail {
    /// A line that was begun, of a request that came at `started`.
    pub fn new(log: Rc<LogBuffer>, line: Vec<u8>, started: Instant) -> Self {
        Tail { log, line, started }
    }

    /// Adds a number that was not known when the line was begun.
    pub fn add(&mut self, name: &str, number: u64) {
        // Writing to memory does not fail.
        let _ = match self.log.format {
            Format::Text => write!(self.line, " {name}={number}"),
            Format::Json => write!(self.line, ",\"{name}\":{number}"),
        };
    }

    /// The response ended, or was broken off.
    pub fn end(self, is_complete: bool) {
        self.log.end(self.line, self.started.elapsed(), is_complete);
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}

/// `2026-11-21T08:41:00.123Z 4f… 127.0.0.1 user:42 free GET /repos/o/r route=/** 200 core=1/5000
/// upstream=1.204ms total=1.377ms`, with `-` for what is not known.
fn write_text(line: &mut Vec<u8>, entry: &Entry<'_>) {
    let or_dash = |text: Option<&str>| Plain(text.unwrap_or("-")).to_string();
    let caller = entry
        .caller
        .map_or("-".into(), |(kind, value)| format!("{kind}:{}", Plain(&value.to_string())));
    let _ = write!(
        line,
        "{} {} {} {caller} {} {} {} route={} {}",
        entry.time,
        Plain(entry.request_id),
        entry.client,
        or_dash(entry.tier),
        Plain(entry.method),
        Plain(entry.path),
        or_dash(entry.route),
        entry.status,
    );
    if let Some(Counted { name, used, limit }) = entry.limit {
        let _ = write!(line, " {name}={used}/{limit}");
    }
    if let Some(limits) = entry.would_deny {
        let _ = write!(line, " would_deny={limits:?}");
    }
    if let Some(upstream) = entry.upstream {
        let _ = write!(line, " upstream={}ms", Millis(upstream));
    }
    if let Some(error) = entry.error {
        let _ = write!(line, " error={:?}", error.to_string());
    }
}

/// All fields but the last, and no closing brace.
fn write_json(line: &mut Vec<u8>, entry: &Entry<'_>) {
    let caller = entry.caller.map(|(kind, value)| format!("{kind}:{value}"));
    let _ = write!(line, "{{\"time\":\"{}\"", entry.time);
    let texts = [
        ("request_id", Some(entry.request_id)),
        ("client", Some(entry.client.to_string().as_str())),
        ("caller", caller.as_deref()),
        ("tier", entry.tier),
        ("method", Some(entry.method)),
        ("host", entry.host),
        ("path", Some(entry.path)),
        ("route", entry.route),
        ("would_deny", entry.would_deny),
        ("error", entry.error.map(ToString::to_string).as_deref()),
    ]
    .map(|(name, value)| (name, value.map(str::to_owned)));
    for (name, value) in texts {
        let _ = write!(line, ",\"{name}\":");
        let _ = serde_json::to_writer(&mut *line, &value);
    }
    let _ = write!(line, ",\"status\":{}", entry.status);
    let _ = match entry.limit {
        Some(Counted { name, used, limit }) => {
            write!(line, ",\"limit\":\"{name}\",\"used\":{used},\"of\":{limit}")
        }
        None => write!(line, ",\"limit\":null"),
    };
    let _ = match entry.upstream {
        Some(upstream) => write!(line, ",\"upstream_ms\":{}", Millis(upstream)),
        None => write!(line, ",\"upstream_ms\":null"),
    };
}

/// Milliseconds with three decimals.
struct Millis(Duration);

impl Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

/// Text that cannot break its line or its field: what is not printable, and spaces, are escaped.
struct Plain<'t>(&'t str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                ' ' => f.write_str("\\x20")?,
                '\\' => f.write_str("\\\\")?,
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Sink(mpsc::Sender<Vec<u8>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, entry: &Entry<'_>) -> String {
        let (sender, receiver) = mpsc::channel();
        let pipe = Pipe::start(Sink(sender), |_| {});
        let log = AccessLog::new(format, pipe.clone());
        let buffer = log.buffer();
        let line = buffer.begin(entry);
        buffer.end(line, Duration::from_micros(1377), true);
        buffer.flush();
        assert!(pipe.flush(Duration::from_secs(10)));
        drop((buffer, log, pipe));
        String::from_utf8(receiver.into_iter().flatten().collect()).unwrap()
    }

    fn entry<'e>(value: &'e dyn Display) -> Entry<'e> {
        Entry {
            time: Timestamp::from_secs(0),
            request_id: "id",
            client: &"127.0.0.1",
            caller: Some(("user", value)),
            tier: Some("free"),
            method: "GET",
            host: Some("api.example.com"),
            path: "/a",
            route: Some("/**"),
            limit: Some(Counted { name: "core", used: 1, limit: 5000 }),
            would_deny: None,
            error: None,
            status: 200,
            upstream: Some(Duration::from_micros(1204)),
        }
    }

    #[test]
    fn text_lines_read_from_left_to_right() {
        assert_eq!(
            logged(Format::Text, &entry(&42)),
            "1970-01-01T00:00:00.000Z id 127.0.0.1 user:42 free GET /a route=/** 200 core=1/5000 \
             upstream=1.204ms total=1.377ms\n"
        );
    }

    #[test]
    fn json_lines_are_json() {
        let line = logged(Format::Json, &entry(&"a\"b\n"));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["caller"], "user:a\"b\n");
        assert_eq!(value["total_ms"], 1.377);
        assert_eq!((&value["used"], &value["of"]), (&1.into(), &5000.into()));
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn caller_cannot_forge_a_line_or_a_field() {
        let line = logged(Format::Text, &entry(&"x\n1970 y"));
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("user:x\\n1970\\x20y "), "{line}");
    }
}
