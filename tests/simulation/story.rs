//! What happened, in the order in which it happened: a line has the simulated time, who did it, and
//! what it was. And how often each thing happened, to show that seeds reach all of it.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use tokio::time::Instant;

/// The story of one seed. Clones tell the same one.
#[derive(Clone)]
pub(crate) struct Story(Arc<Mutex<State>>);

struct State {
    begun: Instant,
    lines: String,
    counts: BTreeMap<&'static str, u64>,
}

impl Story {
    /// Begins now.
    pub(crate) fn new() -> Story {
        let (lines, counts) = (String::new(), BTreeMap::new());
        Story(Arc::new(Mutex::new(State { begun: Instant::now(), lines, counts })))
    }

    pub(crate) fn tell(&self, who: &dyn fmt::Display, what: fmt::Arguments<'_>) {
        let mut state = self.0.lock().unwrap();
        let micros = state.begun.elapsed().as_micros();
        let (secs, micros) = (micros / 1_000_000, micros % 1_000_000);
        writeln!(state.lines, "{secs:3}.{micros:06} {who:>12}  {what}").unwrap();
    }

    /// Counts that something of a kind happened.
    pub(crate) fn count(&self, kind: &'static str) {
        self.count_many(kind, 1);
    }

    /// The same for so many.
    pub(crate) fn count_many(&self, kind: &'static str, times: u64) {
        *self.0.lock().unwrap().counts.entry(kind).or_default() += times;
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap().counts.clone()
    }

    pub(crate) fn lines(&self) -> String {
        self.0.lock().unwrap().lines.clone()
    }
}
