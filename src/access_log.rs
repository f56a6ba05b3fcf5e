//! One line a request on standard output: `docs/log.md` describes each field.
//!
//! Workers write lines into buffers of their own and send full ones, or old ones at each tick, down
//! one pipe, which drops lines rather than hold up a request. Tokens, queries and header values but
//! one are not among the fields, so no secret can get in; the one is `User-Agent`, which is left
//! out where a policy reads credentials from it.

mod entry;
mod escape;
mod json;
mod text;

use std::{
    cell::{Cell, RefCell},
    io::Write,
    rc::Rc,
    time::{Duration, Instant},
};

use http::StatusCode;

use self::{json::write_json, text::write_text};
use crate::pipe::Pipe;

pub use self::entry::{Decision, Denied, Entry, LimitStanding, Mode};

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: fields in a fixed order.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Which requests have a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Only {
    /// All of them.
    #[default]
    All,
    /// Those that were denied, or would be if a limit that only counts were enforced.
    Denied,
}

/// The access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// How lines look.
    pub format: Format,
    /// Which requests have one.
    pub only: Only,
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

    /// A buffer for one worker.
    pub fn buffer(&self) -> LogBuffer {
        let pipe = self.pipe.clone();
        LogBuffer { settings: self.settings, pipe, lines: RefCell::default() }
    }
}

impl LogBuffer {
    /// Starts a line: all fields but those that are known when the response has been sent. None:
    /// the settings ask for no line about such a request.
    pub fn begin(&self, entry: &Entry<'_>) -> Option<Vec<u8>> {
        match self.settings.only {
            Only::Denied if !entry.is_denied() => return None,
            Only::Denied | Only::All => {}
        }
        Some(match self.settings.format {
            Format::Text => write_text(entry),
            Format::Json => write_json(entry),
        })
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

/// A line that ends when its response does.
pub struct Tail {
    log: Rc<LogBuffer>,
    line: Vec<u8>,
    started: Instant,
    /// Bytes of the request's body so far. None: the request has no body that is read.
    received: Option<Rc<Cell<u64>>>,
    /// Bytes of the response's body so far.
    sent: u64,
    has_grpc_status: bool,
}

impl Tail {
    /// A line that was begun, of a request that came at `started`, with the count of what is read
    /// of its body.
    pub fn new(
        log: Rc<LogBuffer>,
        line: Vec<u8>,
        started: Instant,
        received: Option<Rc<Cell<u64>>>,
    ) -> Self {
        Tail { log, line, started, received, sent: 0, has_grpc_status: false }
    }

    /// Adds the status of a gRPC call, from the head or the trailers of its response; of two, the
    /// first, since a field that is there twice is ambiguous. A refusal `stands_for` the HTTP status that
    /// any other client would have got.
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

    /// Counts bytes of the response's body.
    pub fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Takes back the count of bytes that were not sent after all.
    pub fn discount(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_sub(bytes as u64);
    }

    /// The response ended, or was broken off.
    pub fn end(mut self, is_complete: bool) {
        let received = self.received.as_ref().map_or(0, |received| received.get());
        let total = self.started.elapsed();
        let ending = Ending { received, sent: self.sent, total, is_complete };
        match self.log.settings.format {
            Format::Text => text::end(&mut self.line, &ending),
            Format::Json => json::end(&mut self.line, &ending),
        }
        self.log.add(self.line);
    }

    fn add(&mut self, name: &str, number: u64) {
        // Writing to memory does not fail.
        let _ = match self.log.settings.format {
            Format::Text => write!(self.line, " {name}={number}"),
            Format::Json => write!(self.line, ",\"{name}\":{number}"),
        };
    }
}

/// What is known when the response has ended.
struct Ending {
    /// Bytes of the request's body.
    received: u64,
    /// Bytes of the response's body.
    sent: u64,
    total: Duration,
    /// The response was not broken off.
    is_complete: bool,
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
