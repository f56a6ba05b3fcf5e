//! Texts that the lines of a log have again and again: hosts, paths, user agents, names of callers.
//!
//! Each is read into its type once, and shared by the requests that have it. A log has many million
//! of them, so that this is a good part of the time that reading takes.

use std::sync::Arc;

use http::{HeaderValue, uri::PathAndQuery};
use xxhash_rust::xxh3::xxh3_64;

/// Texts that are kept of each kind. A text takes the place of another one with the same hash.
const KEPT: usize = 4096;

/// Longer texts are not kept: clients choose them, and they would fill the memory.
const MAX_BYTES: usize = 256;

/// What the lines of a log repeat.
#[derive(Default)]
pub(super) struct ValueCache {
    texts: Cache<Arc<str>>,
    values: Cache<HeaderValue>,
    targets: Cache<PathAndQuery>,
}

impl ValueCache {
    /// A text as it is.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        let find = |kept: &Arc<str>| **kept == *text;
        self.texts.get(text, find, || Some(text.into())).unwrap_or_else(|| text.into())
    }

    /// The value of a header; none: it cannot be one.
    pub(super) fn value(&mut self, text: &str) -> Option<HeaderValue> {
        let find = |kept: &HeaderValue| kept.as_bytes() == text.as_bytes();
        self.values.get(text, find, || HeaderValue::from_str(text).ok())
    }

    /// Path and query of a request; none: no URI can have them.
    pub(super) fn target(&mut self, text: &str) -> Option<PathAndQuery> {
        let find = |kept: &PathAndQuery| kept.as_str() == text;
        self.targets.get(text, find, || PathAndQuery::try_from(text).ok())
    }
}

/// Values, each at a place that follows from its text.
struct Cache<T>(Vec<Option<T>>);

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache(Vec::new())
    }
}

impl<T: Clone> Cache<T> {
    /// The value of a text, if `is_it` finds it to be the one that is kept; else `make` makes it.
    fn get(
        &mut self,
        text: &str,
        is_it: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        if text.len() > MAX_BYTES {
            return make();
        }
        if self.0.is_empty() {
            self.0.resize(KEPT, None);
        }
        let at = xxh3_64(text.as_bytes()) as usize % KEPT;
        let place = self.0.get_mut(at)?;
        if !place.as_ref().is_some_and(is_it) {
            *place = Some(make()?);
        }
        place.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shared_and_never_mistaken_for_each_other() {
        let mut repeated = ValueCache::default();
        for round in 0..2 {
            // So many that they share places.
            for number in 0..3 * KEPT {
                let text = format!("/{number}?a");
                assert_eq!(&*repeated.text(&text), text, "{round}");
                assert_eq!(repeated.value(&text).unwrap(), text.as_str(), "{round}");
                assert_eq!(repeated.target(&text).unwrap().as_str(), text, "{round}");
            }
        }
        assert!(Arc::ptr_eq(&repeated.text("a"), &repeated.text("a")));
        let long = "/".repeat(MAX_BYTES + 1);
        assert!(!Arc::ptr_eq(&repeated.text(&long), &repeated.text(&long)));
        assert_eq!((repeated.value("a\nb"), repeated.target("/a b")), (None, None));
        assert_eq!(repeated.value("a\nb"), None);
    }
}
