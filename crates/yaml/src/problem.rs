//! A problem of a file, and how it is shown: the place, the line, the underlined text, the help.
//!
//! Neighbouring lines are never shown, because they may hold secrets; those of the line itself are
//! masked; and nothing from the file reaches the terminal without its control characters escaped.

use std::{fmt, ops::Range};

use tollgate_printable::{is_hidden, printable};

use super::conceal::guessed;
use super::mask::{Origins, mask, mask_urls, secrets, without};
use super::node::Span;

/// How many characters of a line are shown.
const SHOWN: usize = 120;
/// How many of them stand before the place, when a line has to be cropped.
const LEAD: usize = 40;

/// Something that is wrong in a file, and what to write instead. Sorted by file, line and column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    file: String,
    line: usize,
    column: usize,
    message: String,
    help: String,
    /// In a box, as a problem is the error of a `Result` and would make that large.
    excerpt: Option<Box<Excerpt>>,
    /// What may only seem wrong because of it. None: anything beside it, and what is around that.
    pub(super) doubtful: Option<Box<[Span]>>,
}

/// The text of a file, which knows its lines.
#[derive(Clone)]
pub(super) struct Source {
    name: String,
    text: String,
    line_starts: Vec<usize>,
    /// What came from elsewhere, and is shown as it is written.
    origins: Origins,
    /// What is never shown. None: the text is no YAML, so this is unknown.
    concealed: Option<Vec<Span>>,
}

/// The line of a problem, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Excerpt {
    text: String,
    /// As wide as the text before the place, tabs included.
    indent: String,
    /// How wide the place is.
    width: usize,
}

/// Parts of a line, by their bytes from its beginning.
type Parts = Vec<Range<usize>>;

impl Problem {
    /// A problem that has no place in the file, such as that it cannot be read. Leave `help` empty
    /// when there is nothing to advise.
    pub fn whole_file(name: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: printable(name).into_owned(),
            line: 0,
            column: 0,
            message: printable(&mask_urls(&message.into())).into_owned(),
            help: printable(&mask_urls(&help.into())).into_owned(),
            excerpt: None,
            doubtful: None,
        }
    }

    /// The file, as it was named.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1; 0 for a problem of the whole file.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1; 0 for a problem of the whole file.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The file, with line and column unless it is about the whole file: `api.yaml:40:5`.
    pub fn place(&self) -> String {
        match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}:{}", self.file, self.column),
        }
    }

    /// Another problem of the same place. The message must not quote the file: what of it came from
    /// the environment is masked only where problems are found.
    #[must_use]
    pub fn saying(&self, message: impl Into<String>, help: impl Into<String>) -> Self {
        let reworded = Problem::whole_file("", message, help);
        Problem { message: reworded.message, help: reworded.help, ..self.clone() }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead, or nothing.
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, help, excerpt, .. } = self;
        let Some(excerpt) = excerpt else {
            write!(f, "{file}: {message}")?;
            return if help.is_empty() { Ok(()) } else { write!(f, "\n  {help}") };
        };
        let Excerpt { text, indent, width } = excerpt.as_ref();
        let gutter = " ".repeat(line.to_string().len());
        let carets = "^".repeat(*width);
        writeln!(f, "{file}:{line}:{column}: {message}")?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{line} | {text}")?;
        write!(f, "{gutter} | {indent}{carets}")?;
        if help.is_empty() { Ok(()) } else { write!(f, " {help}") }
    }
}

impl std::error::Error for Problem {}

impl Source {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(position, _)| position + 1))
            .collect();
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            line_starts,
            origins: Origins::default(),
            concealed: None,
        }
    }

    /// Shows what is in `origins` as it is written, from here on.
    pub(super) fn hide(&mut self, origins: Origins) {
        self.origins = origins;
    }

    /// Shows nothing of these places, from here on.
    pub(super) fn conceal(&mut self, places: Vec<Span>) {
        self.concealed = Some(places);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Where in the text a problem of it is; nowhere, if it is of the whole file.
    pub(super) fn position(&self, problem: &Problem) -> Option<usize> {
        let start = *self.line_starts.get(problem.line.checked_sub(1)?)?;
        let line = self.text.get(start..)?;
        let (column, _) = line.char_indices().nth(problem.column.checked_sub(1)?)?;
        Some(start + column)
    }

    pub(super) fn at(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// What of a line is masked, and what of that a message about a `place` in it may quote.
    fn masked_in(&self, line: &str, start: usize, place: &Range<usize>) -> (Parts, Parts) {
        let secrets = secrets(line);
        let Some(concealed) = &self.concealed else {
            // What is wrong with YAML may be quoted from anywhere.
            let masked: Parts = guessed(&self.text, start).into_iter().chain(secrets).collect();
            return (masked.clone(), masked);
        };
        let in_line = |at: usize| at.saturating_sub(start).min(line.len());
        let concealed = concealed.iter().map(|part| in_line(part.start)..in_line(part.end));
        let concealed: Parts = concealed.filter(|part| !part.is_empty()).collect();
        let meets_place = |part: &&Range<usize>| part.start < place.end && place.start < part.end;
        let quoted = concealed.iter().filter(meets_place).cloned().collect();
        (concealed.into_iter().chain(secrets).collect(), quoted)
    }

    pub(super) fn problem(&self, span: Span, message: String, help: String) -> Problem {
        let start = self.text.floor_char_boundary(span.start);
        let line = self.line_starts.partition_point(|&line_start| line_start <= start);
        let line_start = self.line_starts.get(line.wrapping_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(line_start..start).unwrap_or_default();
        let column = before.chars().count() + 1;
        let shown = self.text.get(line_start..).unwrap_or_default();
        let shown = shown.split('\n').next().unwrap_or_default();
        let written = shown.strip_suffix('\r').unwrap_or(shown);
        let place = start - line_start..span.end.saturating_sub(line_start);
        let (masked, quoted) = self.masked_in(written, line_start, &place);
        let [message, help] = [message, help].map(|text| without(&text, written, &quoted));
        // As long as the line itself, so that places in it stay what they are.
        let shown = mask(written, &masked);
        let (before, rest) = shown.split_at(shown.floor_char_boundary(start - line_start));
        let length = rest.floor_char_boundary(span.end.saturating_sub(start));
        let (place, after) = rest.split_at(length);

        Problem {
            line,
            column,
            excerpt: Some(Box::new(Excerpt::new(before, place, after))),
            ..Problem::whole_file(
                &self.name,
                self.origins.as_written(&message),
                self.origins.as_written(&help),
            )
        }
    }
}

impl Excerpt {
    /// The line is what stands before the place, the place itself, and what stands after it.
    fn new(before: &str, place: &str, after: &str) -> Self {
        let place_trimmed = place.trim_end();
        let characters = |text: &str| text.chars().count();
        let cropped = characters(before) + characters(place) + characters(after) > SHOWN;
        let skipped = if cropped { characters(before).saturating_sub(LEAD) } else { 0 };

        let mut excerpt = Self { text: String::new(), indent: String::new(), width: 0 };
        if skipped > 0 {
            excerpt.text.push('…');
            excerpt.indent.push(' ');
        }
        let mut room = if cropped { SHOWN } else { usize::MAX };
        for c in before.chars().skip(skipped) {
            let width = excerpt.show(c);
            excerpt.indent.push_str(&if c == '\t' { c.into() } else { " ".repeat(width) });
            room -= 1;
        }
        for (position, c) in place.char_indices() {
            if room == 0 {
                break;
            }
            let width = excerpt.show(c);
            if position < place_trimmed.len() {
                excerpt.width += width;
            }
            room -= 1;
        }
        for c in after.chars().take(room) {
            excerpt.show(c);
            room -= 1;
        }
        if room == 0 && cropped {
            excerpt.text.push('…');
        }
        excerpt.text.truncate(excerpt.text.trim_end().len());
        excerpt.width = excerpt.width.max(1);
        excerpt
    }

    /// Adds `c` to the shown text, and says how many columns of a terminal it takes.
    fn show(&mut self, c: char) -> usize {
        if c != '\t' && is_hidden(c) {
            let escape = c.escape_default();
            self.text.extend(escape.clone());
            return escape.count();
        }
        self.text.push(c);
        columns(c)
    }
}

/// The columns that `c` takes on a terminal. Coarse: the blocks of the East Asian wide characters
/// and of emoji, and of marks that stand on the character before. It only aligns an underline.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x20d0..=0x20ff => 0,
        0xfe20..=0xfe2f => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 => 2,
        0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff01..=0xff60 | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1f64f | 0x1f680..=0x1f6ff | 0x1f900..=0x1f9ff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, place: &str) -> String {
        let start = text.find(place).unwrap();
        let span = Span { start, end: start + place.len() };
        Source::new("f.yaml", text).problem(span, "wrong".into(), "do".into()).to_string()
    }

    #[test]
    fn place_is_underlined_with_its_help() {
        for (text, place, expected) in [
            ("a: 1\nb: 22\n", "22", "f.yaml:2:4: wrong\n  |\n2 | b: 22\n  |    ^^ do"),
            ("\tb: 2", "2", "f.yaml:1:5: wrong\n  |\n1 | \tb: 2\n  | \t   ^ do"),
            ("日本: é2", "é2", "f.yaml:1:5: wrong\n  |\n1 | 日本: é2\n  |       ^^ do"),
            ("a: 日本 x", "日本", "f.yaml:1:4: wrong\n  |\n1 | a: 日本 x\n  |    ^^^^ do"),
            ("e\u{301}: 2", "2", "f.yaml:1:5: wrong\n  |\n1 | e\u{301}: 2\n  |    ^ do"),
            ("\r\na: 2\r\n", "2", "f.yaml:2:4: wrong\n  |\n2 | a: 2\n  |    ^ do"),
            ("a: b  \n  c", "b  \n  c", "f.yaml:1:4: wrong\n  |\n1 | a: b\n  |    ^ do"),
            ("a:", "", "f.yaml:1:1: wrong\n  |\n1 | a:\n  | ^ do"),
        ] {
            assert_eq!(shown(text, place), expected, "{text:?}");
        }
    }

    #[test]
    fn long_line_is_cropped_around_the_place() {
        let line = format!("{}MARK{}", "<".repeat(300), ">".repeat(300));
        let expected = format!(
            "f.yaml:1:301: wrong\n  |\n1 | …{}MARK{}…\n  |  {}^^^^ do",
            "<".repeat(40),
            ">".repeat(76),
            " ".repeat(40),
        );
        assert_eq!(shown(&line, "MARK"), expected);
        let start = format!("MARK{}", ">".repeat(300));
        assert!(shown(&start, "MARK").contains(&format!("1 | MARK{}…\n", ">".repeat(116))));
        let end = format!("{}MARK", "<".repeat(300));
        assert!(shown(&end, "MARK").contains(&format!("1 | …{}MARK\n", "<".repeat(40))));
    }

    #[test]
    fn terminal_escapes_are_disarmed_and_still_aligned() {
        let text = "a: \u{1b}[31m\u{202e} 2";
        assert_eq!(
            shown(text, "2"),
            "f.yaml:1:11: wrong\n  |\n1 | a: \\u{1b}[31m\\u{202e} 2\n  |                       ^ do"
        );
        let problem = Problem::whole_file("\u{7}.yaml", "bad\u{1b}", "try\nthis");
        assert_eq!(problem.to_string(), "\\u{7}.yaml: bad\\u{1b}\n  try\\nthis");
    }

    #[test]
    fn help_may_be_left_out() {
        let source = Source::new("f.yaml", "a");
        let problem = source.problem(Span { start: 0, end: 1 }, "wrong".into(), String::new());
        assert_eq!(problem.to_string(), "f.yaml:1:1: wrong\n  |\n1 | a\n  | ^");
        assert_eq!(Problem::whole_file("f.yaml", "gone", "").to_string(), "f.yaml: gone");
    }

    #[test]
    fn problems_are_sorted_by_place() {
        let source = Source::new("f.yaml", &"x\n".repeat(20));
        let at = |start| source.problem(Span { start, end: start }, "m".into(), String::new());
        let mut problems = [at(30), at(4), Problem::whole_file("f.yaml", "z", ""), at(0)];
        problems.sort();
        assert_eq!(problems.iter().map(Problem::line).collect::<Vec<_>>(), [0, 1, 3, 16]);
    }

    #[test]
    fn place_outside_of_the_text_is_shown_at_its_end() {
        let source = Source::new("f.yaml", "é");
        for span in [Span { start: 1, end: 9 }, Span { start: 7, end: 3 }] {
            assert_eq!(source.problem(span, "m".into(), String::new()).line(), 1);
        }
    }
}
