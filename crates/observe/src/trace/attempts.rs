//! Attempts of a recorded request at its upstream: a client span for each.

use std::{cell::RefCell, rc::Rc, time::Instant};

use super::{
    IdSource, Parent, SpanId, TraceId,
    span::{Attribute, Kind, Span, Value},
    start_time::StartTime,
};

/// The attempts of a recorded request at its upstream, as they are made.
pub struct Attempts {
    trace_id: TraceId,
    /// The span of the first one, which the head of the request names already.
    first: SpanId,
    method: &'static str,
    ids: Rc<IdSource>,
    made: RefCell<Vec<Attempt>>,
}

/// The number of an attempt of its request.
#[derive(Clone, Copy, Debug)]
pub struct AttemptNumber(usize);

impl AttemptNumber {
    /// Whether there was none before it.
    pub fn is_first(self) -> bool {
        self.0 == 0
    }
}

struct Attempt {
    span_id: SpanId,
    host: Box<str>,
    port: u16,
    begun: Instant,
    /// None: it is not over.
    ended: Option<Instant>,
    /// The status, or a word for what went wrong.
    result: Result<u16, &'static str>,
}

/// The word for an attempt that nobody waits for any more.
const CANCELLED: &str = "cancelled";

impl Attempts {
    pub(super) fn new(
        trace_id: TraceId,
        first: SpanId,
        method: &'static str,
        ids: &Rc<IdSource>,
    ) -> Attempts {
        let ids = Rc::clone(ids);
        Attempts { trace_id, first, method, ids, made: RefCell::default() }
    }

    /// Another attempt begins, at this server.
    pub fn begin(&self, host: &str, port: u16) -> AttemptNumber {
        let mut made = self.made.borrow_mut();
        let span_id = if made.is_empty() { self.first } else { self.ids.span_id() };
        let result = Err(CANCELLED);
        let begun = Instant::now();
        made.push(Attempt { span_id, host: host.into(), port, begun, ended: None, result });
        AttemptNumber(made.len() - 1)
    }

    /// The digits by which the head of an attempt's request names its span.
    pub fn span_digits(&self, number: AttemptNumber) -> [u8; 16] {
        let made = self.made.borrow();
        made.get(number.0).map_or(self.first, |attempt| attempt.span_id).to_hex()
    }

    /// An attempt is over: with this status, or with a word for what went wrong.
    pub fn end(&self, number: AttemptNumber, result: Result<u16, &'static str>) {
        if let Some(attempt) = self.made.borrow_mut().get_mut(number.0) {
            attempt.ended = Some(Instant::now());
            attempt.result = result;
        }
    }

    /// The spans of all attempts, of a request that has begun so.
    pub(super) fn spans(&self, parent: Parent, started: StartTime) -> Vec<Span> {
        let made = self.made.take().into_iter().zip(0..);
        made.map(|(attempt, resent)| self.span(&attempt, resent, parent, started)).collect()
    }

    fn span(&self, attempt: &Attempt, resent: i64, parent: Parent, started: StartTime) -> Span {
        let mut attributes: Vec<Attribute> = vec![
            ("http.request.method", self.method.into()),
            ("server.address", Value::text(&attempt.host)),
            ("server.port", Value::number(attempt.port)),
        ];
        if resent > 0 {
            attributes.push(("http.request.resend_count", Value::Number(resent)));
        }
        let is_error = match attempt.result {
            Ok(status) => {
                attributes.push(("http.response.status_code", Value::number(status)));
                if status >= 400 {
                    attributes.push(("error.type", Value::Text(status.to_string().into())));
                }
                status >= 400
            }
            Err(error) => {
                attributes.push(("error.type", error.into()));
                true
            }
        };
        Span {
            trace_id: self.trace_id,
            span_id: attempt.span_id,
            parent: Some(parent.span_id),
            has_remote_parent: false,
            state: None,
            name: if self.method == "_OTHER" { "HTTP".into() } else { self.method.into() },
            kind: Kind::Client,
            start: started.nanos(attempt.begun),
            end: started.nanos(attempt.ended.unwrap_or_else(Instant::now)),
            attributes,
            is_error,
        }
    }
}
