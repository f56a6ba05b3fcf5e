//! Spans as OTLP has them (<https://opentelemetry.io/docs/specs/otlp/>).

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan, Status, span::SpanKind, status},
};
use prost::Message;

use super::span::{Attribute, Kind, Span, Value};

/// The flags of a span whose trace is sampled, and whose parent is known to be remote or not
/// (`SpanFlags` in trace.proto).
const SAMPLED: u32 = 1;
const IS_REMOTE_KNOWN: u32 = 1 << 8;
const IS_REMOTE: u32 = 1 << 9;

/// The body of a request that exports these spans, of what `resource` describes.
pub(super) fn encode(spans: Vec<Span>, resource: &[(String, String)]) -> Vec<u8> {
    let attributes = resource.iter().map(|(name, value)| text_attribute(name, value));
    let resource = Resource { attributes: attributes.collect(), ..Resource::default() };
    let scope = InstrumentationScope {
        name: "tollgate".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    };
    let spans = spans.into_iter().map(otlp_span).collect();
    let scope_spans = ScopeSpans { scope: Some(scope), spans, schema_url: String::new() };
    let resource_spans = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![scope_spans],
        schema_url: String::new(),
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

fn otlp_span(span: Span) -> OtlpSpan {
    let state = span.state.as_ref().and_then(|state| state.to_str().ok());
    OtlpSpan {
        trace_id: span.trace_id.to_bytes().to_vec(),
        span_id: span.span_id.to_bytes().to_vec(),
        trace_state: state.unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map(|parent| parent.to_bytes().to_vec()).unwrap_or_default(),
        flags: SAMPLED | IS_REMOTE_KNOWN | if span.has_remote_parent { IS_REMOTE } else { 0 },
        name: span.name.into_owned(),
        kind: match span.kind {
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
        }
        .into(),
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        // Only an error has a status: to call a request a success is for the service to say.
        status: span
            .is_error
            .then(|| Status { message: String::new(), code: status::StatusCode::Error.into() }),
        ..OtlpSpan::default()
    }
}

fn attribute((name, value): Attribute) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text.into_owned()),
        Value::Number(number) => any_value::Value::IntValue(number),
    };
    key_value(name, value)
}

fn text_attribute(name: &str, value: &str) -> KeyValue {
    key_value(name, any_value::Value::StringValue(value.to_owned()))
}

fn key_value(name: &str, value: any_value::Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::trace::IdSource;

    #[test]
    fn spans_have_all_that_they_say() {
        let ids = IdSource::default();
        let (trace_id, parent, server) = (ids.trace_id(), ids.span_id(), ids.span_id());
        let span = |span_id, parent, kind, is_error| Span {
            trace_id,
            span_id,
            parent,
            has_remote_parent: kind == Kind::Server,
            state: (kind == Kind::Server).then(|| HeaderValue::from_static("a=1")),
            name: "GET /a".into(),
            kind,
            start: 1,
            end: 3,
            attributes: vec![("a", "text".into()), ("b", Value::number(7))],
            is_error,
        };
        let spans = vec![
            span(server, Some(parent), Kind::Server, false),
            span(ids.span_id(), Some(server), Kind::Client, true),
        ];
        let resource = [("service.name".to_owned(), "gate".to_owned())];
        let body = encode(spans, &resource);
        let decoded = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let [resource_spans] = &decoded.resource_spans[..] else { panic!("{decoded:?}") };
        let resource = resource_spans.resource.as_ref().unwrap();
        assert_eq!(resource.attributes, [text_attribute("service.name", "gate")]);
        let [scope_spans] = &resource_spans.scope_spans[..] else { panic!("{decoded:?}") };
        assert_eq!(scope_spans.scope.as_ref().unwrap().name, "tollgate");
        let [one, other] = &scope_spans.spans[..] else { panic!("{decoded:?}") };
        assert_eq!(one.trace_id, trace_id.to_bytes());
        assert_eq!(one.span_id, server.to_bytes());
        assert_eq!(one.parent_span_id, parent.to_bytes());
        assert_eq!(one.trace_state, "a=1");
        assert_eq!((one.flags, one.kind()), (0x301, SpanKind::Server));
        assert_eq!((one.start_time_unix_nano, one.end_time_unix_nano), (1, 3));
        assert_eq!(one.attributes[0], text_attribute("a", "text"));
        assert_eq!(one.attributes[1], key_value("b", any_value::Value::IntValue(7)));
        assert_eq!(one.status, None);
        assert_eq!((other.flags, other.kind()), (0x101, SpanKind::Client));
        assert_eq!(other.parent_span_id, server.to_bytes());
        assert_eq!(other.status.as_ref().unwrap().code(), status::StatusCode::Error);
    }
}
