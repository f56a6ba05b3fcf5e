//! A histogram of latencies whose buckets are at most 3 % wide.

use std::time::Duration;

/// The buckets into which each power of two is divided.
const STEPS: u64 = 32;

/// How often each latency was seen.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self { counts: vec![0; (64 * STEPS) as usize], total: 0, max: 0 }
    }

    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(STEPS);
        let power = u64::from(nanos.ilog2());
        let step = (nanos >> (power - STEPS.ilog2() as u64)) - STEPS;
        self.counts[(power * STEPS + step) as usize] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// The latency, in microseconds, that a share of the records does not exceed.
    fn quantile(&self, share: f64) -> f64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
                return ((STEPS + step) as f64) * 2f64.powi(power as i32 - 5) / 1000.0;
            }
        }
        self.max as f64 / 1000.0
    }

    /// p50, p99, p99.9 and the greatest, in microseconds, and the number of records.
    pub fn summary(&self) -> String {
        format!(
            "{:.1}\t{:.1}\t{:.1}\t{:.0}\t({})",
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(0.999),
            self.max as f64 / 1000.0,
            self.total,
        )
    }
}
