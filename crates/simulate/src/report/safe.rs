//! Text from a log, made harmless. A client chooses its path and often its name, and so what stands
//! in a report that an operator opens: it must not drive a terminal, reorder what is beside it, run
//! on a page, or call people into a pull request.

pub(super) use tollgate_printable::printable;

/// The most characters of a name in a table: a longer one tells nothing more and breaks the layout.
const MAX_NAME: usize = 80;

/// Printable, and at most so many characters: the end of a longer one is `…`.
pub(super) fn at_most(text: &str, most: usize) -> String {
    let shown = printable(text);
    match shown.char_indices().nth(most) {
        None => shown.into_owned(),
        Some(_) => shown.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// A name in a table or a sentence: printable, and not without end.
pub(super) fn name(text: &str) -> String {
    at_most(text, MAX_NAME)
}

/// Printable text for HTML: between tags and in a quoted attribute.
pub(super) fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A code span of Markdown (CommonMark 6.1), also in a cell of a table: its fence is longer than
/// any row of backticks in it, it is one line, and a `|` does not end the cell (GFM 4.10). In it,
/// nothing is a mark, a tag, a link or a mention.
pub(super) fn code(text: &str) -> String {
    code_span(&printable(text).replace('|', "\\|"))
}

/// A code span of Markdown outside of a table, of text in one line.
pub fn code_span(text: &str) -> String {
    // An empty span would be two backticks.
    let text = if text.is_empty() { " " } else { text };
    let fence = fence(text, 1);
    match text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        true => format!("{fence} {text} {fence}"),
        false => format!("{fence}{text}{fence}"),
    }
}

/// A fence for code, of at least so many backticks: longer than any row of them in it.
pub(super) fn fence(code: &str, least: usize) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(least.max(longest + 1))
}

/// Text for HTML within Markdown, where the marks are no marks, and `@` and `#` still are: a tag
/// parts them from what they would refer to.
pub(super) fn summary(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in printable(text).chars() {
        match c {
            '@' | '#' => escaped.extend(["<b>", c.encode_utf8(&mut [0; 4]), "</b>"]),
            c => escaped.push_str(&html(c.encode_utf8(&mut [0; 4]))),
        }
    }
    escaped
}

/// A sentence in Markdown, in which no character is a mark. `@` and `#` would call people and refer
/// to issues wherever they stand in text; as code they do not.
pub(super) fn prose(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in printable(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '!' => {
                escaped.extend(['\\', c]);
            }
            // Else `https://` and `www.` become links.
            '/' if escaped.ends_with(':') => escaped.extend(['\\', c]),
            '.' if escaped.ends_with("www") => escaped.extend(['\\', c]),
            '@' | '#' => escaped.extend(['`', c, '`']),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_shown() {
        for (text, expected) in [
            ("user:42", "user:42"),
            ("Grüße, 東京, мир", "Grüße, 東京, мир"),
            ("\u{1b}[31m", "\\u{1b}[31m"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("ab\u{202e}cd\u{2066}", "ab\\u{202e}cd\\u{2066}"),
            ("ad\u{200b}min\u{feff}", "ad\\u{200b}min\\u{feff}"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(at_most("abcdef", 6), "abcdef");
        assert_eq!(at_most("abcdefg", 6), "abcde…");
        assert_eq!(name(&"x".repeat(500)).chars().count(), MAX_NAME);
    }

    #[test]
    fn nothing_is_a_tag_or_ends_an_attribute() {
        assert_eq!(html("<a href='x\"'>&"), "&lt;a href=&#39;x&quot;&#39;&gt;&amp;");
    }

    #[test]
    fn a_summary_calls_nobody() {
        assert_eq!(summary("@a #1 <'>"), "<b>@</b>a <b>#</b>1 &lt;&#39;&gt;");
    }

    #[test]
    fn nothing_ends_a_code_span_or_a_cell() {
        for (text, expected) in [
            ("/search/**", "`/search/**`"),
            ("a `b` c", "``a `b` c``"),
            ("``a`", "``` ``a` ```"),
            ("a|b", "`a\\|b`"),
            ("two\nlines", "`two\\nlines`"),
            ("@all <img>", "`@all <img>`"),
            ("", "`   `"),
        ] {
            assert_eq!(code(text), expected);
        }
    }

    #[test]
    fn prose_has_no_marks_no_mentions_and_no_links() {
        assert_eq!(prose("*a* <b> `c` [d](e) | @f #1"), r"\*a\* \<b\> \`c\` \[d\](e) \| `@`f `#`1");
        assert_eq!(prose("http://a.b www.c.d"), r"http:\//a.b www\.c.d");
    }
}
