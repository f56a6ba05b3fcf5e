//! The system's events of changed files. An event is only a hint: reading the files finds out what
//! has changed. Changes without an event are found by reading the files from time to time.

use std::sync::Arc;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tollgate_yaml::Inputs;

use super::places::Places;

/// Watches what a configuration was made of.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    /// What is watched; the handler of events reads it too.
    places: Arc<Mutex<Places>>,
    /// Whether a warning was logged that something cannot be watched.
    has_warned: bool,
}

impl Watch {
    /// Watches nothing yet. Calls `changed` for each change of what is watched later.
    pub(super) fn start(changed: impl Fn() + Send + 'static) -> Watch {
        let places = Arc::<Mutex<Places>>::default();
        let followed = Arc::clone(&places);
        let handler = move |event: notify::Result<Event>| {
            let is_change = match &event {
                Ok(event) => is_change(event, &followed.lock()),
                Err(_) => true,
            };
            if is_change {
                changed();
            }
        };
        let watcher = notify::recommended_watcher(handler)
            .inspect_err(|error| tracing::warn!(%error, "the system cannot report file changes"));
        Watch { watcher: watcher.ok(), places, has_warned: false }
    }

    /// Watches nothing, ever.
    pub(super) fn nothing() -> Watch {
        Watch { watcher: None, places: Arc::default(), has_warned: false }
    }

    /// Watches what leads to `inputs`, and nothing else any more. To be called after each change
    /// and before looking at what it was: a folder that was replaced by another of the same name is
    /// not watched until then.
    pub(super) fn follow(&mut self, inputs: &Inputs) {
        let Some(watcher) = &mut self.watcher else { return };
        let places = Places::of(inputs);
        let wanted: Vec<_> = places.watched().map(ToOwned::to_owned).collect();
        // The lock is released before the watcher is called: the watcher's thread may wait for it.
        let former = std::mem::replace(&mut *self.places.lock(), places);
        for place in former.watched() {
            // It fails for what is gone, and for what could not be watched.
            let _ = watcher.unwatch(place);
        }
        for place in wanted {
            match watcher.watch(&place, RecursiveMode::NonRecursive) {
                Err(error) if !std::mem::replace(&mut self.has_warned, true) => {
                    tracing::warn!(place = %place.display(), %error, "cannot be watched: its changes are seen later");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Whether inputs may have changed with it. An event without a path says that events were lost.
fn is_change(event: &Event, places: &Places) -> bool {
    // Reading is no change, and would be followed by reading.
    !event.kind.is_access()
        && (event.paths.is_empty() || event.paths.iter().any(|path| places.concern(path)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use tollgate_yaml::Sources;

    use super::*;

    #[test]
    fn what_else_happens_in_the_folder_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.yaml"), "old").unwrap();
        let sources = Sources::system().recording();
        sources.read(&at("a.yaml"), 100).unwrap();
        let is_written = Arc::new(AtomicBool::new(false));
        let (hints, received) = mpsc::channel();
        let seen = Arc::clone(&is_written);
        let mut watch = Watch::start(move || {
            let _ = hints.send(seen.load(Ordering::SeqCst));
        });
        watch.follow(&sources.inputs());
        for number in 0..1000 {
            fs::write(at("access.log"), number.to_string()).unwrap();
        }
        is_written.store(true, Ordering::SeqCst);
        fs::write(at("a.yaml"), "new").unwrap();
        let first = received.recv_timeout(Duration::from_secs(20));
        assert_eq!(first, Ok(true), "a hint came for the log, before the file was written");
    }
}
