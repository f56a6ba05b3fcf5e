//! The buckets of `RL.*`: a table of those that follow the clock of this process, and one of those
//! that follow the time that clients give (`AT`).
//!
//! The one thing to know: client-timed buckets end by the greatest instant that clients gave, not
//! by the clock. So a replay gets the same replies at any speed, and a slow one loses nothing. They
//! stay until half of their room is used, so that a second replay, which begins before that
//! instant, gets the replies of the first.

use tollgate_limit::KeyHasher;

use super::{
    refill::{Bucket, Request, Verb, Withdrawal},
    table::{Fading, Table},
};

/// The buckets of a listener. Instants are milliseconds.
pub(super) struct Buckets {
    hasher: KeyHasher,
    clocked: Table<Bucket>,
    client_timed: Table<Bucket>,
    /// The greatest instant that clients gave.
    watermark: i64,
}

/// What the hashes of names begin with: each kind has a space of its own.
const REDUCED: u8 = b'r';
const SESSIONS: u8 = b's';
const REDUCED_AT: u8 = b'R';
const SESSIONS_AT: u8 = b'S';

/// How far the watermark may be ahead of the clock: one client with a wrong clock must not end the
/// buckets of all others.
const MAX_AHEAD: i64 = 60_000;

impl Fading for Bucket {
    fn faded_at(&self) -> i64 {
        self.full_at
    }
}

impl Buckets {
    /// With room for `max_keys` in each table.
    pub(super) fn new(hasher: KeyHasher, max_keys: usize) -> Buckets {
        let [clocked, client_timed] = [(); 2].map(|()| Table::new(max_keys));
        Buckets { hasher, clocked, client_timed, watermark: 0 }
    }

    /// Takes from the bucket of this name, and of these parameters.
    pub(super) fn take(
        &mut self,
        name: &[u8],
        verb: Verb,
        request: &Request,
        now: i64,
    ) -> Withdrawal {
        let key = self.key(name, verb, request);
        let table = if request.at.is_some() { &self.client_timed } else { &self.clocked };
        let taken = request.take(table.find(key), now);
        let Some(bucket) = taken.bucket else { return taken };
        match request.at {
            None => self.clocked.put(key, bucket, now),
            Some(at) => {
                self.watermark = self.watermark.max(at.min(now.saturating_add(MAX_AHEAD)));
                let over_by = self.over_by();
                self.client_timed.put(key, bucket, over_by);
            }
        }
        taken
    }

    /// Looks at so many buckets of each table, and removes those that are as good as none.
    pub(super) fn sweep_some(&mut self, glances: usize, now: i64) {
        self.clocked.sweep_some(glances, now);
        if self.client_timed.is_half_full() {
            self.client_timed.sweep_some(glances, self.watermark);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.clocked.len() + self.client_timed.len()
    }

    /// Buckets that were removed as they were full again.
    pub(super) fn expired(&self) -> u64 {
        self.clocked.expired + self.client_timed.expired
    }

    /// Buckets that were removed for want of room.
    pub(super) fn evicted(&self) -> u64 {
        self.clocked.evicted + self.client_timed.evicted
    }

    /// The instant by which client-timed buckets are over: the watermark, once half of the room is
    /// used; before that, none is.
    fn over_by(&self) -> i64 {
        if self.client_timed.is_half_full() { self.watermark } else { i64::MIN }
    }

    /// Other parameters are another bucket. They have a fixed length, so no two keys are one.
    fn key(&self, name: &[u8], verb: Verb, request: &Request) -> u128 {
        let mut parameters = [0; 24];
        let numbers = [request.max, request.refill, request.refill_millis];
        for (bytes, number) in parameters.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let space = match (verb, request.at) {
            (Verb::Sessionize, None) => SESSIONS,
            (Verb::Sessionize, Some(_)) => SESSIONS_AT,
            (Verb::Reduce | Verb::Peek, None) => REDUCED,
            (Verb::Reduce | Verb::Peek, Some(_)) => REDUCED_AT,
        };
        self.hasher.hash([(space, name), (b'p', &parameters[..])])
    }
}

#[cfg(test)]
mod tests;
