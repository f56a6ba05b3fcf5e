//! A pattern of paths, as policies write it.

use std::cmp::Ordering;

use super::failures::Failures;

/// A pattern of paths, as policies write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// Such as `/repos/{a}/issues`.
    pub(crate) pattern: String,
    /// Words for a name: the segments that do not vary.
    pub(crate) words: Vec<String>,
    pub(crate) requests: u64,
    pub(crate) failures: Failures,
    /// Which segments vary.
    varying: Vec<usize>,
}

impl Template {
    /// The pattern of these segments, of which those that vary are none. `is_cut`: and of all that
    /// is below.
    pub(super) fn new(segments: &[Option<&str>], is_cut: bool, requests: u64) -> Template {
        let mut pattern = String::new();
        let mut names = 'a'..='z';
        for segment in segments {
            pattern.push('/');
            match (segment, names.clone().next()) {
                (Some(segment), _) => pattern.push_str(segment),
                (None, Some(name)) => {
                    names.next();
                    pattern += &format!("{{{name}}}");
                }
                (None, None) => pattern.push('*'),
            }
        }
        if is_cut {
            pattern.push_str("/**");
        }
        if pattern.is_empty() {
            pattern.push('/');
        }
        let words = segments.iter().flatten().map(|word| word.to_string()).collect();
        let places = segments.iter().enumerate().filter(|(_, segment)| segment.is_none());
        let varying = places.map(|(place, _)| place).collect();
        Template { pattern, words, requests, failures: Failures::default(), varying }
    }

    /// With what failed of its requests.
    pub(super) fn with_failures(self, failures: Failures) -> Template {
        Template { failures, ..self }
    }
}

/// The order of routes: of two that match the same path, first the one that spells out more of its
/// beginning, as the tree is walked.
pub(super) fn in_order(one: &Template, other: &Template) -> Ordering {
    let differ = one.varying.iter().zip(&other.varying).find(|(one, other)| one != other);
    let later_first = differ.map(|(one, other)| other.cmp(one));
    later_first
        .unwrap_or_else(|| one.varying.len().cmp(&other.varying.len()))
        .then_with(|| one.pattern.cmp(&other.pattern))
}
