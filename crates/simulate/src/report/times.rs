//! Instants of a report, and the buckets of its timeline.

use jiff::{SignedDuration, Timestamp};

use super::words;
use crate::{Moment, Timeline};

/// An instant without what it does not need: `2026-03-01 14:05:09 UTC`. What is no instant is shown
/// as it is.
pub(super) fn instant(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => text.to_owned(),
    }
}

/// When a bucket of a timeline begins, as exact as its length asks for.
pub(super) fn bucket(timeline: &Timeline, at: usize) -> String {
    let seconds = timeline.bucket_seconds.saturating_mul(at as u64);
    let after = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    let begins = timeline.begins.parse::<Timestamp>();
    match begins.ok().and_then(|begins| begins.checked_add(after).ok()) {
        Some(begins) => begins.strftime(grain(timeline.bucket_seconds)).to_string(),
        None => format!("after {}", words::window(seconds)),
    }
}

fn grain(bucket_seconds: u64) -> &'static str {
    match bucket_seconds {
        seconds if seconds > 0 && seconds.is_multiple_of(86_400) => "%Y-%m-%d",
        seconds if seconds > 0 && seconds.is_multiple_of(60) => "%Y-%m-%d %H:%M",
        _ => "%Y-%m-%d %H:%M:%S",
    }
}

/// The buckets put together to at most so many, each of the same number of buckets but the last.
pub(super) fn merged(timeline: &Timeline, most: usize) -> Timeline {
    let each = timeline.buckets.len().div_ceil(most.max(1)).max(1);
    let sum = |moments: &[Moment]| {
        moments.iter().fold(Moment::default(), |sum, moment| Moment {
            requests: sum.requests + moment.requests,
            denied: sum.denied + moment.denied,
            would_deny: sum.would_deny + moment.would_deny,
        })
    };
    Timeline {
        begins: timeline.begins.clone(),
        bucket_seconds: timeline.bucket_seconds.saturating_mul(each as u64),
        buckets: timeline.buckets.chunks(each).map(sum).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(bucket_seconds: u64, buckets: u64) -> Timeline {
        let moment = |requests| Moment { requests, denied: requests / 2, would_deny: 1 };
        let begins = "2026-03-01T23:00:00Z".into();
        Timeline { begins, bucket_seconds, buckets: (0..buckets).map(moment).collect() }
    }

    #[test]
    fn buckets_have_the_time_at_which_they_begin() {
        for (seconds, at, expected) in [
            (3_600, 2, "2026-03-02 01:00"),
            (86_400, 1, "2026-03-02"),
            (1, 61, "2026-03-01 23:01:01"),
            (0, 3, "2026-03-01 23:00:00"),
        ] {
            assert_eq!(bucket(&timeline(seconds, 4), at), expected);
        }
        assert_eq!(bucket(&Timeline::default(), 0), "after 0 s");
        assert_eq!(bucket(&timeline(u64::MAX, 4), 3), format!("after {}", words::window(u64::MAX)));
    }

    #[test]
    fn merging_loses_nothing() {
        let all = timeline(60, 241);
        let merged = merged(&all, 80);
        assert_eq!(merged.buckets.len(), 61);
        assert_eq!(merged.bucket_seconds, 240);
        let sum = |own: &Timeline| own.buckets.iter().map(|own| own.requests).sum::<u64>();
        assert_eq!(sum(&merged), sum(&all));
    }

    #[test]
    fn instants_are_shown_without_a_fraction() {
        assert_eq!(instant("2026-03-01T23:00:00.123456Z"), "2026-03-01 23:00:00 UTC");
        assert_eq!(instant("yesterday"), "yesterday");
    }
}
