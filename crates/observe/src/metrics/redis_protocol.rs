//! What listeners of the Redis protocol count, all of them together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Commands and connections of the listeners of the Redis protocol.
#[derive(Debug, Default)]
pub struct CommandCounts {
    commands: AtomicU64,
    connections: AtomicU64,
    keys: AtomicU64,
    evicted: AtomicU64,
}

/// What one listener has counted for itself so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandTotals {
    /// Commands that were replied to.
    pub commands: u64,
    /// Connections that there are.
    pub connections: u64,
    /// Keys that are remembered.
    pub keys: u64,
    /// Keys that were forgotten too early, for want of room.
    pub evicted: u64,
}

impl CommandCounts {
    /// Adds what one listener has counted since `before`. What has become less is subtracted: sums
    /// wrap around.
    pub fn add(&self, now: CommandTotals, before: CommandTotals) {
        let add = |count: &AtomicU64, now: u64, before: u64| {
            count.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        };
        add(&self.commands, now.commands, before.commands);
        add(&self.connections, now.connections, before.connections);
        add(&self.keys, now.keys, before.keys);
        add(&self.evicted, now.evicted, before.evicted);
    }

    /// Of all listeners.
    pub fn totals(&self) -> CommandTotals {
        CommandTotals {
            commands: self.commands.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            keys: self.keys.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_sum_of_what_each_listener_has_now() {
        let counts = CommandCounts::default();
        let at =
            |commands, connections| CommandTotals { commands, connections, keys: 9, evicted: 0 };
        counts.add(at(5, 3), CommandTotals::default());
        counts.add(at(7, 2), CommandTotals::default());
        counts.add(at(8, 0), at(5, 3));
        assert_eq!(counts.totals(), CommandTotals { keys: 18, ..at(15, 2) });
    }
}
