//! A span on its way to the exporter.

use std::borrow::Cow;

use http::HeaderValue;

use super::{SpanId, TraceId};

/// A span that has ended.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// None: it is the first of its trace.
    pub(super) parent: Option<SpanId>,
    /// Whether the parent is a span of another process.
    pub(super) has_remote_parent: bool,
    /// The trace's `tracestate`.
    pub(super) state: Option<HeaderValue>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: Kind,
    /// In nanoseconds since the epoch.
    pub(super) start: u64,
    /// In nanoseconds since the epoch.
    pub(super) end: u64,
    pub(super) attributes: Vec<Attribute>,
    /// Whether it has failed; otherwise its status is not set.
    pub(super) is_error: bool,
}

/// Whose end of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Client,
}

/// A name, of OpenTelemetry's semantic conventions where they have one, and its value.
pub(super) type Attribute = (&'static str, Value);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(Cow<'static, str>),
    Number(i64),
}

/// Of a text that clients choose, the rest is cut off.
const MAX_TEXT: usize = 1024;

impl Value {
    /// A text that may have any length.
    pub(super) fn text(text: &str) -> Value {
        let end = text.floor_char_boundary(MAX_TEXT);
        Value::Text(text.get(..end).unwrap_or_default().to_owned().into())
    }

    pub(super) fn number(number: impl Into<i64>) -> Value {
        Value::Number(number.into())
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Value::Text(text.into())
    }
}
