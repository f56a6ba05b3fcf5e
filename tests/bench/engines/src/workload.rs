//! The keys, the values and the batches. All follow from numbers, so every phase can make them
//! again and nothing has to be remembered.

use crate::args::Args;

/// A key: 16 bytes that are spread uniformly.
pub type Key = [u8; 16];

/// One write of a batch.
pub type Pair = (Key, Vec<u8>);

/// The instant, in seconds, before which no key ends.
pub const START: u64 = 1_790_000_000;

/// The instant at which the keys with an even number are over.
pub const HALF_OVER: u64 = START + 3600;

/// The numbers from which the keys that were never written start.
const ABSENT: u64 = 1 << 48;

/// A prime that sends the numbers of the load into another order.
const STRIDE: u64 = 2_654_435_761;

/// What a run writes, as its arguments describe it.
#[derive(Clone)]
pub struct Workload {
    keys: u64,
    batch: u64,
    value: usize,
    sorted: bool,
}

impl Workload {
    pub fn new(args: &Args) -> Self {
        Self { keys: args.keys, batch: args.batch, value: args.value, sorted: args.sorted }
    }

    /// The bytes of keys and values in one batch.
    pub fn batch_bytes(&self) -> u64 {
        self.batch * (16 + self.value as u64)
    }

    /// The keys that exist after this many batches.
    pub fn known(&self, batches: u64) -> u64 {
        self.keys + batches * self.fresh()
    }

    /// The new keys that one batch brings: a fifth of its writes.
    fn fresh(&self) -> u64 {
        self.batch / 5
    }

    /// The key with this number. The loaded keys rise with their numbers.
    pub fn key(&self, number: u64) -> Key {
        let high = if number < self.keys {
            let width = u64::MAX / self.keys;
            number * width + mix(number) % width
        } else {
            mix(number)
        };
        let low = mix(number ^ 0x5bd1_e995_7b93_41c7);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&high.to_be_bytes());
        key[8..].copy_from_slice(&low.to_be_bytes());
        key
    }

    /// A key that was never written.
    pub fn absent(&self, number: u64) -> Key {
        self.key(ABSENT + number)
    }

    /// The writes of the load, batch by batch.
    pub fn load(&self) -> impl Iterator<Item = Vec<Pair>> + '_ {
        let batches = self.keys.div_ceil(self.batch);
        (0..batches).map(move |batch| {
            let end = self.keys.min((batch + 1) * self.batch);
            (batch * self.batch..end).map(|place| self.pair(self.number(place), u64::MAX)).collect()
        })
    }

    /// The number of the key that the load writes at this place.
    fn number(&self, place: u64) -> u64 {
        if self.sorted {
            return place;
        }
        (u128::from(place) * u128::from(STRIDE) % u128::from(self.keys)) as u64
    }

    /// The writes of one batch: a fifth are new keys, the others are keys that exist.
    pub fn batch(&self, batch: u64) -> Vec<Pair> {
        let mut random = Random::new(batch);
        let known = self.known(batch);
        (0..self.batch)
            .map(|place| {
                let fresh = place < self.fresh();
                let number = if fresh { known + place } else { random.below(known) };
                self.pair(number, batch)
            })
            .collect()
    }

    fn pair(&self, number: u64, batch: u64) -> Pair {
        let mut random = Random::new(number ^ batch.rotate_left(32));
        let mut value = Vec::with_capacity(self.value + 8);
        value.extend(end_of(number).to_be_bytes());
        while value.len() < self.value {
            value.extend(random.next().to_be_bytes());
        }
        value.truncate(self.value);
        (self.key(number), value)
    }
}

/// The instant at which the key with this number ends: in the first hour if it is even.
fn end_of(number: u64) -> u64 {
    START + 1 + mix(number) % 3600 + if number.is_multiple_of(2) { 0 } else { 3600 }
}

/// Whether the key of this value is over at an instant.
pub fn is_over(value: &[u8], now: u64) -> bool {
    value.first_chunk().is_some_and(|end| u64::from_be_bytes(*end) <= now)
}

/// A small generator of random numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
