//! What a worker counts of a route.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{Count, Histogram, MethodLabel};

/// Upper bounds of how long requests take, in seconds: those of OpenTelemetry's
/// `http.server.request.duration`.
pub static REQUEST_SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Pairs of method and status that nearly all routes do with.
const USUAL_PAIRS: usize = 12;

/// Further pairs, which are made room for when they are needed.
const FURTHER_PAIRS: usize = 52;

/// What a worker counts of a route.
#[derive(Debug)]
#[repr(align(64))]
pub struct RouteCounters {
    usual: [Pair; USUAL_PAIRS],
    further: OnceLock<Box<[Pair; FURTHER_PAIRS]>>,
    /// Requests with pairs that there was no room for.
    others: Count,
    /// How long requests took.
    pub duration: Histogram<14>,
}

/// Requests with one method and one status.
#[derive(Debug, Default)]
struct Pair {
    /// The method's position times 2^16, plus the status; 0: the pair is free.
    key: AtomicU32,
    count: Count,
}

/// How many requests have a method and a status. None: the pairs that a route has no room for.
pub type RequestTotal = BTreeMap<Option<(MethodLabel, u16)>, u64>;

impl Default for RouteCounters {
    fn default() -> Self {
        RouteCounters {
            usual: Default::default(),
            further: OnceLock::new(),
            others: Count::default(),
            duration: Histogram::new(&REQUEST_SECONDS),
        }
    }
}

impl RouteCounters {
    /// Counts a request.
    pub fn count(&self, method: MethodLabel, status: u16) {
        let key = u32::from(method.position()) << 16 | u32::from(status);
        let found = find(&self.usual, key).or_else(|| {
            let further =
                self.further.get_or_init(|| Box::new(std::array::from_fn(|_| Pair::default())));
            find(further.as_slice(), key)
        });
        found.unwrap_or(&self.others).increment();
    }

    /// Adds the requests of a worker to `total`.
    pub fn add_to(&self, total: &mut RequestTotal) {
        let further = self.further.get().map_or(&[][..], |further| further.as_slice());
        for pair in self.usual.iter().chain(further) {
            let key = pair.key.load(Ordering::Relaxed);
            if key == 0 {
                break;
            }
            let label = MethodLabel::at((key >> 16) as u8);
            *total.entry(Some((label, key as u16))).or_default() += pair.count.get();
        }
        match self.others.get() {
            0 => {}
            others => *total.entry(None).or_default() += others,
        }
    }
}

/// The count of a pair, which takes a free place if it has none.
fn find(pairs: &[Pair], key: u32) -> Option<&Count> {
    for pair in pairs {
        match pair.key.load(Ordering::Relaxed) {
            0 => pair.key.store(key, Ordering::Relaxed),
            own if own == key => {}
            _ => continue,
        }
        return Some(&pair.count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_status_and_never_lost() {
        let counters = [RouteCounters::default(), RouteCounters::default()];
        for status in 100..600 {
            counters[0].count(MethodLabel::GET, status);
        }
        counters[0].count(MethodLabel::GET, 100);
        counters[1].count(MethodLabel::GET, 100);
        counters[1].count(MethodLabel::OTHER, 100);
        let mut total = RequestTotal::new();
        counters.iter().for_each(|own| own.add_to(&mut total));
        assert_eq!(total[&Some((MethodLabel::GET, 100))], 3);
        assert_eq!(total[&Some((MethodLabel::OTHER, 100))], 1);
        assert_eq!(total[&Some((MethodLabel::GET, 163))], 1);
        assert_eq!(total[&None], 500 - 64);
        assert_eq!(total.values().sum::<u64>(), 503);
    }
}
