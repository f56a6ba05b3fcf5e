//! Ids of traces and spans: numbers that nobody can predict, as `traceparent` asks for, drawn from
//! a counter under a secret key of the worker.

use std::{
    cell::Cell,
    hash::{BuildHasher, Hasher, RandomState},
};

use siphasher::sip128::{Hasher128, SipHasher13};

use super::{SpanId, TraceId};

/// A worker's source of ids.
pub struct IdSource {
    keyed: SipHasher13,
    next: Cell<u64>,
}

impl Default for IdSource {
    fn default() -> Self {
        // The standard library's hasher keys are the operating system's random numbers.
        let random = RandomState::new();
        let keyed = SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1));
        IdSource { keyed, next: Cell::new(0) }
    }
}

impl IdSource {
    /// The id of a new trace. Its last bytes are as random as the rest: traces are sampled by them.
    pub(super) fn trace_id(&self) -> TraceId {
        loop {
            if let Some(id) = TraceId::new(self.draw()) {
                return id;
            }
        }
    }

    /// The id of a new span.
    pub(super) fn span_id(&self) -> SpanId {
        loop {
            if let Some(id) = SpanId::new(self.draw() as u64) {
                return id;
            }
        }
    }

    fn draw(&self) -> u128 {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let mut hasher = self.keyed;
        hasher.write_u64(number);
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_in_and_between_workers() {
        let workers = [IdSource::default(), IdSource::default()];
        let traces: HashSet<TraceId> =
            (0..1000).flat_map(|_| workers.iter().map(IdSource::trace_id)).collect();
        let spans: HashSet<SpanId> =
            (0..1000).flat_map(|_| workers.iter().map(IdSource::span_id)).collect();
        assert_eq!((traces.len(), spans.len()), (2000, 2000));
    }
}
