//! Judges what proxies hold in memory. There are few callers and servers, so little may be there at
//! any moment, whatever goes wrong; and when all has been sent and answered, nothing is left but
//! counters and connections.

use tollgate_store::Census;

use crate::memory::Held;

/// How much there may be in one proxy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Counters of all callers together.
    pub(crate) counters: usize,
    /// Servers and Sentinels.
    pub(crate) servers: usize,
    /// Requests that it can be asked to decide at once.
    pub(crate) requests: usize,
    /// Charges that were ever given back.
    pub(crate) refunds: usize,
}

/// Refunds of one counter that may wait, as the store bounds them.
const MAX_REFUNDS: usize = 64;

/// A server may have a connection for charges and one for reads.
const CONNECTIONS_OF_SERVER: usize = 2;

/// A review sends three queries to each server at once, and each of a worker's own tasks one.
const CALLS_OF_SERVER: usize = 3 + OWN_TASKS;

/// What a worker does by itself, one of each at most: it announces itself, reads what others
/// announce, reads resets, restores counters.
const OWN_TASKS: usize = 5;

/// What is wrong with what proxies hold.
pub(super) fn judge(held: &[Held], room: &Room) -> Vec<String> {
    let of_proxy = |(proxy, held): (usize, &Held)| {
        [judge_most(proxy, &held.most, room), judge_rest(proxy, held, room)].concat()
    };
    held.iter().enumerate().flat_map(of_proxy).collect()
}

fn judge_most(proxy: usize, most: &Census, room: &Room) -> Vec<String> {
    let Room { counters, servers, requests, refunds } = *room;
    let bounds = [
        ("tasks that hold the store", most.holders, 1 + OWN_TASKS + counters + requests),
        // A counter with something pending may have room reserved at the same time.
        ("pending counters", most.pending, 2 * counters),
        ("waiting refunds", most.waiting_refunds, counters * MAX_REFUNDS),
        ("adjustments under way", most.settlements, refunds),
        ("connections", most.connections, CONNECTIONS_OF_SERVER * servers),
        ("cached counters", most.cached, counters),
        ("local counters", most.local, counters),
        ("counters to restore", most.to_reseed, counters),
        ("waiting requests", most.waiting, 0),
    ];
    beyond(&format!("proxy {proxy} had at most"), &bounds)
}

/// All has been sent and answered for a while.
fn judge_rest(proxy: usize, Held { rest, connections, .. }: &Held, room: &Room) -> Vec<String> {
    let bounds = [
        // The worker, this count, and its own tasks.
        ("tasks that hold the store", rest.holders, 2 + OWN_TASKS),
        ("pending counters", rest.pending, 0),
        ("waiting refunds", rest.waiting_refunds, 0),
        ("adjustments under way", rest.settlements, 0),
        ("connections", rest.connections, CONNECTIONS_OF_SERVER * room.servers),
        ("open connections", *connections, rest.connections),
        ("calls without a reply", rest.calls, CALLS_OF_SERVER * room.servers),
        ("cached counters", rest.cached, room.counters),
        ("local counters", rest.local, room.counters),
        ("counters to restore", rest.to_reseed, 0),
        ("waiting requests", rest.waiting, 0),
    ];
    beyond(&format!("proxy {proxy} still has"), &bounds)
}

fn beyond(who: &str, bounds: &[(&str, usize, usize)]) -> Vec<String> {
    let too_many = bounds.iter().filter(|(_, number, most)| number > most);
    too_many.map(|(what, number, most)| format!("{who} {number} {what}, of {most}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { counters: 8, servers: 1, requests: 5, refunds: 10 };

    /// What a proxy holds at rest.
    fn held() -> Held {
        let rest = Census { holders: 2, connections: 2, cached: 8, ..Census::default() };
        Held { most: rest, rest, connections: 2 }
    }

    #[test]
    fn proxy_at_rest_is_not_broken() {
        assert_eq!(judge(&[held()], &ROOM), Vec::<String>::new());
    }

    #[test]
    fn what_is_left_or_piles_up_is_broken() {
        let changes: [fn(&mut Held); 9] = [
            |held| held.rest.holders = 8,
            |held| held.rest.pending = 1,
            |held| held.rest.waiting_refunds = 1,
            |held| held.rest.settlements = 1,
            |held| held.rest.to_reseed = 1,
            |held| held.connections = 3,
            |held| held.most.connections = 3,
            |held| held.most.cached = 9,
            |held| held.most.settlements = 11,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut held = held();
            change(&mut held);
            assert_eq!(judge(&[held], &ROOM).len(), 1, "change {number}");
        }
    }
}
