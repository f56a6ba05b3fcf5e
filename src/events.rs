//! Events, which are not about single requests: lines on standard error, for people or for machines.
//!
//! What is logged is set by `TOLLGATE_LOG`, how it looks by the settings.

use std::{fmt, io, panic};

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::{access_log::Format, clock::Clock, pipe::Pipe};

/// The environment variable that says which events are logged.
const FILTER: &str = "TOLLGATE_LOG";

/// Events go to standard error, the access log to standard output; a full pipe holds up neither.
pub fn log_to_stderr(format: Format) -> Pipe {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("info"));
    let pipe = Pipe::start(io::stderr(), |_| {});
    let lines = pipe.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(move || lines.line());
    // Only the first caller in a process sets it.
    let _ = match format {
        Format::Text => subscriber.try_init(),
        Format::Json => {
            // The standard library would write lines of text.
            panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread has panicked")));
            subscriber.event_format(JsonLines).try_init()
        }
    };
    pipe
}

/// One JSON object a line: time, level, target, message, fields.
///
/// Not the subscriber's own: that would be one more crate, names the time otherwise than the access
/// log does, and has the event's own fields beside its name and level, so that they may collide.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (metadata, time) = (event.metadata(), Clock::System.now());
        let message = Value::String(fields.message);
        writeln!(
            writer,
            "{{\"time\":\"{time}\",\"level\":\"{}\",\"target\":\"{}\",\"message\":{message},\
             \"fields\":{}}}",
            metadata.level(),
            metadata.target(),
            Value::Object(fields.others),
        )
    }
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
            .event_format(JsonLines)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let (error, name) = (io::Error::other("line 1\nline \"2\""), "a\u{1b}b");
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
}
