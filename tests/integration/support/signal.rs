//! A door between two threads, in place of sleeping.

use std::sync::{Arc, Condvar, Mutex};

use super::PATIENCE;

/// Closed until somebody opens it; then open for good.
#[derive(Clone, Default)]
pub(crate) struct Signal(Arc<(Mutex<bool>, Condvar)>);

impl Signal {
    pub(crate) fn open(&self) {
        let (is_open, changed) = &*self.0;
        *is_open.lock().unwrap() = true;
        changed.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Waits until it is open.
    pub(crate) fn wait(&self) {
        let (is_open, changed) = &*self.0;
        let guard = is_open.lock().unwrap();
        let waited = changed.wait_timeout_while(guard, PATIENCE, |open| !*open).unwrap();
        assert!(!waited.1.timed_out(), "what was waited for did not happen");
    }
}
