//! One line a request on standard output: `docs/log.md` describes each field.
//!
//! Workers write lines into buffers of their own and send full ones, or old ones at each tick, down
//! one pipe, which drops lines rather than hold up a request. Tokens, queries and header values are
//! not among the fields, so no secret can get in. There are two exceptions: `User-Agent`, which is
//! left out where a policy reads credentials from it; and, if the settings ask for them, the
//! [`Facts`] that limits count by, of which there are only hashes where one may be a credential.

mod entry;
mod escape;
mod facts;
mod json;
mod text;

use std::{
    cell::{Cell, RefCell},
    io::Write,
    num::NonZeroU32,
    ops::Range,
    rc::Rc,
    time::Duration,
};

use http::StatusCode;
use tollgate_keyword::keywords;

use self::{json::write_json, text::write_text};
use crate::{metrics::Totals, pipe::Pipe};

pub use self::{
    entry::{Decision, DenialCause, Entry, FinalCost, LimitStanding, Mode},
    facts::{FactValue, Facts, MAX_FACT_BYTES},
};

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: fields in a fixed order.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

keywords! { Format { Text = "text", Json = "json" } }

/// Which requests have a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Only {
    /// All of them.
    #[default]
    All,
    /// Those that were denied, or would be if a limit that only counts were enforced.
    Denied,
}

keywords! { Only { All = "all", Denied = "denied" } }

/// The access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// How lines look.
    pub format: Format,
    /// Which requests have one.
    pub only: Only,
    /// Of so many denied requests of a worker, one has a line. None: each has.
    pub denials: Option<NonZeroU32>,
    /// Whether lines have what limits count by.
    pub facts: bool,
}

/// The log: where workers get their buffers from.
#[derive(Clone)]
pub struct AccessLog {
    settings: AccessLogSettings,
    pipe: Pipe,
}

/// A worker's buffer.
pub struct LogBuffer {
    settings: AccessLogSettings,
    pipe: Pipe,
    lines: RefCell<Lines>,
    /// Denied requests since the latest line of one. None: there was no such line yet.
    denials: Cell<Option<u32>>,
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
    pub fn new(settings: AccessLogSettings, pipe: Pipe) -> AccessLog {
        AccessLog { settings, pipe }
    }

    /// How many lines were dropped because the output was read too slowly.
    pub fn dropped(&self) -> u64 {
        self.pipe.dropped()
    }

    /// A buffer for one worker.
    pub fn buffer(&self) -> LogBuffer {
        let pipe = self.pipe.clone();
        LogBuffer {
            settings: self.settings,
            pipe,
            lines: RefCell::default(),
            denials: Cell::default(),
        }
    }
}

impl LogBuffer {
    /// Whether lines have what limits count by.
    pub fn wants_facts(&self) -> bool {
        self.settings.facts
    }

    /// Starts a line: all fields but those that are known when the response has been sent. None:
    /// the settings ask for no line about such a request.
    pub fn begin(&self, entry: &Entry<'_>) -> Option<Line> {
        match self.settings.only {
            Only::Denied if !entry.is_denied() => return None,
            Only::Denied | Only::All => {}
        }
        let denials = match self.settings.denials.filter(|_| entry.denied.is_some()) {
            Some(of) => Some(self.sample(of)?),
            None => None,
        };
        let mut line = match self.settings.format {
            Format::Text => Line { bytes: write_text(entry), awaited: Vec::new() },
            Format::Json => write_json(entry),
        };
        if let Some(denials) = denials {
            self.settings.format.add(&mut line.bytes, "denials", denials.into());
        }
        Some(line)
    }

    /// For how many denied requests the line of this one stands: itself, and those without a line
    /// since the latest. None: it gets no line.
    ///
    /// Lines are counted rather than drawn by lot, so that the numbers add up, and the first
    /// denial has its line at once.
    fn sample(&self, of: NonZeroU32) -> Option<u32> {
        let denials = self.denials.get().map_or(of.get(), |denials| denials + 1);
        let has_line = denials >= of.get();
        let stands_for = self.denials.get().map_or(1, |_| denials);
        self.denials.set(Some(if has_line { 0 } else { denials }));
        has_line.then_some(stands_for)
    }

    /// Adds a line that has ended.
    fn add(&self, mut line: Vec<u8>) {
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

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A line that has begun.
pub struct Line {
    bytes: Vec<u8>,
    /// Where costs stand that may still change, in the order of the line.
    awaited: Vec<AwaitedPlace>,
}

/// Where a line has a cost that may still change.
struct AwaitedPlace {
    /// The position of the charge among those of the request.
    position: usize,
    digits: Range<usize>,
}

/// A line that ends when its response does.
pub struct Tail {
    log: Rc<LogBuffer>,
    line: Line,
    has_grpc_status: bool,
}

impl Tail {
    /// A line that was begun.
    pub fn new(log: Rc<LogBuffer>, line: Line) -> Self {
        Tail { log, line, has_grpc_status: false }
    }

    /// Adds the status of a gRPC call, from the head or the trailers of its response; of two, the
    /// first, since a field that is there twice is ambiguous. A refusal `stands_for` the HTTP
    /// status that any other client would have got.
    pub fn add_grpc_status(&mut self, status: u64, stands_for: Option<StatusCode>) {
        if !std::mem::replace(&mut self.has_grpc_status, true) {
            self.add("grpc_status", status);
            if let Some(status) = stands_for {
                self.add("stands_for", status.as_u16().into());
            }
        }
    }

    /// Adds the bytes that went up and down a tunnel.
    pub fn add_tunnel(&mut self, up: u64, down: u64) {
        self.add("up", up);
        self.add("down", down);
    }

    /// Has it say what the request has cost, now that its response has told.
    pub fn settle(&mut self, costs: &[FinalCost]) {
        let Line { bytes, awaited } = &mut self.line;
        if let (Format::Text, Some(FinalCost { units, reserved, source, .. })) =
            (self.log.settings.format, costs.first())
        {
            let _ = write!(bytes, " cost={units} reserved={reserved} cost_source={source}");
        }
        // From the last one on, so that the places of the others stay.
        for AwaitedPlace { position, digits } in std::mem::take(awaited).into_iter().rev() {
            let told = costs.iter().find(|cost| cost.position == position);
            if let Some(FinalCost { units, reserved, source, .. }) = told {
                let told = format!("{units},\"reserved\":{reserved},\"cost_source\":\"{source}\"");
                bytes.splice(digits, told.into_bytes());
            }
        }
    }

    /// The response ended, or was broken off (`is_complete` is false).
    pub fn end(mut self, totals: Totals, is_complete: bool) {
        match self.log.settings.format {
            Format::Text => text::end(&mut self.line.bytes, totals, is_complete),
            Format::Json => json::end(&mut self.line.bytes, totals, is_complete),
        }
        self.log.add(self.line.bytes);
    }

    fn add(&mut self, name: &str, number: u64) {
        self.log.settings.format.add(&mut self.line.bytes, name, number);
    }
}

impl Format {
    /// Adds a field to a line that has not ended.
    fn add(self, line: &mut Vec<u8>, name: &str, number: u64) {
        // Writing to memory does not fail.
        let _ = match self {
            Format::Text => write!(line, " {name}={number}"),
            Format::Json => write!(line, ",\"{name}\":{number}"),
        };
    }
}

/// Milliseconds with three decimals.
struct Millis(Duration);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

#[cfg(test)]
mod tests;
