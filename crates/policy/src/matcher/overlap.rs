//! What two path patterns have in common, and paths to try patterns with.
//!
//! Samples have texts that no pattern spells out where their pattern has `*` or `{name}`. So what
//! matches all samples of a depth matches every path of that depth that their pattern does.

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
            (Some(own), Some(other)) => own.overlap(other),
            (own, other) => own.or(other).cloned(),
        };
        let segments = (0..depth).map(both).collect::<Option<Vec<Segment>>>()?;
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
        is_long_enough && pairs.all(|(own, other)| own.covers(other))
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

    /// Paths of each depth that matches, up to `max_depth`: one, or several where the beginning and
    /// the end of a segment may meet.
    pub fn samples(&self, max_depth: usize) -> impl Iterator<Item = String> {
        self.depths(max_depth).flat_map(|depth| self.samples_of(depth))
    }

    /// Each sample of a segment with each of the others.
    fn samples_of(&self, depth: usize) -> impl Iterator<Item = String> {
        let texts: Vec<Vec<String>> = (0..depth)
            .map(|at| match self.segments.get(at) {
                Some(Segment::Affix(affix)) => affix.samples(&between(at)),
                own => vec![own.map_or_else(|| between(at), |own| own.sample(at, None))],
            })
            .collect();
        let all = texts.iter().map(Vec::len).fold(1, usize::saturating_mul);
        (0..all).map(move |number| {
            let mut rest = number;
            let chosen = texts.iter().filter_map(|texts| {
                let at = rest % texts.len();
                rest /= texts.len();
                texts.get(at).map(|text| format!("/{text}"))
            });
            let path: String = chosen.collect();
            if path.is_empty() { "/".to_owned() } else { path }
        })
    }

    /// A path of each depth that matches, up to below another pattern's, with what that one spells
    /// out where this one does not.
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
        let segment = |at: usize| {
            let text = match (self.segments.get(at), others.get(at)) {
                (Some(own), other) => own.sample(at, other),
                (None, Some(other)) => other.sample(at, None),
                (None, None) => between(at),
            };
            format!("/{text}")
        };
        match depth {
            0 => "/".to_owned(),
            _ => (0..depth).map(segment).collect(),
        }
    }
}

/// A text of which no pattern spells out the beginning or the end: a space is in no path of normal
/// form.
fn between(at: usize) -> String {
    format!(" {at} ")
}

impl Segment {
    /// What both match. A name is kept if both match any text.
    fn overlap(&self, other: &Segment) -> Option<Segment> {
        match (self, other) {
            (Segment::Any(None), other) => Some(other.clone()),
            (own, Segment::Any(_)) => Some(own.clone()),
            (Segment::Any(_), other) => Some(other.clone()),
            (Segment::Literal(own), Segment::Literal(other)) => {
                (own == other).then(|| self.clone())
            }
            (Segment::Affix(affix), literal @ Segment::Literal(text))
            | (literal @ Segment::Literal(text), Segment::Affix(affix)) => {
                affix.has(text).then(|| literal.clone())
            }
            (Segment::Affix(own), Segment::Affix(other)) => own.overlap(other).map(Segment::Affix),
        }
    }

    /// Whether it matches all that `other` matches.
    fn covers(&self, other: &Segment) -> bool {
        match (self, other) {
            (Segment::Any(_), _) => true,
            (Segment::Literal(own), Segment::Literal(other)) => own == other,
            (Segment::Affix(own), Segment::Literal(other)) => own.has(other),
            (Segment::Affix(own), Segment::Affix(other)) => own.covers(other),
            (Segment::Literal(_), Segment::Affix(_) | Segment::Any(_))
            | (Segment::Affix(_), Segment::Any(_)) => false,
        }
    }

    /// A text that it matches; one that `beside` matches, too, if there is one.
    fn sample(&self, at: usize, beside: Option<&Segment>) -> String {
        let both = beside.and_then(|beside| self.overlap(beside));
        match both.as_ref().unwrap_or(self) {
            Segment::Literal(literal) => literal.to_string(),
            Segment::Affix(affix) => affix.samples(&between(at)).swap_remove(0),
            Segment::Any(_) => between(at),
        }
    }
}

impl fmt::Display for PathPattern {
    /// As policies write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{}", written(literal))?,
                Segment::Affix(affix) => write!(f, "/{affix}")?,
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
    use std::sync::LazyLock;

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
            ("/report-*", "/{x}", Some("/report-*")),
            ("/report-*", "/report-1", Some("/report-1")),
            ("/report-*", "/reports", None),
            ("/a*", "/ab*", Some("/ab*")),
            ("/a*", "/b*", None),
            ("/*.php", "/admin-*", Some("/admin-*.php")),
            ("/ab*", "/*bc", Some("/ab*&*bc")),
            ("/ab*bc", "/ab*", Some("/ab*bc")),
            ("/*9", "/*%A9", None),
            ("/*.php", "/a/**", None),
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
        for (text, expected) in [
            ("/", true),
            ("/a/b", true),
            ("/a/*", false),
            ("/a/{b}", false),
            ("/a/**", false),
            ("/a*", false),
        ] {
            assert_eq!(pattern(text).is_one_path(), expected, "{text}");
        }
    }

    #[test]
    fn samples_go_below_patterns_with_open_ends_only() {
        let samples = |text: &str| pattern(text).samples(3).collect::<Vec<_>>();
        assert_eq!(samples("/a/{b}"), ["/a/ 1 "]);
        assert_eq!(samples("/a/**"), ["/a", "/a/ 1 ", "/a/ 1 / 2 "]);
        assert_eq!(samples("/**"), ["/", "/ 0 ", "/ 0 / 1 ", "/ 0 / 1 / 2 "]);
        assert_eq!(samples("/a*b/*.c"), ["/a 0 b/ 1 .c"]);
    }

    /// Or a pattern that matches but the longer ones would seem to match all of them.
    #[test]
    fn samples_have_the_texts_in_which_beginning_and_end_meet() {
        let overlap = pattern("/aba*/x").overlap(&pattern("/*aba/*")).unwrap();
        let samples: Vec<String> = overlap.samples(3).collect();
        assert_eq!(samples, ["/aba 0 aba/x", "/ababa/x", "/aba/x"]);
    }

    #[test]
    fn no_pattern_spells_out_what_samples_are_made_of() {
        for text in ["/ 0 ", "/ *", "/* "] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
    }

    /// A literal, or one with a `*` in it.
    fn one_segment() -> impl Strategy<Value = String> {
        "[ab]{0,3}\\*[ab]{0,3}|[ab]{1,3}"
    }

    /// All texts of a few letters, of which no pattern has the last.
    static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..7 {
            let longer = |text: String| ["a", "b", "c"].map(|letter| format!("{text}{letter}"));
            last = last.into_iter().flat_map(longer).collect();
            all.extend(last.iter().map(|text| format!("/{text}")));
        }
        all.split_off(1)
    });

    fn any_pattern() -> impl Strategy<Value = String> {
        let segment = prop_oneof![
            prop::sample::select(vec!["a", "b", "*", "{x}"]).prop_map(str::to_owned),
            one_segment(),
        ];
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
            let shape = |pattern: &PathPattern| pattern.to_string().replace("{x}", "*");
            let overlap = left.overlap(&right);
            let expected = overlap.is_some_and(|overlap| shape(&overlap) == shape(&right));
            prop_assert_eq!(left.covers(&right), expected);
        }

        /// Of one segment, with all texts that could tell.
        #[test]
        fn prop_overlap_and_cover_agree_with_all_texts(
            patterns in prop::array::uniform3(one_segment()),
        ) {
            let [left, right, third] = patterns.map(|text| pattern(&format!("/{text}")));
            let of = |pattern: &PathPattern| -> Vec<bool> {
                TEXTS.iter().map(|text| pattern.matches(text)).collect()
            };
            let both = |one: &[bool], other: &[bool]| -> Vec<bool> {
                one.iter().zip(other).map(|(one, other)| *one && *other).collect()
            };
            let (of_left, of_right, of_third) = (of(&left), of(&right), of(&third));
            let expected = both(&of_left, &of_right);
            prop_assert_eq!(left.covers(&right), expected == of_right, "{} {}", left, right);
            let Some(overlap) = left.overlap(&right) else {
                prop_assert!(!expected.contains(&true), "{} {}", left, right);
                return Ok(());
            };
            prop_assert_eq!(&of(&overlap), &expected, "{} {}", left, right);
            // What a third one has in common with both, and whether it leaves something of it.
            let of_all = both(&expected, &of_third);
            let found = overlap.overlap(&third).map(|all| of(&all));
            prop_assert_eq!(found.unwrap_or(vec![false; TEXTS.len()]), of_all.clone());
            let is_covered = of_all == expected;
            prop_assert_eq!(third.covers(&overlap), is_covered, "{} {}", third, overlap);
            prop_assert_eq!(overlap.samples(1).all(|path| third.matches(&path)), is_covered);
        }

        #[test]
        fn prop_overlap_matches_what_both_match(
            left in any_pattern(),
            right in any_pattern(),
            path in "(/[abc]{1,4}){0,5}",
        ) {
            let left = pattern(&left);
            let right = pattern(&right);
            let overlap = left.overlap(&right);
            let expected = left.matches(&path) && right.matches(&path);
            prop_assert_eq!(overlap.is_some_and(|overlap| overlap.matches(&path)), expected);
        }
    }
}
