//! Patterns against what a path may stand for to the servers behind a route.

use std::borrow::Cow;

use tollgate_wire::target::{escapes_needlessly, with_decoded};

use super::{PathPattern, Segment, segments};
use crate::{
    MatrixParams, PathReading,
    path_reading::{is_index, split_query},
};

/// Characters that a segment of a path may hold as themselves and escaped: sub-delims, `:` and `@`
/// (RFC 3986, section 3.3). In its plain form a path may hold characters that a target may not,
/// such as `<`; with these decoded, it is still a valid one.
const RESERVED: &[u8] = b"!$&'()*+,;=:@";

/// The same, where a semicolon is the start of the query, and an escaped one is data.
const RESERVED_BUT_SEMICOLON: &[u8] = b"!$&'()*+,=:@";

/// Those that mean the same escaped, to servers that read paths so.
fn reserved_in(reading: &PathReading) -> &'static [u8] {
    match reading.matrix_params {
        MatrixParams::Keep | MatrixParams::Strip => RESERVED,
        MatrixParams::Query => RESERVED_BUT_SEMICOLON,
    }
}

/// The path of a request, as servers of different kinds may take it.
#[derive(Clone, Copy, Debug)]
pub struct RequestPath<'r> {
    normal: &'r str,
    plain: &'r str,
    has_parameters: bool,
}

impl<'r> RequestPath<'r> {
    /// Of its normal and of its plain form.
    pub fn new(normal: &'r str, plain: &'r str) -> RequestPath<'r> {
        // An escaped one may be among those that stand for themselves.
        RequestPath { normal, plain, has_parameters: plain.contains(';') }
    }

    /// In its plain form.
    pub fn plain(self) -> &'r str {
        self.plain
    }

    /// The path as the servers surely read it, in its plain form.
    pub(super) fn as_read_by(self, reading: &PathReading) -> Cow<'r, str> {
        match reading.matrix_params {
            MatrixParams::Strip | MatrixParams::Query if self.has_parameters => {
                reading.without_parameters(self.normal)
            }
            MatrixParams::Strip | MatrixParams::Query | MatrixParams::Keep => {
                Cow::Borrowed(self.plain)
            }
        }
    }

    /// Whether it has what is a parameter to some servers.
    pub(super) fn has_parameters(self) -> bool {
        self.has_parameters
    }
}

impl PathPattern {
    /// Whether `path`, or what servers that read it so may take it for, matches.
    pub fn takes(&self, path: RequestPath<'_>, reading: PathReading) -> bool {
        let path = &*path.as_read_by(&reading);
        self.matches_as_it_is(path, &reading)
            || (!reading.is_literal()
                && reading.forms(path).iter().any(|form| self.matches_form(form, &reading)))
            || reading.with_empty_segment(path).is_some_and(|form| self.matches(&form))
    }

    /// The form in which a path that the pattern takes is counted: of those that match, the one of
    /// which most is left out.
    pub fn form_to_count<'p>(&self, path: RequestPath<'p>, reading: PathReading) -> Cow<'p, str> {
        if reading.is_literal() {
            return Cow::Borrowed(path.plain);
        }
        match path.as_read_by(&reading) {
            Cow::Borrowed(read) => self.shortest_form(read, &reading),
            Cow::Owned(read) => Cow::Owned(self.shortest_form(&read, &reading).into_owned()),
        }
    }

    fn shortest_form<'p>(&self, read: &'p str, reading: &PathReading) -> Cow<'p, str> {
        [reading.counted(read)]
            .into_iter()
            .chain(reading.with_empty_segment(read).map(Cow::Owned))
            .chain(reading.forms(read).into_iter().rev())
            .find(|form| self.matches_form(form, reading))
            .unwrap_or(Cow::Borrowed(read))
    }

    /// What the servers are asked for instead of a `path` that the pattern takes, in its normal
    /// form: the same path, in which the segments that the pattern spells out have their reserved
    /// characters decoded; all of them, if it takes the path for another one.
    ///
    /// A server that matches paths before it decodes them takes `/users/%40me` for
    /// `/users/{id}`, although the route is `/users/@me`: so it gets the latter. What the servers
    /// take for parameters or the query is that, because not every version of a framework takes it
    /// so.
    pub fn spell<'p>(&self, path: &'p str, reading: PathReading) -> Cow<'p, str> {
        match (reading.matrix_params, split_query(path)) {
            (MatrixParams::Query, (before, Some(query))) => {
                Cow::Owned(format!("{}?{query}", self.spell_path(before, &reading)))
            }
            (MatrixParams::Strip, _) => match with_decoded(path, b";") {
                Cow::Borrowed(path) => self.spell_path(path, &reading),
                Cow::Owned(path) => Cow::Owned(self.spell_path(&path, &reading).into_owned()),
            },
            (MatrixParams::Query | MatrixParams::Keep, _) => self.spell_path(path, &reading),
        }
    }

    fn spell_path<'p>(&self, path: &'p str, reading: &PathReading) -> Cow<'p, str> {
        if !path.contains('%') {
            return Cow::Borrowed(path);
        }
        let reserved = reserved_in(reading);
        let decoded = |part| with_decoded(part, reserved);
        // Where parameters are taken out, segments of nothing else are.
        let read = reading.without_parameters(path);
        if !self.matches(&read) || segments(&read).count() != segments(path).count() {
            return decoded(path);
        }
        // The piece before the first slash is empty.
        let is_hidden = |at: usize, piece: &str| {
            at.checked_sub(1).is_some_and(|at| self.is_hidden_by(piece, at, reading))
        };
        let spelled = |(at, piece): (usize, &'p str)| match is_hidden(at, piece) {
            true => decoded(piece),
            false => Cow::Borrowed(piece),
        };
        let mut pieces = path.split('/').enumerate().map(spelled);
        match pieces.clone().any(|piece| matches!(piece, Cow::Owned(_))) {
            true => Cow::Owned(pieces.by_ref().collect::<Vec<_>>().join("/")),
            false => Cow::Borrowed(path),
        }
    }

    /// Whether servers that are asked for a path as its client has spelled it, `raw`, find in it
    /// what the pattern spells out. It takes the path, whose normal form has the same segments.
    ///
    /// Such a server may match before it decodes, and what it takes `/users/%70ublic` for is
    /// `/users/{id}`. Where it takes the path for another one, that is to be seen in it, too. Not
    /// every version of a framework takes a semicolon for the query.
    pub fn is_spelled_out_by(&self, raw: &str, path: &str, reading: PathReading) -> bool {
        if reading.matrix_params == MatrixParams::Query && split_query(path).1.is_some() {
            return false;
        }
        if !raw.contains('%') {
            return true;
        }
        let hides_parameters = || raw.contains("%3b") || raw.contains("%3B");
        if reading.matrix_params == MatrixParams::Strip && hides_parameters() {
            return false;
        }
        let read = reading.without_parameters(path);
        let has_all = segments(&read).count() == segments(path).count();
        let is_in_place = has_all && (self.matches(&read) || self.is_in_place(&read, &reading));
        let reserved = reserved_in(&reading);
        let mut escaped =
            segments(raw).enumerate().filter(|(_, own)| escapes_needlessly(own, reserved));
        !escaped.any(|(at, own)| !is_in_place || self.is_hidden_by(own, at, &reading))
    }

    /// Whether escapes in a segment of a path may hide what the pattern spells out there.
    fn is_hidden_by(&self, escaped: &str, at: usize, reading: &PathReading) -> bool {
        match self.segments.get(at) {
            Some(Segment::Literal(_)) => true,
            Some(Segment::Affix(affix)) => !affix.matches(&reading.fold(escaped), reading),
            Some(Segment::Any(_)) | None => false,
        }
    }

    /// Whether each segment of the form by which the pattern takes a path is the beginning of that
    /// segment of the path: nothing before the end is left out.
    fn is_in_place(&self, read: &str, reading: &PathReading) -> bool {
        let forms = reading.forms(read);
        let Some(form) = forms.iter().find(|form| self.matches_form(form, reading)) else {
            return true;
        };
        let folded = reading.fold(read);
        segments(form).zip(segments(&folded)).all(|(own, whole)| {
            let rest = whole.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Whether one form of a path matches.
    pub(super) fn matches_form(&self, form: &str, reading: &PathReading) -> bool {
        self.matches_read(form, reading)
            && (!reading.has_path_info(form) || self.is_for_script(form, reading))
    }

    /// Whether a path, as the servers surely read it, matches without being read as another one.
    pub(super) fn matches_as_it_is(&self, path: &str, reading: &PathReading) -> bool {
        self.matches(path) && (!reading.has_path_info(path) || self.is_for_script(path, reading))
    }

    /// Whether the script in a path has a segment of its own in the pattern.
    pub(super) fn spells_script(&self, path: &str, reading: &PathReading) -> bool {
        reading.script_at(path).is_some_and(|at| self.spells(at))
    }

    /// Whether the script in a path has a segment in the pattern that matches names of scripts, and
    /// not any text: it spells it out, or says how the names end (`*.php`).
    pub(super) fn is_for_script(&self, path: &str, reading: &PathReading) -> bool {
        let of_scripts = |at: usize| match self.segments.get(at) {
            Some(Segment::Affix(affix)) => affix.is_of_scripts(),
            Some(Segment::Literal(_)) => true,
            Some(Segment::Any(_)) | None => false,
        };
        reading.script_at(path).is_some_and(of_scripts)
    }

    /// Whether the pattern spells out this segment of a path, all of it.
    fn spells(&self, at: usize) -> bool {
        matches!(self.segments.get(at), Some(Segment::Literal(_)))
    }

    /// How many segments of a form, which it matches, the pattern spells out, and of how many it
    /// spells out a part: beside scripts that stand for folders.
    pub(super) fn spelled(&self, form: &str) -> (usize, usize) {
        let own = self.segments.iter().zip(segments(form)).filter(|(_, text)| !is_index(text));
        own.fold((0, 0), |(whole, parts), (segment, _)| match segment {
            Segment::Literal(_) => (whole + 1, parts),
            Segment::Affix(_) => (whole, parts + 1),
            Segment::Any(_) => (whole, parts),
        })
    }

    /// Whether the pattern spells out every segment of `path`, which it matches, that `other` reads
    /// otherwise: as another text, or as none.
    pub(super) fn spells_out_what(
        &self,
        other: &PathPattern,
        path: &str,
        reading: &PathReading,
    ) -> bool {
        let is_read_otherwise = |at: usize, segment: &str| match other.segments.get(at) {
            Some(own) => !own.matches(segment, reading),
            None => !other.open_ended,
        };
        segments(path)
            .enumerate()
            .all(|(at, segment)| !is_read_otherwise(at, segment) || self.spells(at))
    }
}
