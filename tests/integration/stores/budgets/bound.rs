//! What is promised: however requests interleave, what those of any window have cost is no more
//! than the limit and what the requests in flight cost above their reserves.

use tollgate_clock::Timestamp;
use tollgate_limit::{Quota, TokenBucket};

/// A request that was admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    /// How many were admitted before it.
    pub(super) number: usize,
    /// When it was.
    pub(super) at: Timestamp,
    /// The end of the window that it was charged to, as the store has reported it.
    pub(super) reset: Timestamp,
    pub(super) reserved: u32,
    /// What it has cost.
    pub(super) cost: u32,
    /// How many requests had been admitted when it was settled; none: it never was.
    pub(super) settled: Option<usize>,
}

/// Checks what is promised of all requests of a counter, in the order of their admission.
pub(super) fn check(quota: &Quota, all: &[Admitted]) -> Result<(), String> {
    (1..=all.len()).try_for_each(|count| check_last(quota, &all[..count]))
}

/// Checks the windows that the last request is the last one of.
fn check_last(quota: &Quota, all: &[Admitted]) -> Result<(), String> {
    let Some(last) = all.last() else { return Ok(()) };
    let cost_of = |is_in: &dyn Fn(&Admitted) -> bool| -> u64 {
        all.iter().filter(|request| is_in(request)).map(|request| u64::from(request.cost)).sum()
    };
    let excess_of = |is_in: &dyn Fn(&Admitted) -> bool| -> u64 {
        let in_flight = |request: &&Admitted| request.settled.is_none_or(|by| by >= all.len());
        let excess = |request: &Admitted| u64::from(request.cost.saturating_sub(request.reserved));
        all.iter().filter(|request| is_in(request)).filter(in_flight).map(excess).sum()
    };
    let expect = |spent: u64, limit: u64, excess: u64| match spent <= limit + excess {
        true => Ok(()),
        false => Err(format!("{spent} were spent, and not {limit} and {excess}, until {last:?}")),
    };
    let any = |_: &Admitted| true;
    let limit = u64::from(quota.capacity());
    match quota {
        Quota::FixedWindow(_) => {
            let is_in = |request: &Admitted| request.reset == last.reset;
            expect(cost_of(&is_in), limit, excess_of(&is_in))
        }
        Quota::SlidingWindow(quota) => {
            let length = quota.window.as_micros() as u64;
            let index = |request: &Admitted| request.at.as_micros() / length;
            let before = cost_of(&|request| index(request) + 1 == index(last)).min(limit);
            let covered = length - last.at.as_micros() % length;
            let current = cost_of(&|request| index(request) == index(last));
            expect(current + (before * covered).div_ceil(length), limit, excess_of(&any))
        }
        Quota::SlidingLog(quota) => {
            let is_in = |request: &Admitted| last.at < request.at + quota.window;
            expect(cost_of(&is_in), limit, excess_of(&is_in))
        }
        Quota::TokenBucket(_) | Quota::Gcra(_) => (0..all.len()).try_for_each(|first| {
            let come = refill(quota, all[first].at, last.at) + given_back_late(all, first);
            let is_in = |request: &Admitted| request.number >= first;
            expect(cost_of(&is_in), limit + come, excess_of(&is_in))
        }),
        Quota::Concurrency(_) => Ok(()),
    }
}

/// Units that were given back since the admission of the request `first`, of those admitted before:
/// some may have come back by themselves already, which a counter of two numbers does not know if
/// others were given back meanwhile.
fn given_back_late(all: &[Admitted], first: usize) -> u64 {
    let is_late = |request: &&Admitted| {
        request.settled.is_some_and(|by| (first + 1..all.len()).contains(&by))
    };
    let back = |request: &Admitted| u64::from(request.reserved.saturating_sub(request.cost));
    all[..first].iter().filter(is_late).map(back).sum()
}

/// The most units that can come between two instants.
fn refill(quota: &Quota, from: Timestamp, until: Timestamp) -> u64 {
    let passed = until.saturating_since(from).as_micros();
    let come = match quota {
        Quota::TokenBucket(TokenBucket { refill, interval, even: true, .. }) => {
            passed * u128::from(*refill) / interval.as_micros() + 1
        }
        Quota::TokenBucket(TokenBucket { refill, interval, .. }) => {
            (passed / interval.as_micros() + 1) * u128::from(*refill)
        }
        Quota::Gcra(quota) => (passed * u128::from(quota.limit)).div_ceil(quota.window.as_micros()),
        _ => 0,
    };
    come as u64
}
