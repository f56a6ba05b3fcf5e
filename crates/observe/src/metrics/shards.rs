//! Counters of workers that come and go.

use std::sync::Arc;

use parking_lot::Mutex;

/// Counters, one set for each user at a time. What a user has counted stays when it has gone, and
/// its set goes to the next one, so that there never are more than users at once.
#[derive(Debug, Default)]
pub struct Shards<T>(Mutex<Vec<Arc<T>>>);

impl<T: Default> Shards<T> {
    /// A set of counters that nobody else uses.
    pub fn take(&self) -> Arc<T> {
        let mut all = self.0.lock();
        // Only this function shares a set, under the lock: one that is not shared stays so.
        if let Some(free) = all.iter().find(|shard| Arc::strong_count(shard) == 1) {
            return Arc::clone(free);
        }
        let new = Arc::<T>::default();
        all.push(Arc::clone(&new));
        new
    }

    /// What `read` makes of all sets.
    pub fn read<R>(&self, read: impl FnOnce(&[Arc<T>]) -> R) -> R {
        read(&self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Count;

    #[test]
    fn set_of_a_user_that_has_gone_is_used_again() {
        let shards = Shards::<Count>::default();
        let first = shards.take();
        let second = shards.take();
        first.add(1);
        second.add(2);
        drop(first);
        let third = shards.take();
        third.add(4);
        let counts = |all: &[Arc<Count>]| all.iter().map(|count| count.get()).collect::<Vec<_>>();
        assert_eq!(shards.read(counts), [5, 2]);
    }
}
