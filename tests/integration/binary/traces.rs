//! Traces of the program: by settings, by variables, and at its end.

use std::process::Command;

use super::{Folder, Running, admin::admin_of, assert_exit, send, text};
use crate::support::{Answer, Authority, OtlpReceiver, Upstream, eventually, get};

fn run() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["run", "--config", "tollgate.yaml"]);
    command
}

#[test]
fn spans_are_delivered_before_the_process_ends() {
    let upstream = Upstream::start();
    let receiver = OtlpReceiver::start();
    let settings = format!(
        "drain: 10s\ntracing: {{ otlp: \"{}\", sample: 1, every: 1m }}\n\
         access_log: {{ format: json }}",
        receiver.url()
    );
    let folder = Folder::with_settings(&upstream, &settings);
    let token = folder.token(&["--sub", "7"]);
    let (running, address) = Running::serve(&folder);
    let request = get("/a").field("authorization", &format!("Bearer {token}"));
    send(address, request).assert_status(200);
    assert!(receiver.spans().is_empty(), "they wait for others");
    running.signal("TERM");
    let output = running.finish();
    assert_exit(&output, 0);
    let spans = receiver.wait_for_path("/a");
    assert_eq!(spans.len(), 2, "{spans:#?}");
    let line: serde_json::Value = serde_json::from_str(text(&output.stdout).trim_end()).unwrap();
    assert_eq!(line["trace_id"].as_str(), Some(spans[0].trace_id.as_str()));
}

#[test]
fn variables_are_enough_and_metrics_count() {
    let upstream = Upstream::start();
    let receiver = OtlpReceiver::start();
    let folder = Folder::with_settings(&upstream, "admin: { address: 127.0.0.1:0 }");
    let mut command = run();
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url())
        .env("OTEL_TRACES_SAMPLER", "always_on")
        .env("OTEL_BSP_SCHEDULE_DELAY", "10")
        .env("OTEL_SERVICE_NAME", "edge");
    let (mut running, address) = Running::serve_by(&folder, command);
    let admin = admin_of(&mut running);
    send(address, get("/a")).assert_status(401);
    let spans = receiver.wait_for_path("/a");
    assert_eq!(spans[0].resource["service.name"], "edge");
    spans[0].assert_attributes(&[("http.response.status_code", "401")]);
    eventually("the span is counted", || {
        let metrics = send(admin, get("/metrics").host("localhost")).text();
        assert!(
            metrics.contains("\ntollgate_trace_spans_dropped_total{reason=\"queue_full\"} 0\n")
        );
        metrics.contains("\ntollgate_trace_spans_exported_total 1\n").then_some(())
    });
}

#[test]
fn receiver_may_speak_tls() {
    let upstream = Upstream::start();
    let receiver = Authority::start_tls();
    receiver.answer("/v1/traces", Answer::Body(Vec::new()));
    let url = receiver.url("");
    let settings = format!("tracing: {{ otlp: \"{url}\", sample: 1, every: 10ms }}");
    let folder = Folder::with_settings(&upstream, &settings);
    let mut command = run();
    command.env("SSL_CERT_FILE", receiver.ca_file());
    let (_running, address) = Running::serve_by(&folder, command);
    send(address, get("/a")).assert_status(401);
    receiver.wait_for("/v1/traces", 1);
}

#[test]
fn receiver_that_is_away_is_an_event_and_no_hindrance() {
    let upstream = Upstream::start();
    let gone = Upstream::refusing();
    let settings =
        format!("drain: 1s\ntracing: {{ otlp: \"{}\", sample: 1, every: 10ms }}", gone.url());
    let folder = Folder::with_settings(&upstream, &settings);
    let (mut running, address) = Running::serve(&folder);
    send(address, get("/a")).assert_status(401);
    let event = running.wait_for_event("spans cannot be delivered");
    assert!(event.contains("/v1/traces") && event.contains("no response"), "{event}");
    running.signal("TERM");
    let output = running.finish();
    assert_exit(&output, 0);
    let events = text(&output.stderr);
    assert_eq!(events.matches("spans cannot be delivered").count(), 1, "{events}");
}

#[test]
fn variable_that_cannot_be_read_is_a_problem() {
    let folder = Folder::before(&Upstream::start());
    let mut command = run();
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let output = Running::start_by(&folder, command).finish();
    assert_exit(&output, 64);
    let problem = "OTEL_EXPORTER_OTLP_PROTOCOL is not a protocol that is spoken here";
    assert!(text(&output.stderr).contains(problem), "{output:#?}");
}
