//! Traces, as a receiver of OTLP and an upstream see them.

mod delivery;
mod propagation;
mod spans;
mod store_calls;

use crate::support::{OtlpReceiver, Policy, Proxy};

/// The trace and the parent in the `traceparent` of tests.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A proxy that exports to this receiver, with these fields of `tracing`.
fn proxy(receiver: &OtlpReceiver, fields: &str, policy: &Policy) -> Proxy {
    Proxy::with_settings(&receiver.settings(fields), &[policy])
}

/// The same with the client as a trusted proxy.
fn trusting(receiver: &OtlpReceiver, fields: &str, policy: &Policy) -> Proxy {
    let settings = receiver.settings(fields);
    Proxy::with_settings(&format!("{settings}\ntrusted_proxies: [127.0.0.1]"), &[policy])
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}
