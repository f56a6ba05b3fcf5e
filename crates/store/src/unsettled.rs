//! Units that requests in flight have taken from limits that count only some responses.
//!
//! Such a unit is taken when the request arrives, and given back if its response does not count. A
//! caller that is denied only because of these units need not wait for the end of a window: they
//! may come back with the next response. What is known here is this process' part: units that
//! requests at other proxies hold are not in it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tollgate_limit::Key;

/// Units by counter. It has an entry for each request in flight at most.
#[derive(Debug, Default)]
pub struct Unsettled {
    units: Mutex<HashMap<u128, u32>>,
}

/// Units that one request has taken, until its response has decided about them.
#[derive(Debug)]
pub struct UnsettledUnits {
    unsettled: Arc<Unsettled>,
    entry: u128,
    cost: u32,
}

impl Unsettled {
    /// Counts `cost` units of a counter as unsettled until what this returns is dropped.
    pub fn hold(self: &Arc<Self>, key: Key, cost: u32) -> UnsettledUnits {
        let mut units = self.units.lock();
        let held = units.entry(key.entry).or_default();
        *held = held.saturating_add(cost);
        UnsettledUnits { unsettled: Arc::clone(self), entry: key.entry, cost }
    }

    /// The unsettled units of a counter.
    pub fn units(&self, key: Key) -> u32 {
        self.units.lock().get(&key.entry).copied().unwrap_or_default()
    }
}

impl Drop for UnsettledUnits {
    fn drop(&mut self) {
        let mut units = self.unsettled.units.lock();
        if let Some(held) = units.get_mut(&self.entry) {
            *held = held.saturating_sub(self.cost);
            if *held == 0 {
                units.remove(&self.entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limit::LimitId;

    use super::*;

    #[test]
    fn units_are_unsettled_until_their_requests_end() {
        let unsettled = Arc::new(Unsettled::default());
        let [mine, other] = [1, 2].map(|entry| Key::new(1, entry, LimitId::new("p", "l", "", 0)));
        let first = unsettled.hold(mine, 1);
        let second = unsettled.hold(mine, 3);
        assert_eq!([mine, other].map(|key| unsettled.units(key)), [4, 0]);
        drop(first);
        assert_eq!(unsettled.units(mine), 3);
        drop(second);
        assert_eq!(unsettled.units(mine), 0);
        assert!(unsettled.units.lock().is_empty());
    }
}
