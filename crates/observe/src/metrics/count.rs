//! A number that one worker adds to and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. Only one thread may add to it: an addition is a load and a store,
/// which cost a third of what an atomic addition does, and two threads would lose additions of each
/// other. Any thread may read it.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `number`.
    pub fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_summed() {
        let count = Count::default();
        count.increment();
        count.add(41);
        assert_eq!(count.get(), 42);
    }
}
