//! Traces: what happened to single requests, for OpenTelemetry, over OTLP/HTTP.
//!
//! A request takes part in a trace from its head on ([`RequestTrace`]). Whether its spans are
//! exported is known at its end, since denials may be exported whatever the share of traces that is
//! sampled. Until then, what children need is kept in the request's own memory.
//!
//! Spans go through a bounded queue to a thread of their own ([`Tracer`]). If the queue is full,
//! they are dropped and counted: no request ever waits.

mod attempts;
mod calls;
mod context;
mod counts;
mod delivery;
mod encode;
mod exporter;
mod ids;
mod request;
mod sampling;
mod settings;
mod span;
mod start_time;
mod tracestate;

pub use self::{
    attempts::{AttemptNumber, Attempts},
    calls::{ServerAddress, StoreCall, is_recording_calls, record_call},
    context::{Parent, SpanId, TraceId},
    counts::{DropReason, TraceCounts},
    exporter::Tracer,
    ids::IdSource,
    request::{EndingTrace, LimitOutcome, RequestHead, RequestOutcome, RequestTrace},
    sampling::{ParentFlag, Ratio, Sampling},
    settings::{TraceSettings, TrustParent},
    start_time::StartTime,
};
