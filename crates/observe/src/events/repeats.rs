//! At most so many lines of a kind, in the whole process: what a client, an upstream or a Redis
//! server can cause is never a line each time. What was left out is counted, and logged now and
//! then.
//!
//! The bound is here, below every event, and not where events are made: one that is added later, or
//! is a dependency's, is bounded as well.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    fmt::{self, Write},
    hash::Hasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer};

/// So many lines of a kind may come at once: all servers of an upstream may fail together.
const BURST: u32 = 10;

/// After that, there is one more of that kind in each pause.
const PAUSE: Duration = Duration::from_secs(1);

/// How long lines of a kind are left out before their number is logged.
const SUMMARY_PAUSE: Duration = Duration::from_secs(10);

/// Few places in the program log something, but upstreams and servers may come and go.
const MAX_KINDS: usize = 1000;

/// What an operator does, file by file and line by line, is logged in full.
const WHOLE: [&str; 5] = [
    "tollgate::reload",
    "tollgate_preview::diff",
    "tollgate::cli",
    "tollgate::admin::callers",
    "tollgate::decisions::calls::reset",
];

/// The target of the events that report what was left out.
const TALLY: &str = "tollgate_observe::events";

/// Fields that distinguish one kind from another: the configuration names each upstream and server,
/// and this program names the schemes.
const ABOUT: [&str; 3] = ["upstream", "server", "scheme"];

/// The longest part of a message that is repeated.
const MAX_MESSAGE_CHARS: usize = 200;

/// Lines that were left out since the start.
pub(super) static REPEATED: AtomicU64 = AtomicU64::new(0);

/// Lets so many events of a kind through. Events that only `TOLLGATE_LOG` asks for are not bounded:
/// an operator who asks for them wants each one.
pub(super) struct Repeats(pub(super) Arc<Kinds>);

/// Recent events, by kind.
#[derive(Default)]
pub(super) struct Kinds(Mutex<HashMap<KindKey, Kind>>);

/// A place in the program, and a hash of what the event is about.
type KindKey = (Identifier, u64);

struct Kind {
    room: Room,
    left_out: Option<LeftOut>,
}

/// Room for lines: each takes a pause of time, and a burst of them may be taken ahead.
struct Room {
    taken_until: Instant,
}

/// Lines that were left out and not reported yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) lines: u64,
    /// The message of the first of them.
    pub(super) message: String,
    pub(super) target: &'static str,
    /// When that was.
    since: Instant,
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let target = metadata.target();
        let is_bounded = *metadata.level() <= Level::INFO
            && target != TALLY
            && !WHOLE.iter().any(|part| target.starts_with(part));
        !is_bounded || self.0.admit(event, Instant::now())
    }
}

impl Kinds {
    /// Whether one more line of this kind is written.
    fn admit(&self, event: &Event<'_>, now: Instant) -> bool {
        let mut about = About::default();
        event.record(&mut about);
        let metadata = event.metadata();
        let key = (metadata.callsite(), about.0.finish());
        let mut kinds = self.0.lock();
        let kind = match kinds.contains_key(&key) || make_room(&mut kinds, now) {
            true => kinds.entry(key),
            // Those that came too late share what their place has.
            false => kinds.entry((metadata.callsite(), 0)),
        };
        let kind = kind.or_insert(Kind { room: Room { taken_until: now }, left_out: None });
        if kind.room.take(now) {
            return true;
        }
        let left_out = kind.left_out.get_or_insert_with(|| LeftOut {
            lines: 0,
            message: message_of(event),
            target: metadata.target(),
            since: now,
        });
        left_out.lines += 1;
        REPEATED.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// What is to be reported at this time, with how long it took; at the end of the process, all.
    pub(super) fn take_left_out(&self, now: Instant, is_end: bool) -> Vec<(LeftOut, Duration)> {
        let mut kinds = self.0.lock();
        let is_due =
            |since: Instant| is_end || now.saturating_duration_since(since) >= SUMMARY_PAUSE;
        let due = kinds
            .values_mut()
            .filter_map(|kind| kind.left_out.take_if(|left_out| is_due(left_out.since)))
            .map(|left_out| {
                let time = now.saturating_duration_since(left_out.since);
                (left_out, time)
            });
        due.collect()
    }
}

impl Room {
    /// Takes the room of a line, if there is some.
    fn take(&mut self, now: Instant) -> bool {
        let taken_until = self.taken_until.max(now) + PAUSE;
        let is_room = taken_until <= now + PAUSE * BURST;
        if is_room {
            self.taken_until = taken_until;
        }
        is_room
    }
}

/// Whether there is room for another kind. Those without recent lines give way.
fn make_room(kinds: &mut HashMap<KindKey, Kind>, now: Instant) -> bool {
    if kinds.len() >= MAX_KINDS {
        kinds.retain(|_, kind| kind.room.taken_until > now || kind.left_out.is_some());
    }
    kinds.len() < MAX_KINDS
}

/// A hash of the fields that identify the subject of an event.
#[derive(Default)]
struct About(DefaultHasher);

impl Visit for About {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ABOUT.contains(&field.name()) {
            let _ = write!(self, "{value:?}");
        }
    }
}

impl Write for About {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn message_of(event: &Event<'_>) -> String {
    struct Message(String);
    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.0 = format!("{value:?}").chars().take(MAX_MESSAGE_CHARS).collect();
            }
        }
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    message.0
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Counts the events that come through.
    struct Written(Arc<AtomicU64>);

    impl<S: Subscriber> Layer<S> for Written {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many lines are written of what `say` says, and what was left out.
    fn written(say: impl FnOnce()) -> (u64, Vec<LeftOut>) {
        let kinds = Arc::<Kinds>::default();
        let lines = Arc::default();
        let layers = tracing_subscriber::registry()
            .with(Written(Arc::clone(&lines)))
            .with(Repeats(Arc::clone(&kinds)));
        tracing::subscriber::with_default(layers, say);
        let left_out = kinds.take_left_out(Instant::now(), true);
        let left_out = left_out.into_iter().map(|(left_out, _)| left_out).collect();
        (lines.load(Ordering::Relaxed), left_out)
    }

    #[test]
    fn lines_of_a_kind_are_bounded_and_what_is_left_out_is_counted() {
        let say = || (0..100).for_each(|at| tracing::warn!(at, "it fails"));
        let (lines, left_out) = written(say);
        // A busy machine may take so long over it that one more is due.
        assert!((10..15).contains(&lines), "{lines} lines");
        let [left_out] = &left_out[..] else { panic!("{left_out:?}") };
        assert_eq!(left_out.lines, 100 - lines);
        assert_eq!((&*left_out.message, left_out.target), ("it fails", module_path!()));
    }

    #[test]
    fn each_upstream_and_each_place_is_a_kind_of_its_own() {
        let (lines, left_out) = written(|| {
            for at in 0..30 {
                tracing::warn!(upstream = %format!("u{}", at % 3), client = at, "it fails");
                tracing::info!("it begins");
            }
        });
        assert!((40..50).contains(&lines), "{lines} lines");
        assert_eq!(left_out.len(), 1, "{left_out:?}");
    }

    #[test]
    fn debug_events_and_actions_of_operators_are_logged_in_full() {
        let (lines, left_out) = written(|| {
            for _ in 0..100 {
                tracing::debug!("it looks");
                tracing::error!(target: "tollgate::reload", "bad configuration");
            }
        });
        assert_eq!((lines, left_out), (200, Vec::new()));
    }

    #[test]
    fn after_a_burst_there_is_one_line_a_pause() {
        let now = Instant::now();
        let mut room = Room { taken_until: now };
        for (seconds, expected) in [(0, BURST), (1, 1), (3, 2), (60, BURST)] {
            let at = now + Duration::from_secs(seconds);
            let taken = (0..100).filter(|_| room.take(at)).count();
            assert_eq!(taken, expected as usize, "after {seconds} s");
        }
    }

    #[test]
    fn number_of_dropped_lines_is_logged_once_after_a_while() {
        let kinds = Arc::<Kinds>::default();
        let layers = tracing_subscriber::registry().with(Repeats(Arc::clone(&kinds)));
        let begun = Instant::now();
        tracing::subscriber::with_default(layers, || {
            (0..100).for_each(|_| tracing::info!("it is busy"));
        });
        assert_eq!(kinds.take_left_out(begun + SUMMARY_PAUSE / 2, false), []);
        let left_out = kinds.take_left_out(Instant::now() + SUMMARY_PAUSE, false);
        assert!(matches!(&left_out[..], [(_, time)] if *time >= SUMMARY_PAUSE), "{left_out:?}");
        assert_eq!(kinds.take_left_out(Instant::now() + SUMMARY_PAUSE, true), []);
    }
}
