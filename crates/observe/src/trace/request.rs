//! A request's part in its trace: what it takes over from its sender, what it hands on, and the
//! server span.

use std::{borrow::Cow, cell::RefCell, fmt::Display, net::IpAddr, rc::Rc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::{
    Attempts, IdSource, Parent, SpanId, TraceId, Tracer,
    calls::{self, StoreCalls, recording_calls},
    exporter::SpanSink,
    span::{Attribute, Kind, Span, Value},
    start_time::{StartTime, nanos},
    tracestate::{TRACESTATE, tracestate},
};
use crate::metrics::MethodLabel;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What a trace needs of a request's head.
pub struct RequestHead<'r> {
    /// The method.
    pub method: &'r Method,
    /// The target.
    pub uri: &'r Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The fields, as they came.
    pub headers: &'r HeaderMap,
    /// Whether it came by TLS.
    pub is_tls: bool,
    /// Whether a trusted proxy has sent it.
    pub is_from_trusted: bool,
    /// When it came.
    pub started: StartTime,
}

/// A request's part in its trace.
pub struct RequestTrace<'t> {
    tracer: &'t Tracer,
    /// The trace, the server span in it, and whether the trace is recorded.
    own: Parent,
    /// The span of the sender.
    sender: Option<SpanId>,
    state: Option<HeaderValue>,
    /// The span of the first attempt at the upstream.
    attempt: SpanId,
    started: StartTime,
    ids: Rc<IdSource>,
    /// None: the trace will not be recorded.
    line: Option<RequestLine>,
    /// None: the trace is not sampled.
    attempts: Option<Rc<Attempts>>,
    calls: RefCell<StoreCalls>,
}

/// What the server span says of the request's head. Nothing in it is copied.
struct RequestLine {
    method: Method,
    uri: Uri,
    version: Version,
    is_tls: bool,
}

/// What became of a request.
pub struct RequestOutcome<'r> {
    /// The path pattern of its route.
    pub route: Option<&'r str>,
    /// The status that the client gets.
    pub status: u16,
    /// Whether a limit has denied it.
    pub is_denied: bool,
    /// The limit that the client sees in headers.
    pub limit: Option<LimitOutcome<'r>>,
    /// The caller's whole name.
    pub caller: Option<&'r dyn Display>,
    /// The client's address.
    pub client: IpAddr,
}

/// What a limit says of a request.
pub struct LimitOutcome<'r> {
    /// Its name.
    pub name: &'r str,
    /// `allow`, `deny` or `would_deny`.
    pub decision: &'static str,
    /// Units used, with this request's.
    pub used: u32,
    /// Units that can be used.
    pub max: u32,
    /// Who has decided: `memory`, `redis`, `memo` for a denial of Redis that is remembered, or
    /// `local` in place of Redis.
    pub store: &'static str,
}

/// The spans of a request whose response is on its way.
pub struct EndingTrace {
    server: Span,
    children: Vec<Span>,
    sink: SpanSink,
}

impl<'t> RequestTrace<'t> {
    /// The part of a request that has just come.
    pub fn begin(
        tracer: &'t Tracer,
        ids: &Rc<IdSource>,
        head: &RequestHead<'_>,
    ) -> RequestTrace<'t> {
        let settings = &tracer.settings;
        let is_believed = settings.trust_parent.trusts(head.is_from_trusted);
        let parent = if is_believed { parent_of(head.headers) } else { None };
        let trace_id = parent.map_or_else(|| ids.trace_id(), |parent| parent.trace_id);
        let is_sampled = settings.sampling.samples(trace_id, parent);
        let attempt = ids.span_id();
        let attempts = is_sampled.then(|| {
            let method = MethodLabel::of(head.method).name();
            Rc::new(Attempts::new(trace_id, attempt, method, ids))
        });
        RequestTrace {
            tracer,
            own: Parent { trace_id, span_id: ids.span_id(), is_sampled },
            sender: parent.map(|parent| parent.span_id),
            state: parent.and_then(|_| tracestate(head.headers)),
            attempt,
            started: head.started,
            ids: Rc::clone(ids),
            line: (is_sampled || settings.denials).then(|| RequestLine {
                method: head.method.clone(),
                uri: head.uri.clone(),
                version: head.version,
                is_tls: head.is_tls,
            }),
            attempts,
            calls: RefCell::default(),
        }
    }

    /// The trace that the request is part of.
    pub fn id(&self) -> TraceId {
        self.own.trace_id
    }

    /// Makes the request to the upstream a part of the trace, in place of what its client says.
    pub fn write(&self, headers: &mut HeaderMap) {
        let attempt = Parent { span_id: self.attempt, ..self.own };
        headers.insert(&TRACEPARENT, attempt.to_value());
        match &self.state {
            Some(state) => drop(headers.insert(&TRACESTATE, state.clone())),
            None => drop(headers.remove(&TRACESTATE)),
        }
    }

    /// Where attempts at the upstream are recorded, if they are.
    pub fn attempts(&self) -> Option<Rc<Attempts>> {
        self.attempts.clone()
    }

    /// Whether calls that the request waits for may be exported.
    pub fn may_record(&self) -> bool {
        self.line.is_some()
    }

    /// Does a part of the request's work, and records the calls of servers that it waits for.
    pub async fn recording<W: Future>(&self, work: W) -> W::Output {
        let (output, calls) = recording_calls(work).await;
        self.calls.replace(calls);
        output
    }

    /// Its spans, if they are to be exported. The response may still be on its way.
    pub fn end(&self, outcome: &RequestOutcome<'_>) -> Option<Box<EndingTrace>> {
        let settings = &self.tracer.settings;
        let is_recorded = self.own.is_sampled || settings.denials && outcome.is_denied;
        let line = self.line.as_ref().filter(|_| is_recorded)?;
        let mut attributes = line.attributes(outcome);
        if settings.caller {
            attributes.push(("client.address", Value::text(&outcome.client.to_string())));
            if let Some(caller) = outcome.caller {
                attributes.push(("tollgate.caller", Value::text(&caller.to_string())));
            }
        }
        let server = Span {
            trace_id: self.own.trace_id,
            span_id: self.own.span_id,
            parent: self.sender,
            has_remote_parent: self.sender.is_some(),
            state: self.state.clone(),
            name: line.name(outcome.route),
            kind: Kind::Server,
            start: self.started.nanos_after(Duration::ZERO),
            end: 0,
            attributes,
            is_error: outcome.status >= 500,
        };
        let mut children: Vec<Span> =
            calls::spans(self.calls.take(), self.own, self.started, &self.ids).collect();
        if let Some(attempts) = &self.attempts {
            children.append(&mut attempts.spans(self.own, self.started));
        }
        Some(Box::new(EndingTrace { server, children, sink: self.tracer.sink.clone() }))
    }
}

impl RequestLine {
    /// The method and the route, which are few; never the path, which clients choose.
    fn name(&self, route: Option<&str>) -> Cow<'static, str> {
        let method = match MethodLabel::of(&self.method) {
            MethodLabel::OTHER => "HTTP",
            known => known.name(),
        };
        route.map_or(method.into(), |route| format!("{method} {route}").into())
    }

    fn attributes(&self, outcome: &RequestOutcome<'_>) -> Vec<Attribute> {
        let method = MethodLabel::of(&self.method);
        let mut attributes = Vec::with_capacity(16);
        attributes.push(("http.request.method", method.name().into()));
        if method == MethodLabel::OTHER {
            attributes.push(("http.request.method_original", Value::text(self.method.as_str())));
        }
        if let Some(route) = outcome.route {
            attributes.push(("http.route", Value::text(route)));
        }
        attributes.push(("url.scheme", if self.is_tls { "https" } else { "http" }.into()));
        attributes.push(("url.path", Value::text(self.uri.path())));
        let version = match self.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        attributes.push(("network.protocol.version", version.into()));
        attributes.push(("http.response.status_code", Value::number(outcome.status)));
        if outcome.status >= 500 {
            attributes.push(("error.type", Value::Text(outcome.status.to_string().into())));
        }
        if let Some(limit) = &outcome.limit {
            attributes.extend([
                ("tollgate.limit.name", Value::text(limit.name)),
                ("tollgate.limit.decision", limit.decision.into()),
                ("tollgate.limit.used", Value::number(limit.used)),
                ("tollgate.limit.max", Value::number(limit.max)),
                ("tollgate.store", limit.store.into()),
            ]);
        }
        attributes
    }
}

impl EndingTrace {
    /// The response has ended, this long after the request came.
    pub fn end(mut self: Box<Self>, time: Duration) {
        self.server.end = self.server.start.saturating_add(nanos(time));
        for span in self.children {
            self.sink.send(span);
        }
        self.sink.send(self.server);
    }
}

/// What the only `traceparent` says; several are as good as none.
fn parent_of(headers: &HeaderMap) -> Option<Parent> {
    let mut fields = headers.get_all(&TRACEPARENT).iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => Parent::parse(field.as_bytes()),
        _ => None,
    }
}
