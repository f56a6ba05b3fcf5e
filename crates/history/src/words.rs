//! Lines of words that blanks or tabs separate, some between quotes.

/// The words of a line, without quotes. A quote within one is escaped by a backslash, or doubled.
pub(super) fn words(line: &str) -> Vec<&str> {
    let is_tabbed = memchr::memchr(b'\t', line.as_bytes()).is_some();
    if is_tabbed {
        return line.split('\t').collect();
    }
    let mut words = Vec::with_capacity(32);
    let mut rest = line.trim_start_matches(' ');
    while !rest.is_empty() {
        let (word, behind) = quoted(rest).unwrap_or_else(|| {
            let end = rest.find(' ').unwrap_or(rest.len());
            rest.split_at(end)
        });
        words.push(word);
        rest = behind.trim_start_matches(' ');
    }
    words
}

/// What is between quotes at the start, and what is behind them: a blank, or the end.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', text.as_bytes().get(from..)?)?;
        let (word, behind) = text.split_at_checked(at)?;
        let behind = behind.get(1..)?;
        let is_escaped = word.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        if !is_escaped && (behind.is_empty() || behind.starts_with(' ')) {
            return Some((word, behind));
        }
        from = if behind.starts_with('"') { at + 2 } else { at + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_blanks_tabs_and_quotes() {
        for (line, expected) in [
            ("a  b c ", &["a", "b", "c"][..]),
            ("a\tb c\t", &["a", "b c", ""]),
            (r#"a "b c" "" d"#, &["a", "b c", "", "d"]),
            (r#""says \"hi\" b" c"#, &[r#"says \"hi\" b"#, "c"]),
            (r#""says "hi" b" c"#, &[r#"says "hi"#, r#"b""#, "c"]),
            (r#""a ""b"" c" d"#, &[r#"a ""b"" c"#, "d"]),
            (r#"a "b c"#, &["a", "\"b", "c"]),
            ("", &[]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
    }
}
