//! What servers have answered, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use tollgate_observe::metrics::{Count, Histogram, HistogramTotal, REQUEST_SECONDS};

/// How many requests a server has answered with a status of each class, and how many it got for
/// which there is no response: see [`AnswerCounts::NAMES`].
#[derive(Debug, Default)]
pub struct AnswerCounts([AtomicU64; 6]);

/// What a worker counts of an upstream.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct UpstreamCounters {
    /// How long servers took for the head of a response, each attempt on its own.
    pub(super) duration: Histogram<14>,
    /// Attempts after the first one of a request.
    pub(super) retries: Count,
}

/// What was counted of an upstream by all workers.
#[derive(Clone, Debug)]
pub struct UpstreamTotal {
    /// How long servers took for the head of a response.
    pub duration: HistogramTotal,
    /// Attempts after the first one of a request.
    pub retries: u64,
}

impl AnswerCounts {
    /// The names of the counts, in their order.
    pub const NAMES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "error"];

    /// Counts a response with this status; none: there is no response.
    pub(super) fn count(&self, status: Option<StatusCode>) {
        let class = status.and_then(|status| usize::from(status.as_u16() / 100).checked_sub(1));
        let [.., errors] = &self.0;
        class.and_then(|class| self.0.get(class)).unwrap_or(errors).fetch_add(1, Ordering::Relaxed);
    }

    /// The counts, in the order of their names.
    pub(super) fn get(&self) -> [u64; 6] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

impl Default for UpstreamCounters {
    fn default() -> Self {
        UpstreamCounters { duration: Histogram::new(&REQUEST_SECONDS), retries: Count::default() }
    }
}

impl UpstreamTotal {
    pub(super) fn of<'c>(all: impl Iterator<Item = &'c UpstreamCounters> + Clone) -> Self {
        UpstreamTotal {
            duration: Histogram::total(&REQUEST_SECONDS, all.clone().map(|own| &own.duration)),
            retries: all.map(|own| own.retries.get()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class() {
        let counts = AnswerCounts::default();
        for status in [101, 200, 204, 301, 404, 429, 418, 599] {
            counts.count(Some(StatusCode::from_u16(status).unwrap()));
        }
        counts.count(Some(StatusCode::from_u16(999).unwrap()));
        counts.count(None);
        assert_eq!(counts.get(), [1, 2, 1, 3, 1, 2]);
    }
}
