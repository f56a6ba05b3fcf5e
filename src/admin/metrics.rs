//! `GET /metrics`: numbers for Prometheus.

use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_observe::{access_log::AccessLog, events::UnwrittenLines, trace::DropReason};
use tollgate_store::{Decider, NoRoom, Unanswered};
use tollgate_upstream::downstream::{Fault, Handshake, HandshakeFailure};

use super::{
    Context, certificates, disk,
    exposition::{Exposition, MetricKind, TextFormat},
    process, requests, stores, upstreams,
};

/// All numbers as text.
pub(super) fn text(context: &Context, format: TextFormat) -> String {
    all(context, format).finish()
}

/// How many series there are.
pub(super) fn series(context: &Context) -> usize {
    all(context, TextFormat::default()).series()
}

fn all(context: &Context, format: TextFormat) -> Exposition {
    let mut text = Exposition::new(format);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.family("tollgate_build_info", MetricKind::Gauge, "The version of the program.");
    text.sample(&version, 1);
    let help = "When the process was started.";
    text.gauge("tollgate_start_time_seconds", help, seconds(context.started));
    let help = "Whether new requests should come.";
    text.flag("tollgate_ready", help, context.reasons_not_ready().is_empty());

    requests::write_metrics(&mut text, &context.shared);
    connections(&mut text, context);
    configuration(&mut text, context);
    let UnwrittenLines { repeated, unread } = UnwrittenLines::so_far();
    let help = "Event lines that were not written: repeats of earlier lines, or dropped because the output was read too slowly.";
    let numbers = [("repeated", repeated), ("unread", unread)];
    text.counters("tollgate_events_dropped_total", help, "reason", numbers);
    decisions(&mut text, context);
    counters(&mut text, context);
    lines_and_spans(&mut text, context);
    store(&mut text, context);
    clocks(&mut text, context);

    let refunds = &context.shared.refunds;
    let help = "Charges that a response's status gives back: given, or withheld by `at_most`.";
    let numbers = [("given", refunds.given()), ("withheld", refunds.withheld())];
    text.counters("tollgate_refunds_total", help, "result", numbers);
    let help = "Costs that responses were to tell and did not.";
    let unknown = context.shared.unknown_costs.counts();
    text.counters("tollgate_cost_unknown_total", help, "reason", unknown);

    upstreams::write_metrics(&mut text, &context.shared);

    let remote = context.remote_keys();
    let failing = remote.iter().filter(|keys| keys.last_error.is_some()).count();
    let help = "Key sets that are fetched from issuers.";
    text.gauge("tollgate_remote_keys", help, remote.len() as u64);
    let help = "Those of them whose latest fetch failed.";
    text.gauge("tollgate_remote_keys_failing", help, failing as u64);
    process::write_metrics(&mut text);
    text
}

/// Connections of clients, their faults and their handshakes.
fn connections(text: &mut Exposition, context: &Context) {
    let admission = &context.shared.admission;
    text.gauge("tollgate_connections", "Connections of clients.", admission.connections() as u64);
    let help = "What ended connections, or kept them from being made.";
    let numbers = Fault::all().map(|fault| (fault.keyword(), admission.faults().total(fault)));
    text.counters("tollgate_connection_faults_total", help, "fault", numbers);

    let help =
        "TLS handshakes with clients, by version and by whether an earlier session was resumed.";
    text.family("tollgate_tls_handshakes_total", MetricKind::Counter, help);
    for (version, is_tls13) in [("1.2", false), ("1.3", true)] {
        for (kind, is_resumed) in [("full", false), ("resumed", true)] {
            let number = admission.handshakes().total(Handshake::Done { is_tls13, is_resumed });
            text.sample(&[("version", version), ("kind", kind)], number);
        }
    }
    let help = "TLS handshakes with clients that failed, by reason.";
    let total = |reason| admission.handshakes().total(Handshake::Failed(reason));
    let numbers = HandshakeFailure::all().map(|reason| (reason.keyword(), total(reason)));
    text.counters("tollgate_tls_handshake_failures_total", help, "reason", numbers);
    certificates::write_metrics(text, &context.listeners);
}

/// Which configuration is in force, and what came of those that were read.
fn configuration(text: &mut Exposition, context: &Context) {
    let report = context.state.report();
    text.gauge("tollgate_config_generation", "Which configuration is in force.", report.generation);
    let help = "Since when the configuration is in force.";
    text.gauge("tollgate_config_loaded_timestamp_seconds", help, seconds(report.loaded));
    let help = "Configurations that were read anew, by what came of it.";
    let numbers = [("done", report.done), ("failed", report.failed)];
    text.counters("tollgate_config_reloads_total", help, "result", numbers);
    let help = "Whether the latest configuration was refused, and an older one is in force.";
    text.flag("tollgate_config_reload_failed", help, report.refused.is_some());
    let help = "Whether settings have changed that need a restart.";
    text.flag("tollgate_config_needs_restart", help, !report.needs_restart.is_empty());
}

/// What programs ask this proxy to decide.
fn decisions(text: &mut Exposition, context: &Context) {
    let totals = context.shared.commands.totals();
    let help = "Connections of clients of the Redis protocol, at listeners of decisions.";
    text.gauge("tollgate_decisions_connections", help, totals.connections);
    let help = "Commands of the Redis protocol that were replied to.";
    text.counter("tollgate_decisions_commands_total", help, totals.commands);
    let help = "Keys of RL.* and CL.THROTTLE that are remembered.";
    text.gauge("tollgate_decisions_keys", help, totals.keys);
    let help = "Keys of RL.* and CL.THROTTLE that were forgotten too early, for want of room.";
    text.counter("tollgate_decisions_keys_evicted_total", help, totals.evicted);
    let help = "Calls of programs that wait until a limit has room.";
    text.gauge("tollgate_decisions_waiting", help, context.shared.stores.waiting.number() as u64);

    let help = "Counters that programs charge at instants which they give.";
    let client_timed = context.shared.stores.client_timed.count();
    text.gauge("tollgate_client_time_keys", help, client_timed as u64);
}

/// Counters in the process, and those that it had no room for.
fn counters(text: &mut Exposition, context: &Context) {
    let counts = &context.shared.stores.counts;
    let in_process = &context.shared.stores;
    let on_disk = in_process.disk.as_ref();
    let counters = in_process.memory.len() + on_disk.map_or(0, |disk| disk.memory().len());
    text.gauge("tollgate_store_counters", "Counters in the process.", counters as u64);
    let help = "Counters in the process by client-chosen values: headers, cookies, hosts, paths.";
    let unverified =
        in_process.memory.unverified() + on_disk.map_or(0, |disk| disk.memory().unverified());
    text.gauge("tollgate_store_unverified_counters", help, unverified as u64);
    let help = "Requests refused because there was no room for a counter, by reason.";
    let numbers = NoRoom::all().map(|reason| (reason.keyword(), counts.no_room(reason)));
    text.counters("tollgate_store_no_room_total", help, "reason", numbers);
    let help = "Charges left out because there was no room for their counters, of limits that are open then.";
    text.counter("tollgate_store_uncounted_total", help, counts.uncounted.get());
}

/// Lines of the access log and spans of traces that were written or dropped.
fn lines_and_spans(text: &mut Exposition, context: &Context) {
    let help = "Lines of the access log that were dropped because the output was read too slowly.";
    let dropped = context.access_log.as_ref().map_or(0, AccessLog::dropped);
    text.counter("tollgate_access_log_dropped_total", help, dropped);

    let tracer = context.shared.tracer.as_ref();
    let help = "Spans of requests that the OTLP receiver has taken.";
    let exported = tracer.map_or(0, |tracer| tracer.counts().exported());
    text.counter("tollgate_trace_spans_exported_total", help, exported);
    let help = "Spans of requests that were dropped, by reason.";
    let dropped = |reason| tracer.map_or(0, |tracer| tracer.counts().dropped(reason));
    let numbers = DropReason::all().map(|reason| (reason.keyword(), dropped(reason)));
    text.counters("tollgate_trace_spans_dropped_total", help, "reason", numbers);
}

/// What stores have decided, and how they agree.
fn store(text: &mut Exposition, context: &Context) {
    let counts = &context.shared.stores.counts;
    let help = "Requests by who decided about their charges.";
    let deciders = Decider::all().map(Keyword::keyword);
    let numbers = deciders.zip(context.shared.stores.decisions());
    text.counters("tollgate_store_decisions_total", help, "by", numbers);
    let help = "Decisions that the store did not make, by reason.";
    let numbers = Unanswered::all().map(|reason| (reason.keyword(), counts.unanswered(reason)));
    text.counters("tollgate_store_unanswered_total", help, "reason", numbers);
    let help = "Charges that Redis may have taken: the connection broke before its reply.";
    text.counter("tollgate_store_unknown_charges_total", help, counts.unknown.get());
    let help = "Redis servers that say that they are primary, and are not used.";
    text.gauge("tollgate_store_rival_primaries", help, counts.rivals().report().len() as u64);
    let help = "Counters with charges that were admitted locally and are not written to Redis yet.";
    text.gauge("tollgate_store_owed_counters", help, context.shared.stores.pending() as u64);
    let help =
        "Requests admitted locally that will not be written to Redis, because there was no room.";
    text.counter("tollgate_store_unowed_total", help, counts.unowed.get());
    let help =
        "Counters that a Redis server may have lost, and that were not written back to it yet.";
    text.gauge("tollgate_store_lost_counters", help, context.shared.stores.to_reseed() as u64);
    let moving = &context.shared.stores.moving;
    let help = "Percentage of callers that the next store decides.";
    text.gauge("tollgate_store_moved_percent", help, moving.moved().into());
    let help = "Whether callers are still mirrored who are to be moved.";
    text.flag("tollgate_store_move_waits", help, moving.obstacle().is_some());
    let help = "Decisions that were mirrored in another store.";
    text.counter("tollgate_store_mirrored_total", help, counts.mirrored.get());
    let help = "Mirrored decisions that differed.";
    text.counter("tollgate_store_disagreed_total", help, counts.disagreed.get());
    let help = "Decisions that could not be mirrored, because the other store did not answer.";
    text.counter("tollgate_store_unmirrored_total", help, counts.unmirrored.get());
    stores::write_metrics(text, &context.shared.stores, context.shared.clock.now());
    disk::write_metrics(text, &context.shared.stores);
}

/// How the clocks of Redis servers differ.
fn clocks(text: &mut Exposition, context: &Context) {
    let skews = context.shared.stores.skews();
    let help = "By how many seconds the proxy's clock is ahead of a Redis server's clock.";
    text.family("tollgate_store_clock_skew_seconds", MetricKind::Gauge, help);
    for skew in &skews {
        text.sample_real(&[("server", &skew.server)], skew.ahead_seconds());
    }
    let help = "Whether Redis' clock is in effect because the proxy's clock is too far off.";
    text.family("tollgate_store_clock_overruled", MetricKind::Gauge, help);
    for skew in &skews {
        text.sample(&[("server", &skew.server)], u64::from(skew.is_overruled));
    }
}

fn seconds(instant: Timestamp) -> u64 {
    instant.as_micros() / 1_000_000
}
