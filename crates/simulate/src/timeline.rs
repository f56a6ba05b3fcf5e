//! Requests and denials over time, in buckets that grow with the log.

use tollgate_clock::Timestamp;

use super::{Moment, Timeline};

/// The lengths of buckets, in seconds, from one to ten years of 52 weeks. Each one divides the
/// next.
const LENGTHS: [u64; 13] =
    [1, 5, 15, 60, 300, 900, 3600, 21_600, 86_400, 604_800, 2_419_200, 31_449_600, LONGEST];

/// The last of these: with it, few enough buckets reach from 1970 to after the year 4000.
const LONGEST: u64 = 314_496_000;

/// The most buckets.
const MOST: usize = 240;

/// Requests and denials in buckets: the shortest ones that are few enough.
#[derive(Default)]
pub(super) struct Moments {
    /// The position of the buckets' length.
    length: usize,
    /// The number of the first bucket since the epoch.
    first: u64,
    buckets: Vec<Moment>,
}

impl Moments {
    /// The bucket of an instant.
    pub(super) fn at(&mut self, time: Timestamp) -> &mut Moment {
        loop {
            let number = time.as_micros() / 1_000_000 / self.seconds();
            if self.buckets.is_empty() {
                self.first = number;
            }
            // What comes late is counted in the first one.
            let at = number.saturating_sub(self.first) as usize;
            if at < MOST || self.length + 1 == LENGTHS.len() {
                let at = at.min(MOST - 1);
                if at >= self.buckets.len() {
                    self.buckets.resize(at + 1, Moment::default());
                }
                // It is there: the list is as long.
                #[expect(clippy::indexing_slicing, reason = "the list was made as long")]
                return &mut self.buckets[at];
            }
            self.lengthen();
        }
    }

    /// As it is shown.
    pub(super) fn report(self) -> Timeline {
        let seconds = self.seconds();
        let begins = Timestamp::from_secs(self.first * seconds);
        Timeline {
            begins: if self.buckets.is_empty() { String::new() } else { begins.to_string() },
            bucket_seconds: seconds,
            buckets: self.buckets,
        }
    }

    fn seconds(&self) -> u64 {
        LENGTHS.get(self.length).copied().unwrap_or(LONGEST)
    }

    /// Makes the buckets longer: several of them become one.
    fn lengthen(&mut self) {
        let before = self.seconds();
        self.length += 1;
        let times = self.seconds() / before;
        let first = self.first / times;
        let mut buckets: Vec<Moment> = Vec::with_capacity(MOST);
        for (number, moment) in (self.first..).zip(&self.buckets) {
            let at = (number / times - first) as usize;
            if at >= buckets.len() {
                buckets.resize(at + 1, Moment::default());
            }
            if let Some(sum) = buckets.get_mut(at) {
                sum.requests += moment.requests;
                sum.denied += moment.denied;
                sum.would_deny += moment.would_deny;
            }
        }
        (self.first, self.buckets) = (first, buckets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_become_longer_and_lose_nothing() {
        let mut moments = Moments::default();
        let start = 1_790_000_003;
        for second in (0..100_000).step_by(7) {
            moments.at(Timestamp::from_secs(start + second)).requests += 1;
        }
        moments.at(Timestamp::from_secs(start - 5)).denied += 1;
        let timeline = moments.report();
        assert_eq!(timeline.bucket_seconds, 900);
        assert!(timeline.buckets.len() <= MOST);
        let requests: u64 = timeline.buckets.iter().map(|moment| moment.requests).sum();
        assert_eq!(requests, 100_000_u64.div_ceil(7));
        assert_eq!(timeline.buckets[0].denied, 1);
        let begins = Timestamp::from_secs(start / 900 * 900).to_string();
        assert_eq!(timeline.begins, begins);
    }
}
