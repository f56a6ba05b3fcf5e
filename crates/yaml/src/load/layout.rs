//! Indentation and brackets as a reader sees them: where a mistake in them is, which is often
//! before the place at which the library gives up, and how to mend it.

use crate::node::Span;

/// A mistake in the layout.
pub(super) struct LayoutError {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) help: String,
}

/// A line that is neither empty nor a comment.
#[derive(Clone, Copy)]
struct SourceLine<'t> {
    /// Where it starts in the text.
    start: usize,
    text: &'t str,
}

/// How far back lines are looked at: enough for any section, and bounded for a hostile file.
const MOST_LINES: usize = 2_000;

/// The mistake behind an error at `at` that the library describes by `reason`, if it is one of
/// those that are known here.
pub(super) fn fault(text: &str, at: usize, reason: &str) -> Option<LayoutError> {
    conflict(text, at)
        .or_else(|| tab(text, at, reason))
        .or_else(|| open_quote(text, at))
        .or_else(|| open_bracket(text, at))
        .or_else(|| indentation(text, at, reason))
}

/// Text with a `*` at its start, such as a path or a host, which YAML takes for an alias.
pub(super) fn starred_text(text: &str, at: usize) -> Option<LayoutError> {
    let rest = text.get(at..)?;
    let end = rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len());
    let written = rest.get(..end)?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if written.trim_start_matches('*').chars().all(is_name) && !written.starts_with("**") {
        return None;
    }
    Some(LayoutError {
        span: Span { start: at, end: at + end },
        message: "text that starts with `*` needs quotes".into(),
        help: format!("write \"{written}\""),
    })
}

/// What version control leaves in a file that two people have changed.
fn conflict(text: &str, at: usize) -> Option<LayoutError> {
    let line = line_at(text, at)?;
    let is_mark = ["<<<<<<<", "=======", ">>>>>>>"].iter().any(|mark| line.text.starts_with(mark));
    is_mark.then(|| LayoutError {
        span: line.content(),
        message: "a merge conflict that is not resolved".into(),
        help: "keep one of the two versions, and remove the marks".into(),
    })
}

/// A tab among the spaces that a line begins with: of the error's line, or of one behind it if the
/// library speaks of a tab.
fn tab(text: &str, at: usize, reason: &str) -> Option<LayoutError> {
    let first = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let most = if reason.contains("tab") { MOST_LINES } else { 1 };
    let mut start = first;
    for line in text.get(first..)?.split_inclusive('\n').take(most) {
        let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line.get(..blank)?.find('\t').filter(|_| !line.trim().is_empty()) {
            let span = Span { start: start + tab, end: start + blank };
            let message = "indented with a tab".into();
            return Some(LayoutError { span, message, help: "indent with spaces".into() });
        }
        start += line.len();
    }
    None
}

/// A quote that goes on over the end of its line, up to a quote that was meant to begin another
/// text.
fn open_quote(text: &str, at: usize) -> Option<LayoutError> {
    let before = brackets_and_quotes(text.get(..line_at(text, at)?.start)?);
    let (start, quote) = before.long_quotes.last().copied().filter(|_| !before.open.is_empty())?;
    Some(LayoutError {
        span: Span { start, end: start + 1 },
        message: format!("`{quote}` is not closed on its line"),
        help: format!("add `{quote}` where the text ends"),
    })
}

/// A bracket that is still open where the next line begins in a way that no list or mapping in
/// brackets goes on.
fn open_bracket(text: &str, at: usize) -> Option<LayoutError> {
    let line = line_at(text, at)?;
    let is_block = line.text.trim_start().starts_with("- ")
        || line.key_length().is_some_and(|_| !line.text.trim_end().ends_with(','));
    let before = brackets_and_quotes(text.get(..line.start)?);
    let (start, bracket) = before.open.last().copied().filter(|_| is_block)?;
    let closing = if bracket == '[' { ']' } else { '}' };
    Some(LayoutError {
        span: Span { start, end: start + 1 },
        message: format!("`{bracket}` is never closed"),
        help: format!("add `{closing}` after its last item"),
    })
}

/// What begins in a text and does not end where one expects it.
#[derive(Default)]
struct Unclosed {
    /// Brackets that are still open.
    open: Vec<(usize, char)>,
    /// Quotes that go on over the end of their line.
    long_quotes: Vec<(usize, char)>,
}

/// In plain text, brackets and quotes are characters like others.
fn brackets_and_quotes(text: &str) -> Unclosed {
    let mut found = Unclosed::default();
    let mut quote = None;
    let mut before = '\n';
    let mut is_comment = false;
    for (position, c) in text.char_indices() {
        let starts_value = "\n:-,[{".contains(before);
        match (quote, c) {
            (_, '\n') if is_comment => is_comment = false,
            _ if is_comment => continue,
            (Some((_, end)), _) if end == c => quote = None,
            (Some(long), '\n') if found.long_quotes.last() != Some(&long) => {
                found.long_quotes.push(long);
            }
            (Some(_), _) => {}
            (None, '"' | '\'') if starts_value => quote = Some((position, c)),
            (None, '#') if text.get(..position).is_none_or(|t| t.ends_with([' ', '\n'])) => {
                is_comment = true;
            }
            (None, '[' | '{') if starts_value => found.open.push((position, c)),
            (None, ']' | '}') => drop(found.open.pop()),
            _ => {}
        }
        if c == '\n' || !c.is_whitespace() {
            before = c;
        }
    }
    found
}

/// A line that begins where no line of its section does, or that follows one without a colon.
fn indentation(text: &str, at: usize, reason: &str) -> Option<LayoutError> {
    let own = line_at(text, at)?;
    if reason.contains("simple key expected") && own.key_length().is_none() {
        return without_colon(own);
    }
    let mut earlier = lines_before(text, own.start);
    let before = *earlier.first()?;
    let column = own.column();
    if reason.contains("mapping values are not allowed") {
        if before.key_length().is_none() {
            return without_colon(before);
        }
        // Two colons on one line are no matter of indentation.
        let is_first_colon = own.key_length().is_some_and(|key| own.start + column + key >= at);
        if !is_first_colon || column <= before.key_column() {
            return None;
        }
    } else if !reason.contains("did not find expected") || own.start + own.key_column() < at {
        return None;
    }
    let is_item = own.is_item();
    earlier.retain(|line| !is_item || line.is_item());
    let column_of = |line: &SourceLine<'_>| if is_item { line.column() } else { line.key_column() };
    // Going back, sections around the line are those that begin ever further to the left.
    let mut columns: Vec<usize> = Vec::new();
    for line in &earlier {
        let column = column_of(line);
        if columns.last().is_none_or(|last| column < *last) {
            columns.push(column);
        }
    }
    if columns.contains(&column) {
        return None;
    }
    let deeper = columns.iter().rev().find(|other| **other > column);
    let outer = columns.iter().find(|other| **other < column);
    let nearest: Vec<String> =
        deeper.into_iter().chain(outer).map(|column| column.to_string()).collect();
    let spaces = if column == 1 { "1 space".to_owned() } else { format!("{column} spaces") };
    Some(LayoutError {
        span: own.content(),
        message: format!("indented by {spaces}, unlike the lines before it"),
        help: match nearest.is_empty() {
            true => "indent it like the other lines of its section".into(),
            false if reason.contains("'-'") => {
                format!("write `- ` before it, or indent it by {}", nearest.join(" or "))
            }
            false => format!("indent it by {}", nearest.join(" or ")),
        },
    })
}

/// A line that is neither a name with a value nor a part of a list.
fn without_colon(line: SourceLine<'_>) -> Option<LayoutError> {
    let written = line.text.trim();
    let help = match written.split_once(':') {
        Some((name, value)) if !value.is_empty() => format!("write `{name}: {value}`"),
        Some(_) => return None,
        None => match written.split_once(' ') {
            Some((name, value)) => format!("write `{name}: {value}`"),
            None => format!("write `{written}:`"),
        },
    };
    let message =
        if written.contains(':') { "no space after the colon" } else { "no colon after the name" };
    Some(LayoutError { span: line.content(), message: message.into(), help })
}

/// The line that `at` is in.
fn line_at(text: &str, at: usize) -> Option<SourceLine<'_>> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let text = text.get(start..)?.lines().next().unwrap_or_default();
    Some(SourceLine { start, text })
}

/// The lines that end before `end`, the last one first.
fn lines_before(text: &str, end: usize) -> Vec<SourceLine<'_>> {
    let mut lines = Vec::new();
    let mut end = end;
    for line in text.get(..end).unwrap_or_default().rsplit_terminator('\n').take(MOST_LINES) {
        let start = end.saturating_sub(line.len() + 1);
        let content = line.trim_start();
        if !content.trim_end().is_empty() && !content.starts_with('#') {
            lines.push(SourceLine { start, text: line });
        }
        end = start;
    }
    lines
}

impl SourceLine<'_> {
    /// How many characters it is indented by.
    fn column(&self) -> usize {
        self.text.len() - self.text.trim_start().len()
    }

    fn is_item(&self) -> bool {
        self.text.trim_start().starts_with("- ")
    }

    /// Where its name begins: behind the `- ` of an item.
    fn key_column(&self) -> usize {
        let mut rest = self.text.trim_start();
        while let Some(inner) = rest.strip_prefix("- ") {
            rest = inner.trim_start();
        }
        self.text.len() - rest.len()
    }

    /// How long its name is, if it has one with a colon behind it.
    fn key_length(&self) -> Option<usize> {
        let rest = self.text.get(self.key_column()..)?.trim_end();
        if rest.starts_with(['{', '[', '"', '\'', '#']) {
            return None;
        }
        rest.find(": ").or_else(|| rest.strip_suffix(':').map(str::len))
    }

    /// Where its text is.
    fn content(&self) -> Span {
        let start = self.start + self.column();
        Span { start, end: self.start + self.text.trim_end().len() }
    }
}
