//! Patterns against what a path may stand for to the servers behind a route.

use std::borrow::Cow;

use tollgate_wire::target::{plain_form, with_reserved_decoded};

use super::{PathPattern, Segment, segments};
use crate::{MatrixParams, PathReading};

impl PathPattern {
    /// Whether `path`, in its plain form, or what servers that read it so may take it for, matches.
    pub fn takes(&self, path: &str, reading: PathReading) -> bool {
        self.matches(path)
            || (!reading.is_literal()
                && reading.forms(path).iter().any(|form| self.matches_form(form, reading)))
            || reading.with_empty_segment(path).is_some_and(|form| self.matches(&form))
    }

    /// The form in which a path that the pattern takes is counted: of those that match, the one of
    /// which most is left out.
    pub fn form_to_count<'p>(&self, path: &'p str, reading: PathReading) -> Cow<'p, str> {
        if reading.is_literal() {
            return Cow::Borrowed(path);
        }
        let empty = reading.with_empty_segment(path).map(Cow::Owned);
        let forms = empty.into_iter().chain(reading.forms(path).into_iter().rev());
        let mut forms = [reading.counted(path)].into_iter().chain(forms);
        forms.find(|form| self.matches_form(form, reading)).unwrap_or(Cow::Borrowed(path))
    }

    /// What the servers are asked for instead of a `path` that the pattern takes, in its normal
    /// form: the same path, in which the segments that the pattern spells out have their reserved
    /// characters decoded; all of them, if it takes the path for another one.
    ///
    /// A server that matches paths before it decodes them takes `/users/%40me` for
    /// `/users/{id}`, although the route is `/users/@me`: so it gets the latter. What the route
    /// takes for the query is one, because not every version of a framework does.
    pub fn spell<'p>(&self, path: &'p str, reading: PathReading) -> Cow<'p, str> {
        if !self.matches(&plain_form(path)) {
            let decoded = with_reserved_decoded(path);
            return match reading.matrix_params {
                MatrixParams::Query if decoded.contains(';') => {
                    Cow::Owned(decoded.replacen(';', "?", 1))
                }
                MatrixParams::Query | MatrixParams::Keep | MatrixParams::Strip => decoded,
            };
        }
        if !path.contains('%') {
            return Cow::Borrowed(path);
        }
        let is_literal = |at: usize| matches!(self.segments.get(at), Some(Segment::Literal(_)));
        // The piece before the first slash is empty.
        let spelled =
            |(at, piece): (usize, &'p str)| match at.checked_sub(1).is_some_and(is_literal) {
                true => with_reserved_decoded(piece),
                false => Cow::Borrowed(piece),
            };
        let mut pieces = path.split('/').enumerate().map(spelled);
        match pieces.clone().any(|piece| matches!(piece, Cow::Owned(_))) {
            true => Cow::Owned(pieces.by_ref().collect::<Vec<_>>().join("/")),
            false => Cow::Borrowed(path),
        }
    }

    /// Whether one form of a path matches.
    pub(super) fn matches_form(&self, form: &str, reading: PathReading) -> bool {
        self.matches_by(form, |literal, segment| reading.is_same(literal, segment))
    }

    /// Whether the pattern spells out every segment of `path`, which it matches, that `other` reads
    /// otherwise: as another text, or as none.
    pub(super) fn spells_out_what(
        &self,
        other: &PathPattern,
        path: &str,
        is_same: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let is_read_otherwise = |at: usize, segment: &str| match other.segments.get(at) {
            Some(Segment::Any(_)) => false,
            Some(Segment::Literal(literal)) => !is_same(literal, segment),
            None => !other.open_ended,
        };
        let is_spelled = |at: usize| matches!(self.segments.get(at), Some(Segment::Literal(_)));
        segments(path)
            .enumerate()
            .all(|(at, segment)| !is_read_otherwise(at, segment) || is_spelled(at))
    }
}
