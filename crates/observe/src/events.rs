//! Events, which are not about single requests: lines on standard error, for people or for
//! machines.
//!
//! What is logged is set by `TOLLGATE_LOG`, how it looks by the settings. Lines of a kind are
//! bounded, and so are those that wait to be written: what is left out is counted and reported.

mod repeats;

use std::{
    borrow::Cow,
    env, fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Map, Value};
use tollgate_clock::Clock;
use tracing::{
    Dispatch, Event, Subscriber, dispatcher,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
};

use self::repeats::{Kinds, LeftOut, Repeats};
use crate::{access_log::Format, panics, pipe::Pipe};

/// The environment variable that says which events are logged.
const FILTER: &str = "TOLLGATE_LOG";

/// Our own events from `INFO` on. Those of libraries are written for their developers, and
/// some come with every frame that a client sends: only failures are logged.
const DEFAULT_FILTER: &str = "error,tollgate=info";

/// Events dropped since the start, because standard error was read too slowly.
static UNREAD: AtomicU64 = AtomicU64::new(0);

/// The log of this process's events.
pub struct Events {
    pipe: Pipe,
    kinds: Arc<Kinds>,
}

/// Lines of events that were not written, since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwrittenLines {
    /// Others like them were.
    pub repeated: u64,
    /// Standard error was read too slowly.
    pub unread: u64,
}

impl UnwrittenLines {
    /// What is true now.
    pub fn so_far() -> UnwrittenLines {
        UnwrittenLines {
            repeated: repeats::REPEATED.load(Ordering::Relaxed),
            unread: UNREAD.load(Ordering::Relaxed),
        }
    }
}

/// Events go to standard error, the access log to standard output; a full pipe holds up neither.
pub fn log_to_stderr(format: Format) -> Events {
    let filter = filter().unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER));
    let pipe = Pipe::start(io::stderr(), |lines| {
        UNREAD.fetch_add(lines, Ordering::Relaxed);
        tracing::warn!(lines, "events were dropped: standard error is read too slowly");
    });
    let lines = pipe.clone();
    let kinds = Arc::<Kinds>::default();
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || lines.line());
    let bounded = Repeats(Arc::clone(&kinds));
    let layer = layer.event_format(EventLines(format));
    let registry = tracing_subscriber::registry();
    let dispatch = Dispatch::new(registry.with(layer).with(bounded).with(filter));
    // Only the first caller in a process sets it.
    if dispatcher::set_global_default(dispatch.clone()).is_ok() {
        panics::log_through(dispatch, pipe.clone());
    }
    Events { pipe, kinds }
}

impl Events {
    /// Logs how many lines were left out because there were others like them. To be called about
    /// once a second.
    pub fn log_left_out(&self) {
        log_dropped(self.kinds.take_left_out(Instant::now(), false));
    }

    /// Logs what was left out, and waits until all is written, but no longer than `limit`.
    pub fn finish(&self, limit: Duration) {
        log_dropped(self.kinds.take_left_out(Instant::now(), true));
        self.pipe.flush(limit);
    }
}

fn log_dropped(left_out: Vec<(LeftOut, Duration)>) {
    for (LeftOut { lines, message, target, .. }, time) in left_out {
        let seconds = time.as_secs().max(1);
        let target = &*shown(target);
        tracing::warn!(lines, like = message, target, seconds, "more lines like this were dropped");
    }
}

/// What the environment asks for, if it can be read.
#[expect(clippy::disallowed_methods, reason = "events are logged before any settings are read")]
fn filter() -> Option<EnvFilter> {
    EnvFilter::try_new(directives(&env::var(FILTER).ok()?)).ok()
}

/// The filter with each directive about a part of this program, `tollgate::store=debug`, also for
/// the crate that the part is: users name it as it is shown.
fn directives(filter: &str) -> String {
    let mut directives: Vec<Cow<'_, str>> = Vec::new();
    for directive in filter.split(',') {
        directives.push(directive.into());
        if let Some(part) = directive.trim().strip_prefix("tollgate::") {
            directives.push(format!("tollgate_{part}").into());
            directives.push(format!("tollgate_observe::{part}").into());
        }
    }
    directives.join(",")
}

/// The target of an event as users know it: the crates are parts of one program.
fn shown(target: &str) -> Cow<'_, str> {
    let part = target.strip_prefix("tollgate_observe::").or(target.strip_prefix("tollgate_"));
    part.map_or(target.into(), |part| format!("tollgate::{part}").into())
}

/// Lines of events, each with time, level, target, message and fields.
struct EventLines(Format);

impl<S, N> FormatEvent<S, N> for EventLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match self.0 {
            Format::Text => write_text(context, writer, event),
            Format::Json => write_json(writer, event),
        }
    }
}

/// Writes a line for people. As the subscriber's own, but for the target.
fn write_text<S, N>(
    context: &FmtContext<'_, S, N>,
    mut writer: Writer<'_>,
    event: &Event<'_>,
) -> fmt::Result
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    let metadata = event.metadata();
    SystemTime.format_time(&mut writer)?;
    write!(writer, " {:>5} {}: ", metadata.level(), shown(metadata.target()))?;
    context.format_fields(writer.by_ref(), event)?;
    writeln!(writer)
}

/// Writes one JSON object.
///
/// Not the subscriber's own: that would be one more crate, names the time otherwise than the access
/// log does, and has the event's own fields beside its name and level, so that they may collide.
fn write_json(mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    let time = Clock::System.now();
    let message = Value::String(fields.message);
    writeln!(
        writer,
        "{{\"time\":\"{time}\",\"level\":\"{}\",\"target\":\"{}\",\"message\":{message},\
         \"fields\":{}}}",
        metadata.level(),
        shown(metadata.target()),
        Value::Object(fields.others),
    )
}

/// What an event says.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, Value::String(format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            _ => self.add(field, Value::from(value)),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::from(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_one_object() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(EventLines(Format::Json))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::other("line 1\nline \"2\"");
            let name = "a\u{1b}b";
            tracing::warn!(%error, name, times = 3_u64, level = -1, is_new = true, "it {}", "fails");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&event["level"], &event["message"]), (&"WARN".into(), &"it fails".into()));
        assert_eq!(event["target"], "tollgate::events::tests");
        assert_eq!(event["time"].as_str().unwrap().len(), "2026-11-21T08:41:00.123Z".len());
        let fields = serde_json::json!({
            "error": "line 1\nline \"2\"", "name": "a\u{1b}b", "times": 3, "level": -1, "is_new": true,
        });
        assert_eq!(event["fields"], fields);
    }

    #[test]
    fn part_of_the_program_is_named_as_it_is_shown() {
        for (target, expected) in [
            ("tollgate::reload", "tollgate::reload"),
            ("tollgate_store::redis", "tollgate::store::redis"),
            ("tollgate_observe::trace", "tollgate::trace"),
            ("hyper::proto", "hyper::proto"),
        ] {
            assert_eq!(shown(target), expected);
        }
        let asked = "error,tollgate=info,tollgate::trace=debug";
        let expected = "error,tollgate=info,tollgate::trace=debug,tollgate_trace=debug,\
                        tollgate_observe::trace=debug";
        assert_eq!(directives(asked), expected);
        assert!(EnvFilter::try_new(expected).is_ok());
    }
}
