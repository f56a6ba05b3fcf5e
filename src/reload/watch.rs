//! The system's word that a file may have changed. A hint and nothing more: what has changed is found
//! out by reading, and what no event tells of, by reading from time to time.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use super::places::places;

/// Watches what a configuration was made of.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// Whether it was said that something cannot be watched.
    is_told: bool,
}

impl Watch {
    /// Watches nothing yet; `changed` is called for each change of what it will.
    pub(super) fn start(changed: impl Fn() + Send + 'static) -> Watch {
        let handler = move |event: notify::Result<Event>| match event {
            // Reading is no change, and would be followed by reading.
            Ok(event) if event.kind.is_access() => {}
            Ok(_) | Err(_) => changed(),
        };
        let watcher = notify::recommended_watcher(handler)
            .inspect_err(|error| tracing::warn!(%error, "the system tells of no changes of files"));
        Watch { watcher: watcher.ok(), watched: BTreeSet::new(), is_told: false }
    }

    /// Watches nothing, ever.
    pub(super) fn nothing() -> Watch {
        Watch { watcher: None, watched: BTreeSet::new(), is_told: false }
    }

    /// Watches what leads to `paths`, and nothing else any more. To be called after each change and
    /// before looking at what it was: a folder that was replaced by another of the same name is not
    /// watched until then.
    pub(super) fn follow<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        let Some(watcher) = &mut self.watcher else { return };
        for place in std::mem::take(&mut self.watched) {
            // It fails for what is gone.
            let _ = watcher.unwatch(&place);
        }
        for place in places(paths) {
            match watcher.watch(&place, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(place)),
                Err(error) if !std::mem::replace(&mut self.is_told, true) => {
                    tracing::warn!(place = %place.display(), %error, "cannot be watched: its changes are seen later");
                }
                Err(_) => {}
            }
        }
    }
}
