//! What two path patterns have in common, and paths to try patterns with.
//!
//! A sample has texts that no pattern spells out where its pattern has `*` or `{name}`. So what
//! matches a sample matches every path of its depth that the sample's pattern does.

use std::{fmt, ops::RangeInclusive};

use super::{PathPattern, Segment, written};

impl PathPattern {
    /// The pattern of all paths that both match; none if there are none.
    pub fn overlap(&self, other: &PathPattern) -> Option<PathPattern> {
        let depth = self.depth().max(other.depth());
        let reaches = |pattern: &PathPattern| pattern.open_ended || pattern.depth() == depth;
        if !reaches(self) || !reaches(other) {
            return None;
        }
        let both = |at: usize| match (self.segments.get(at), other.segments.get(at)) {
            (Some(Segment::Literal(own)), Some(Segment::Literal(other))) if own != other => None,
            (Some(Segment::Any(_)), Some(literal @ Segment::Literal(_))) => Some(literal),
            (Some(Segment::Any(None)), Some(named)) => Some(named),
            (own, other) => own.or(other),
        };
        let segments = (0..depth).map(|at| both(at).cloned()).collect::<Option<Vec<Segment>>>()?;
        let open_ended = self.open_ended && other.open_ended;
        Some(PathPattern { segments, open_ended })
    }

    /// Whether every path that `other` matches is one that this matches.
    pub(crate) fn covers(&self, other: &PathPattern) -> bool {
        let is_long_enough = match (self.open_ended, other.open_ended) {
            (true, _) => self.depth() <= other.depth(),
            (false, true) => false,
            (false, false) => self.depth() == other.depth(),
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        is_long_enough
            && pairs.all(|(own, other)| match (own, other) {
                (Segment::Any(_), _) => true,
                (Segment::Literal(own), Segment::Literal(other)) => own == other,
                (Segment::Literal(_), Segment::Any(_)) => false,
            })
    }

    /// Whether there is but one path that matches.
    pub(crate) fn is_one_path(&self) -> bool {
        let is_literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
        !self.open_ended && self.segments.iter().all(is_literal)
    }

    /// Whether it matches all that is below.
    pub(super) fn is_open_ended(&self) -> bool {
        self.open_ended
    }

    /// Segments that a path has that matches, at least.
    pub fn depth(&self) -> usize {
        self.segments.len()
    }

    /// Which segment the pattern calls `{name}`.
    pub fn parameter_at(&self, name: &str) -> Option<usize> {
        self.segments.iter().position(|segment| segment.is_parameter(name))
    }

    /// One path of each depth that matches, up to `max_depth`.
    pub fn samples(&self, max_depth: usize) -> impl Iterator<Item = String> {
        self.depths(max_depth).map(|depth| self.sample(depth, &[]))
    }

    /// The same, with what another pattern spells out where this one does not, to below its depth.
    pub(super) fn samples_beside(&self, other: &PathPattern) -> impl Iterator<Item = String> {
        self.depths(other.depth() + 1).map(|depth| self.sample(depth, &other.segments))
    }

    fn depths(&self, most: usize) -> RangeInclusive<usize> {
        match self.open_ended {
            true => self.depth()..=most.max(self.depth()),
            false => self.depth()..=self.depth(),
        }
    }

    fn sample(&self, depth: usize, others: &[Segment]) -> String {
        let segment = |at: usize| match (self.segments.get(at), others.get(at)) {
            (Some(Segment::Literal(literal)), _)
            | (Some(Segment::Any(_)) | None, Some(Segment::Literal(literal))) => {
                format!("/{literal}")
            }
            // A space is in no path of normal form, so no pattern spells this out.
            (Some(Segment::Any(_)) | None, Some(Segment::Any(_)) | None) => format!("/ {at}"),
        };
        match depth {
            0 => "/".to_owned(),
            _ => (0..depth).map(segment).collect(),
        }
    }
}

impl fmt::Display for PathPattern {
    /// As policies write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{}", written(literal))?,
                Segment::Any(None) => f.write_str("/*")?,
                Segment::Any(Some(name)) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.open_ended, self.segments.is_empty()) {
            (true, _) => f.write_str("/**"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn overlap_is_what_both_match() {
        for (left, right, expected) in [
            ("/**", "/", Some("/")),
            ("/**", "/repos/**", Some("/repos/**")),
            ("/repos/{owner}/**", "/repos/*/{repo}", Some("/repos/{owner}/{repo}")),
            ("/{a}/x", "/y/{b}", Some("/y/x")),
            ("/a", "/b", None),
            ("/a/*", "/a", None),
            ("/a/**", "/*", Some("/a")),
        ] {
            for (left, right) in [(left, right), (right, left)] {
                let overlap = pattern(left).overlap(&pattern(right));
                let written = overlap.map(|overlap| overlap.to_string());
                assert_eq!(written.as_deref(), expected, "{left} and {right}");
            }
        }
    }

    #[test]
    fn one_path_has_no_wildcards() {
        for (text, expected) in
            [("/", true), ("/a/b", true), ("/a/*", false), ("/a/{b}", false), ("/a/**", false)]
        {
            assert_eq!(pattern(text).is_one_path(), expected, "{text}");
        }
    }

    #[test]
    fn samples_go_below_patterns_with_open_ends_only() {
        let samples = |text: &str| pattern(text).samples(3).collect::<Vec<_>>();
        assert_eq!(samples("/a/{b}"), ["/a/ 1"]);
        assert_eq!(samples("/a/**"), ["/a", "/a/ 1", "/a/ 1/ 2"]);
        assert_eq!(samples("/**"), ["/", "/ 0", "/ 0/ 1", "/ 0/ 1/ 2"]);
    }

    #[test]
    fn no_pattern_spells_out_what_samples_are_made_of() {
        assert!(PathPattern::parse("/ 0").is_err());
    }

    fn any_pattern() -> impl Strategy<Value = String> {
        let segment = prop::sample::select(vec!["a", "b", "*", "{x}"]);
        (prop::collection::vec(segment, 0..4), any::<bool>()).prop_filter_map(
            "a name comes once",
            |(segments, is_open)| {
                let end = if is_open { "/**" } else { "" };
                let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
                let text = if path.is_empty() && !is_open { "/".into() } else { path + end };
                PathPattern::parse(&text).ok().map(|_| text)
            },
        )
    }

    proptest! {
        #[test]
        fn prop_pattern_is_shown_as_it_was_written(text in any_pattern()) {
            prop_assert_eq!(pattern(&text).to_string(), text);
        }

        #[test]
        fn prop_pattern_covers_those_whose_overlap_with_it_is_themselves(
            left in any_pattern(),
            right in any_pattern(),
        ) {
            let left = pattern(&left);
            let right = pattern(&right);
            // Names of parameters make no difference to what matches.
            let shape = |pattern: &PathPattern| pattern.samples(9).collect::<Vec<_>>();
            let overlap = left.overlap(&right);
            let expected = overlap.is_some_and(|overlap| shape(&overlap) == shape(&right));
            prop_assert_eq!(left.covers(&right), expected);
        }

        #[test]
        fn prop_overlap_matches_what_both_match(
            left in any_pattern(),
            right in any_pattern(),
            path in "(/[abc]){0,5}",
        ) {
            let left = pattern(&left);
            let right = pattern(&right);
            let overlap = left.overlap(&right);
            let expected = left.matches(&path) && right.matches(&path);
            prop_assert_eq!(overlap.is_some_and(|overlap| overlap.matches(&path)), expected);
        }
    }
}
