//! Which traces are recorded.

use super::{Parent, TraceId};

/// A share of all traces, chosen by their ids, so that each proxy and each service with the same
/// share chooses the same traces (OpenTelemetry's `TraceIdRatioBased`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(u64);

/// What the flag of a parent means for its children here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentFlag {
    /// A trace that the parent records is recorded here too; of others, the usual share is.
    #[default]
    Adds,
    /// It decides, and the share is of traces that begin here.
    Decides,
    /// Nothing: the share decides about all traces.
    Ignored,
}

/// Which traces are recorded whatever comes of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The share of traces.
    pub ratio: Ratio,
    /// What the flag of a trusted parent means.
    pub parent: ParentFlag,
}

/// One more than the highest number that a trace is compared by.
const ALL: u64 = 1 << 63;

impl Ratio {
    /// A share from 0 to 1. None: it is no such share.
    pub fn new(share: f64) -> Option<Ratio> {
        (0.0..=1.0).contains(&share).then_some(Ratio((share * ALL as f64) as u64))
    }

    /// Whether a trace is in the share.
    pub(super) fn has(self, trace: TraceId) -> bool {
        trace.low() >> 1 < self.0
    }
}

impl Sampling {
    /// Whether a trace is recorded that has this parent, if it has one.
    pub(super) fn samples(self, trace: TraceId, parent: Option<Parent>) -> bool {
        match (self.parent, parent) {
            (ParentFlag::Adds, Some(parent)) => parent.is_sampled || self.ratio.has(trace),
            (ParentFlag::Decides, Some(parent)) => parent.is_sampled,
            (ParentFlag::Ignored, Some(_)) | (_, None) => self.ratio.has(trace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::IdSource;

    fn trace(low: u64) -> TraceId {
        TraceId::new((1 << 100) | u128::from(low)).unwrap()
    }

    #[test]
    fn share_is_of_the_last_bytes_as_in_opentelemetry() {
        // The vectors follow from the rule: the last eight bytes, halved, below share * 2^63.
        for (share, low, expected) in [
            (0.0, 0, false),
            (1.0, u64::MAX, true),
            (0.5, u64::MAX / 2, true),
            (0.5, u64::MAX / 2 + 1, false),
            (0.25, (1 << 62) - 1, true),
            (0.25, 1 << 62, false),
            (0.01, 1, true),
        ] {
            assert_eq!(Ratio::new(share).unwrap().has(trace(low)), expected, "{share} {low}");
        }
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::new(share), None);
        }
    }

    #[test]
    fn about_the_share_of_new_traces_is_recorded() {
        let ids = IdSource::default();
        let ratio = Ratio::new(0.1).unwrap();
        let recorded = (0..100_000).filter(|_| ratio.has(ids.trace_id())).count();
        assert!((9_000..11_000).contains(&recorded), "{recorded}");
    }

    #[test]
    fn flag_of_the_parent_means_what_the_rule_says() {
        let span_id = IdSource::default().span_id();
        for (rule, is_sampled, in_share, expected) in [
            (ParentFlag::Adds, true, false, true),
            (ParentFlag::Adds, false, true, true),
            (ParentFlag::Adds, false, false, false),
            (ParentFlag::Decides, true, false, true),
            (ParentFlag::Decides, false, true, false),
            (ParentFlag::Ignored, true, false, false),
            (ParentFlag::Ignored, false, true, true),
        ] {
            let trace_id = trace(if in_share { 1 } else { u64::MAX });
            let sampling = Sampling { ratio: Ratio::new(0.5).unwrap(), parent: rule };
            let parent = Some(Parent { trace_id, span_id, is_sampled });
            assert_eq!(sampling.samples(trace_id, parent), expected, "{rule:?} {is_sampled}");
            assert_eq!(sampling.samples(trace_id, None), in_share);
        }
    }
}
