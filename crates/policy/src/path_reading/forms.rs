//! The texts that a path may stand for to those who serve it.

use std::borrow::Cow;

use tollgate_wire::target::{percent_decoded, plain_form};

use super::{Framework, LetterCase, MatrixParams, PathInfo, PathReading, Suffix, TrailingSlash};

/// Endings of the names of scripts, after which a server lets a script read the rest of a path.
const SCRIPTS: [&str; 12] = [
    ".php", ".php5", ".php7", ".phtml", ".phar", ".cgi", ".fcgi", ".pl", ".asp", ".aspx", ".ashx",
    ".asmx",
];

/// The script that stands for its folder.
const INDEX: &str = "index.php";

/// What an empty segment is written as: no path in normal form has it.
const NO_TEXT: &str = "%00";

/// What a path becomes when something is left out of it; none: it has no such thing.
type Omission = fn(&str) -> Option<String>;

impl PathReading {
    /// What a path, as it is surely read, may stand for, from the form that is most like it, in
    /// which only the case of letters is folded, to those of which more is left out.
    pub(crate) fn forms<'p>(&self, path: &'p str) -> Vec<Cow<'p, str>> {
        let mut forms = vec![self.fold(path)];
        // What follows the first dot was a suffix to Spring, as was what follows the last one.
        let is_old_spring =
            self.suffix == Suffix::Ignore && self.framework == Some(Framework::Spring);
        let shortest = is_old_spring.then_some(until_first_dot as Omission);
        for omit in self.omissions().into_iter().flatten().chain(shortest) {
            let shorter: Vec<String> = forms.iter().filter_map(|form| omit(form)).collect();
            for form in shorter {
                if !forms.iter().any(|known| *known == form) {
                    forms.push(Cow::Owned(form));
                }
            }
        }
        forms
    }

    /// What counters count a path as: the form in which its spellings meet.
    pub fn counted<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let omissions = self.omissions().into_iter().flatten();
        omissions.fold(self.fold(path), |form, omit| omit(&form).map_or(form, Cow::Owned))
    }

    /// A part of a path in its plain form without what case makes of letters, if that makes no
    /// difference.
    pub fn fold<'p>(&self, part: &'p str) -> Cow<'p, str> {
        match self.case {
            LetterCase::Exact => Cow::Borrowed(part),
            LetterCase::Ignore => folded(part),
        }
    }

    /// A part of a path without what case makes of letters.
    pub(crate) fn any_case(part: &str) -> Cow<'_, str> {
        folded(part)
    }

    /// Whether a segment of a pattern is one of a form.
    pub(crate) fn is_same(&self, literal: &str, segment: &str) -> bool {
        let is_folded = || {
            literal.eq_ignore_ascii_case(segment)
                || (literal.contains('%') && folded(literal) == segment)
        };
        literal == segment || (self.case == LetterCase::Ignore && is_folded())
    }

    /// What follows a text of a pattern, with which a segment of a form begins.
    pub(crate) fn after_beginning<'s>(&self, segment: &'s str, text: &str) -> Option<&'s str> {
        match self.case {
            LetterCase::Exact => segment.strip_prefix(text),
            LetterCase::Ignore => {
                let text = with_folded_escapes(text);
                let (start, rest) = segment.split_at_checked(text.len())?;
                start.eq_ignore_ascii_case(&text).then_some(rest)
            }
        }
    }

    /// What is before a text of a pattern, with which a segment of a form ends: no part of an
    /// escape (`9` is not the end of `%C3%A9`).
    pub(crate) fn before_end<'s>(&self, segment: &'s str, text: &str) -> Option<&'s str> {
        let rest = match self.case {
            LetterCase::Exact => segment.strip_suffix(text)?,
            LetterCase::Ignore => {
                let text = with_folded_escapes(text);
                let start = segment.len().checked_sub(text.len())?;
                let (rest, end) = segment.split_at_checked(start)?;
                end.eq_ignore_ascii_case(&text).then_some(rest)?
            }
        };
        let is_cut = !text.is_empty() && rest.bytes().rev().take(2).any(|byte| byte == b'%');
        (!is_cut).then_some(rest)
    }

    /// A path in normal form as the servers surely read it, in its plain form: without its
    /// parameters, where they are none of its segments. An escaped semicolon is data to those who
    /// take one for the start of the query. Where it starts parameters, it goes on as itself, as
    /// not every server looks for them before it decodes.
    pub(crate) fn without_parameters<'p>(&self, normal: &'p str) -> Cow<'p, str> {
        match self.matrix_params {
            MatrixParams::Keep => plain_form(normal),
            MatrixParams::Strip => without_parameters(plain_form(normal)),
            MatrixParams::Query => plain_form(split_query(normal).0),
        }
    }

    /// Whether a path, as it is surely read, asks a script for something: for what follows its
    /// name, or for what its folder stands for.
    pub(crate) fn asks_script(&self, path: &str) -> bool {
        self.script_at(path).is_some()
    }

    /// Whether a path has segments that a script may read: no pattern stands for its name but one
    /// that spells it out.
    pub(crate) fn has_path_info(&self, path: &str) -> bool {
        self.path_info == PathInfo::Strip && until_script(path).is_some()
    }

    /// Which segment of a path is the script that it asks for something.
    pub(crate) fn script_at(&self, path: &str) -> Option<usize> {
        if self.path_info == PathInfo::Keep {
            return None;
        }
        let mut segments = path.split('/').skip(1).peekable();
        let mut at = 0;
        while let Some(segment) = segments.next() {
            if is_index(segment) || (is_script(segment) && segments.peek().is_some()) {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// A path with an empty last segment, where that may be one: written as no path is.
    pub(crate) fn with_empty_segment(&self, path: &str) -> Option<String> {
        let is_segment = self.trailing_slash == TrailingSlash::Segment;
        (is_segment && path.len() > 1 && path.ends_with('/')).then(|| format!("{path}{NO_TEXT}"))
    }

    fn omissions(&self) -> [Option<Omission>; 4] {
        let PathReading {
            framework: _,
            case: _,
            trailing_slash: _,
            matrix_params: _,
            suffix,
            path_info,
        } = self;
        let (index, script): (Option<Omission>, Option<Omission>) = match path_info {
            PathInfo::Keep => (None, None),
            PathInfo::Strip => (Some(without_index), Some(until_script)),
        };
        let suffix: Option<Omission> = match suffix {
            Suffix::Keep => None,
            Suffix::Ignore => Some(until_last_dot),
        };
        // A script that is left may be the one that stands for its folder.
        [index, script, index, suffix]
    }
}

/// A text without what case makes of letters that it escapes. The others may be in either.
fn with_folded_escapes(text: &str) -> Cow<'_, str> {
    if text.contains('%') { folded(text) } else { Cow::Borrowed(text) }
}

/// A text in lower case, the letters that it escapes included.
fn folded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Borrowed(text);
    }
    let mut folded = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let escapes = wide_escapes(rest);
        let (piece, tail) = rest.split_at_checked(escapes.max(1)).unwrap_or((rest, ""));
        rest = tail;
        match percent_decoded(piece).filter(|_| escapes > 0) {
            None => fold_each(piece, &mut folded),
            Some(letters) => fold_letters(&letters, &mut folded),
        }
    }
    Cow::Owned(folded)
}

/// Of escapes some of which stand for no text, those that do.
fn fold_each(escapes: &str, folded: &mut String) {
    let mut rest = escapes;
    while !rest.is_empty() {
        // Those of one letter are two to four.
        let letter = [6, 9, 12].into_iter().find_map(|len| {
            let (letter, rest) = rest.split_at_checked(len)?;
            Some((percent_decoded(letter)?, rest))
        });
        rest = match letter {
            Some((letter, after)) => {
                fold_letters(&letter, folded);
                after
            }
            None => {
                let (escape, after) = rest.split_at_checked(3).unwrap_or((rest, ""));
                folded.push_str(&escape.to_ascii_lowercase());
                after
            }
        };
    }
}

/// Each on its own: the sigma that ends a word is folded as any other.
fn fold_letters(letters: &str, folded: &mut String) {
    for letter in letters.chars().flat_map(char::to_lowercase) {
        let letter = if letter == '\u{3c2}' { '\u{3c3}' } else { letter };
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            match byte.is_ascii() {
                true => folded.push(char::from(byte)),
                false => folded.push_str(&format!("%{byte:02x}")),
            }
        }
    }
}

/// The length of the escapes of what is not ASCII that a text begins with.
fn wide_escapes(text: &str) -> usize {
    let is_wide = |escape: &[u8]| matches!(escape, [b'%', b'8'..=b'9' | b'A'..=b'F', _]);
    text.as_bytes().chunks_exact(3).take_while(|escape| is_wide(escape)).count() * 3
}

/// Without what follows a semicolon in each segment; a segment that was nothing else is none.
fn without_parameters(path: Cow<'_, str>) -> Cow<'_, str> {
    if !path.contains(';') {
        return path;
    }
    let names = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    let kept: String =
        names.filter(|name| !name.is_empty()).map(|name| format!("/{name}")).collect();
    Cow::Owned(if kept.is_empty() { "/".to_owned() } else { kept })
}

/// What is before the first semicolon, and what follows it.
pub(crate) fn split_query(path: &str) -> (&str, Option<&str>) {
    path.split_once(';').map_or((path, None), |(before, query)| (before, Some(query)))
}

/// Without what follows the first script.
fn until_script(path: &str) -> Option<String> {
    let mut end = 0;
    for segment in path.split('/') {
        end += segment.len();
        if is_script(segment) && end < path.len() {
            return path.get(..end).map(str::to_owned);
        }
        end += 1;
    }
    None
}

/// Without the script that stands for its folder.
fn without_index(path: &str) -> Option<String> {
    path.split('/').any(is_index).then(|| {
        let kept: Vec<&str> = path.split('/').filter(|segment| !is_index(segment)).collect();
        if kept.len() < 2 { "/".to_owned() } else { kept.join("/") }
    })
}

/// Whether a text ends as the names of scripts do.
pub(crate) fn is_script(segment: &str) -> bool {
    SCRIPTS.iter().any(|ending| {
        let start = segment.len().checked_sub(ending.len());
        let end = start.and_then(|start| segment.get(start..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(ending))
    })
}

/// Whether a segment is the script that stands for its folder.
pub(crate) fn is_index(segment: &str) -> bool {
    segment.eq_ignore_ascii_case(INDEX)
}

/// Without what follows the last dot of the last segment.
fn until_last_dot(path: &str) -> Option<String> {
    until_dot(path, str::rfind)
}

/// Without what follows the first dot of the last segment.
fn until_first_dot(path: &str) -> Option<String> {
    until_dot(path, str::find)
}

/// A name that begins with a dot has no suffix there.
fn until_dot(path: &str, find: fn(&str, char) -> Option<usize>) -> Option<String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (folders, name) = path.rsplit_once('/')?;
    let stem = name.get(..=find(name.get(1..)?, '.')?)?;
    Some(format!("{folders}/{stem}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_keyword::Keyword;

    use super::*;

    fn reading(framework: &str) -> PathReading {
        PathReading::of(Framework::from_keyword(framework).unwrap())
    }

    #[test]
    fn path_is_counted_as_what_a_framework_takes_it_for() {
        for (framework, path, expected) in [
            ("express", "/Login/", "/login/"),
            ("express", "/a%20B/%C3%89/%E2%84%AA", "/a%20b/%c3%a9/k"),
            ("express", "/CAF%E9", "/caf%e9"),
            ("fastify", "/Login", "/Login"),
            ("rails", "/login.json", "/login"),
            ("rails", "/login.json/", "/login"),
            ("rails", "/v1.2/users", "/v1.2/users"),
            ("rails", "/.well-known", "/.well-known"),
            ("rails", "/", "/"),
            ("php", "/login.php/x/y", "/login.php"),
            ("php", "/login.php", "/login.php"),
            ("php", "/index.php/admin/x", "/admin/x"),
            ("php", "/admin/index.php", "/admin"),
            ("php", "/index.php/login.php/x", "/login.php"),
            ("php", "/index.php", "/"),
            ("php", "/a.phpx/b", "/a.phpx/b"),
            ("django", "/Login;x.json/y.php/z", "/Login;x.json/y.php/z"),
        ] {
            assert_eq!(reading(framework).counted(path), expected, "{framework} {path}");
        }
    }

    /// Sigmas, a sign that is the letter K in lower case, and what is no text.
    fn piece() -> impl Strategy<Value = String> {
        let letters = vec!["a", "B", "%20", "%CE%91", "%CE%A3", "%CF%82", "%E2%84%AA", "%FF"];
        prop::collection::vec(prop::sample::select(letters), 0..5).prop_map(|own| own.concat())
    }

    proptest! {
        /// Or a path that begins as a pattern does would not when it is folded.
        #[test]
        fn prop_letter_is_folded_whatever_is_beside_it(before in piece(), after in piece()) {
            let [before_folded, after_folded] = [&before, &after].map(|part| folded(part));
            let whole = format!("{before}{after}");
            prop_assert_eq!(folded(&whole), format!("{before_folded}{after_folded}"));
        }
    }

    #[test]
    fn all_that_a_path_may_stand_for_is_tried() {
        for (framework, path, expected) in [
            ("express", "/a", &["/a"][..]),
            ("rails", "/v1.2.json", &["/v1.2.json", "/v1.2"]),
            ("php", "/index.php/a", &["/index.php/a", "/a", "/index.php", "/"]),
            ("php", "/b/index.php/a", &["/b/index.php/a", "/b/a", "/b/index.php", "/b"]),
            ("php", "/b.php/a", &["/b.php/a", "/b.php"]),
        ] {
            assert_eq!(reading(framework).forms(path), expected, "{framework} {path}");
        }
        let old_spring = PathReading { suffix: Suffix::Ignore, ..reading("spring") };
        assert_eq!(old_spring.forms("/v1.2.json"), ["/v1.2.json", "/v1.2", "/v1"]);
    }

    #[test]
    fn parameters_are_left_out_where_they_are_no_part_of_a_segment() {
        for (framework, path, expected) in [
            ("fastify", "/login;a/b", "/login"),
            ("fastify", "/a%3Bb;c%40", "/a;b"),
            ("spring", "/a;x=1/b;y/;z/c", "/a/b/c"),
            ("spring", "/;x", "/"),
            ("spring", "/a.b;c", "/a.b"),
            ("spring", "/a%3Bb/%40;c", "/a/@"),
            ("go", "/a%3Bb;c", "/a;b;c"),
        ] {
            let read = reading(framework).without_parameters(path);
            assert_eq!(read, expected, "{framework} {path}");
        }
    }
}
