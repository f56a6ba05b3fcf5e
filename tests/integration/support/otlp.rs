//! A receiver of OTLP over HTTP: decodes what is exported, and remembers it.

use std::{collections::BTreeMap, fmt::Write as _};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;

use super::{Exchange, Upstream, eventually, upstream::Received};

/// A receiver on a port of its own.
pub(crate) struct OtlpReceiver(Upstream);

/// A span as it was exported. Ids are hexadecimal; an empty one is left out.
#[derive(Clone, Debug)]
pub(crate) struct ExportedSpan {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) flags: u32,
    pub(crate) nanos: (u64, u64),
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) is_error: bool,
    pub(crate) resource: BTreeMap<String, String>,
}

/// All is well, in protobuf: an empty message.
const TAKEN: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

impl OtlpReceiver {
    /// Takes everything.
    pub(crate) fn start() -> OtlpReceiver {
        OtlpReceiver::scripted(|exchange| exchange.write(TAKEN))
    }

    /// Has `script` answer.
    pub(crate) fn scripted(
        script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
    ) -> OtlpReceiver {
        OtlpReceiver(Upstream::scripted(script))
    }

    pub(crate) fn taken(exchange: &mut Exchange<'_>) {
        exchange.write(TAKEN);
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// The section of settings that exports to it at once, with these fields besides.
    pub(crate) fn settings(&self, fields: &str) -> String {
        format!("workers: 1\ntracing: {{ otlp: \"{}\", every: 10ms, {fields} }}", self.url())
    }

    /// The requests so far, as they came.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.0.requests()
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<ExportedSpan> {
        self.requests().iter().flat_map(|request| decode(&request.body)).collect()
    }

    /// Waits until there are so many spans.
    #[track_caller]
    pub(crate) fn wait_for(&self, spans: usize) -> Vec<ExportedSpan> {
        eventually("spans are exported", || {
            let all = self.spans();
            (all.len() >= spans).then_some(all)
        })
    }

    /// Waits until the server span of a request with this path is there, and returns the spans of
    /// its trace: that one first, then its children in the order in which they began.
    #[track_caller]
    pub(crate) fn wait_for_path(&self, path: &str) -> Vec<ExportedSpan> {
        eventually("a server span is exported", || {
            let all = self.spans();
            let server = all.iter().find(|span| span.attribute("url.path") == path)?.clone();
            let mut children: Vec<ExportedSpan> =
                all.into_iter().filter(|span| span.parent == server.span_id).collect();
            children.sort_by_key(|span| span.nanos);
            Some([vec![server], children].concat())
        })
    }
}

impl ExportedSpan {
    /// The value of an attribute; `-` if the span does not have it.
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("-", String::as_str)
    }

    /// Checks attributes: `-` stands for one that is not there.
    #[track_caller]
    pub(crate) fn assert_attributes(&self, expected: &[(&str, &str)]) -> &ExportedSpan {
        for (name, value) in expected {
            assert_eq!(self.attribute(name), *value, "{name} of {self:#?}");
        }
        self
    }
}

fn decode(body: &[u8]) -> Vec<ExportedSpan> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut spans = Vec::new();
    for own in request.resource_spans {
        let resource = own.resource.map(|resource| attributes(resource.attributes));
        let resource = resource.unwrap_or_default();
        for scope in own.scope_spans {
            assert_eq!(scope.scope.as_ref().unwrap().name, "tollgate");
            spans.extend(scope.spans.into_iter().map(|span| exported(span, &resource)));
        }
    }
    spans
}

fn exported(span: Span, resource: &BTreeMap<String, String>) -> ExportedSpan {
    ExportedSpan {
        kind: span.kind(),
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state,
        flags: span.flags,
        nanos: (span.start_time_unix_nano, span.end_time_unix_nano),
        attributes: attributes(span.attributes),
        is_error: span.status.is_some_and(|status| status.code() == StatusCode::Error),
        resource: resource.clone(),
        name: span.name,
    }
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |attribute: KeyValue| {
        let value = match attribute.value.unwrap().value.unwrap() {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            other => panic!("{}: {other:?}", attribute.key),
        };
        (attribute.key, value)
    };
    all.into_iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
