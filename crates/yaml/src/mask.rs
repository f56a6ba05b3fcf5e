//! Secrets that people write into files, by right (the password in a URL) or by mistake (one in
//! place of the name of a variable), masked before a line is shown; and what came from the
//! environment, shown as it is written.
//!
//! Where a secret ends cannot be known in a line that is wrong, so rather too much is masked. Every
//! byte becomes a star: the place of a problem in the line stays the same.

use std::ops::Range;

/// Keys whose values are secrets; ours name a variable or a file, and end in `_env` or `_file`.
const KEYS: [&str; 5] = ["password", "passwd", "pass", "secret", "digest"];

/// Pieces of a value at least as long as this reveal something about it.
const PIECE: usize = 4;

/// Values longer than this are found inside of words too.
const SHORT: usize = 7;

/// Texts that came from the environment, each with what is written in its place (`${NAME}`).
#[derive(Clone, Default)]
pub(super) struct Origins(Vec<(String, String)>);

impl Origins {
    pub(super) fn add(&mut self, text: String, written: &str) {
        let entry = (text, written.to_owned());
        if entry.0.is_empty() || self.0.contains(&entry) {
            return;
        }
        // The longest first: the text around a variable counts as a part of it.
        let at = self.0.partition_point(|(other, _)| other.len() >= entry.0.len());
        self.0.insert(at, entry);
    }

    /// A message with all of them as they are written, and what it quotes of them too.
    pub(super) fn as_written(&self, message: &str) -> String {
        let shown = self.whole_as_written(message);
        let pieces = shown.split('`').enumerate().map(|(number, piece)| {
            let is_quoted = number % 2 == 1 && piece.len() >= PIECE;
            let origin = self.0.iter().find(|(text, _)| is_quoted && text.contains(piece));
            origin.map_or(piece, |(_, written)| written)
        });
        pieces.collect::<Vec<_>>().join("`")
    }

    fn whole_as_written(&self, message: &str) -> String {
        let mut shown = String::with_capacity(message.len());
        let mut at = 0;
        while let Some(c) = message.get(at..).and_then(|rest| rest.chars().next()) {
            match self.0.iter().find(|(text, _)| stands_at(message, at, text)) {
                Some((text, written)) => {
                    shown.push_str(written);
                    at += text.len();
                }
                None => {
                    shown.push(c);
                    at += c.len_utf8();
                }
            }
        }
        shown
    }
}

/// Whether `text` stands there in a message, in whatever case. A short one that is found by chance
/// would spoil the message and reveal the value: it has to be a word of its own, and one of letters
/// only has to be quoted or listed too, as it may be a word of ours.
fn stands_at(message: &str, at: usize, text: &str) -> bool {
    let end = at + text.len();
    if !message.get(at..end).is_some_and(|found| found.eq_ignore_ascii_case(text)) {
        return false;
    }
    let before = message.get(..at).unwrap_or_default();
    let after = message.get(end..).unwrap_or_default();
    if text.len() > SHORT || before.ends_with('`') && after.starts_with('`') {
        return true;
    }
    let is_word_of_its_own = !continues(before.chars().rev()) && !continues(after.chars());
    let is_ours_perhaps = text.bytes().all(|b| b.is_ascii_alphabetic())
        && before.matches('`').count() % 2 == 0
        && !["one of: ", "tier "].iter().any(|list| before.contains(list));
    is_word_of_its_own && !is_ours_perhaps
}

/// Whether a word goes on with these characters: over a mark, if there is more of it behind.
fn continues(mut characters: impl Iterator<Item = char>) -> bool {
    match characters.next() {
        Some('.' | ':' | '/' | '-') => characters.next().is_some_and(char::is_alphanumeric),
        Some(c) => c.is_alphanumeric() || c == '_',
        None => false,
    }
}

/// Where the secrets of a line are, as far as it shows them.
pub(super) fn secrets(line: &str) -> Vec<Range<usize>> {
    let values = KEYS.iter().flat_map(|key| line.match_indices(key)).filter_map(|(at, key)| {
        let rest = line.get(at + key.len()..)?;
        let value = rest.trim_start_matches(['"', '\'']).strip_prefix([':', '='])?;
        Some(line.len() - value.trim_start().len()..line.len())
    });
    values.chain(users(line)).collect()
}

/// A message about a line, without what it quotes of these parts of it.
pub(super) fn without(message: &str, line: &str, parts: &[Range<usize>]) -> String {
    let texts = parts.iter().filter_map(|part| line.get(part.clone())).map(|text| {
        // The braces of a variable are a part of the text.
        let marks = if text.contains("${") { "\"', " } else { "\"', {}[]" };
        text.trim_matches(|c: char| marks.contains(c))
    });
    // Advice may write the same words in another way.
    let long = |word: &&str| word.len() >= PIECE;
    let texts: Vec<&str> = texts
        .flat_map(|text| std::iter::once(text).chain(text.split_whitespace().filter(long)))
        .filter(|text| !text.is_empty())
        .collect();
    let hidden = |piece: &str, text: &str| {
        // The name of a variable reveals nothing about its value.
        let is_variable = text.contains(&format!("${{{piece}"));
        let is_part = piece.len() >= PIECE && text.contains(piece) && !is_variable;
        // A short one that is found by chance would be revealed by what is missing.
        match piece.strip_suffix(text) {
            _ if is_part => HIDDEN.to_owned(),
            Some(before) if before.is_empty() || before.ends_with(' ') => {
                format!("{before}{HIDDEN}")
            }
            _ if text.len() < PIECE => piece.to_owned(),
            _ => piece.replace(text, HIDDEN),
        }
    };
    let pieces = message.split('`').enumerate().map(|(number, piece)| match number % 2 {
        1 => texts.iter().fold(piece.to_owned(), |piece, text| hidden(&piece, text)),
        _ => piece.to_owned(),
    });
    pieces.collect::<Vec<_>>().join("`")
}

/// What a message has in place of a secret.
const HIDDEN: &str = "…";

/// A text with the users and passwords of URLs masked.
pub(super) fn mask_urls(text: &str) -> String {
    let users: Vec<Range<usize>> = users(text).collect();
    mask(text, &users)
}

/// Whatever comes before an `@` and has a colon in it, as users and their passwords have, also
/// where the rest is no URL.
fn users(text: &str) -> impl Iterator<Item = Range<usize>> {
    let words = text.match_indices('@').filter_map(|(end, _)| {
        let before = text.get(..end)?;
        let start = before.rfind([' ', '"', '\'', '[', '{', ',']).map_or(0, |at| at + 1);
        let word = before.get(start..)?;
        (word.contains(':') && !word.contains("://")).then_some(start..end)
    });
    words.chain(users_of_urls(text))
}

/// From behind each `://` to the last `@` that may belong to it.
fn users_of_urls(text: &str) -> impl Iterator<Item = Range<usize>> {
    const BEFORE: &str = "://";
    text.match_indices(BEFORE).filter_map(|(at, _)| {
        let start = at + BEFORE.len();
        let rest = text.get(start..)?;
        let rest = rest.get(..rest.find(BEFORE).unwrap_or(rest.len()))?;
        Some(start..start + rest.rfind('@')?)
    })
}

/// A text with these parts masked.
pub(super) fn mask(text: &str, ranges: &[Range<usize>]) -> String {
    let mut masked = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match ranges.iter().any(|range| range.contains(&at)) {
            true => masked.extend(std::iter::repeat_n('*', c.len_utf8())),
            false => masked.push(c),
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_of_urls_are_masked() {
        for (text, expected) in [
            ("url: redis://app:pass@h:1/0", "url: redis://********@h:1/0"),
            ("url: \"redis://:p@s/s w@h\"", "url: \"redis://********@h\""),
            ("[redis://a:b@h, redis://c:d@i]", "[redis://***@h, redis://***@i]"),
            ("url: redis://é:x@h", "url: redis://****@h"),
            ("servers: [http://h:80, http://i]", "servers: [http://h:80, http://i]"),
            ("mail: ops@example.com", "mail: ops@example.com"),
            ("url: \"app:hunter2@h:1\"", "url: \"***********@h:1\""),
            ("url: \":hunter2@h:1\"", "url: \"********@h:1\""),
            ("url: redis:/:hunter2@h", "url: ***************@h"),
        ] {
            assert_eq!(mask(text, &secrets(text)), expected);
            assert_eq!(mask_urls(text), expected);
        }
    }

    #[test]
    fn secrets_in_place_of_names_are_masked() {
        for (line, expected) in [
            ("redis: { password: hunter2, prefix: a }", "redis: { password: ********************"),
            ("  key_secret:  hunter2", "  key_secret:  *******"),
            ("  \"secret\": hunter2", "  \"secret\": *******"),
            ("password_env: REDIS_PASSWORD", "password_env: REDIS_PASSWORD"),
            ("  pass: hunter2", "  pass: *******"),
            ("url: redis://h?password=hunter2", "url: redis://h?password=*******"),
            ("key_secret_file: key-secret", "key_secret_file: key-secret"),
        ] {
            assert_eq!(mask(line, &secrets(line)), expected);
        }
    }

    #[test]
    fn message_quotes_nothing_that_is_masked() {
        let line = "set: { x-a: \"Bearer hunter2 ${TOKEN}\", x-b: c }";
        let parts = [12..37, 44..45];
        for (message, expected) in [
            ("found `Bearer hunter2 ${TOKEN}`", "found `…`"),
            ("found `hunter2`", "found `…`"),
            ("write `x-a: Bearer hunter2 ${TOKEN}`", "write `x-a: …`"),
            ("write `Bearer: hunter2`", "write `…: …`"),
            ("variable `TOKEN` is not set", "variable `TOKEN` is not set"),
            ("`x-b` appears twice", "`x-b` appears twice"),
            ("`core` and `c`, `x-b: c`", "`core` and `…`, `x-b: …`"),
            ("`{` is never closed", "`{` is never closed"),
            ("hunter2", "hunter2"),
        ] {
            assert_eq!(without(message, line, &parts), expected);
        }
    }
}
