//! How many times were how long.

use std::time::Duration;

use super::Count;

/// Counts of durations by fixed upper bounds.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    /// In seconds, ascending.
    bounds: &'static [f64; N],
    /// Durations up to the bound at the same position, and above the one before it.
    counts: [Count; N],
    /// Durations above all bounds.
    longer: Count,
    sum_nanos: Count,
}

/// The sum of some histograms with the same bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramTotal {
    /// Each bound in seconds, and how many durations are not above it: as Prometheus writes it.
    pub cumulative: Vec<(f64, u64)>,
    /// How many durations there are.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
}

impl<const N: usize> Histogram<N> {
    /// No durations yet. `bounds` are in seconds, ascending.
    pub fn new(bounds: &'static [f64; N]) -> Self {
        Histogram {
            bounds,
            counts: std::array::from_fn(|_| Count::default()),
            longer: Count::default(),
            sum_nanos: Count::default(),
        }
    }

    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let at = self.bounds.iter().position(|bound| seconds <= *bound);
        at.and_then(|at| self.counts.get(at)).unwrap_or(&self.longer).increment();
        self.sum_nanos.add(duration.as_nanos() as u64);
    }

    /// The sum of histograms of several workers.
    pub fn total<'h>(
        bounds: &[f64; N],
        all: impl Iterator<Item = &'h Histogram<N>>,
    ) -> HistogramTotal {
        let (mut counts, mut longer, mut nanos) = ([0; N], 0, 0_u64);
        for histogram in all {
            for (count, own) in counts.iter_mut().zip(&histogram.counts) {
                *count += own.get();
            }
            longer += histogram.longer.get();
            nanos = nanos.wrapping_add(histogram.sum_nanos.get());
        }
        let mut count = 0;
        let cumulative = bounds.iter().zip(counts).map(|(bound, own)| {
            count += own;
            (*bound, count)
        });
        let cumulative = cumulative.collect();
        let count = count + longer;
        HistogramTotal { cumulative, count, sum: nanos as f64 / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_their_bound() {
        static BOUNDS: [f64; 2] = [0.1, 1.0];
        let workers = [Histogram::new(&BOUNDS), Histogram::new(&BOUNDS)];
        workers[0].record(Duration::from_millis(100));
        workers[0].record(Duration::from_millis(101));
        workers[1].record(Duration::from_secs(1));
        workers[1].record(Duration::from_millis(1_001));
        let total = Histogram::total(&BOUNDS, workers.iter());
        assert_eq!(total.cumulative, [(0.1, 1), (1.0, 3)]);
        assert_eq!(total.count, 4);
        assert!((total.sum - 2.202).abs() < 1e-9, "{}", total.sum);
    }
}
