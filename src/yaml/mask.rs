//! Secrets that people write into files, by right (the password in a URL) or by mistake (one in
//! place of the name of a variable), masked before a line is shown.
//!
//! Where a secret ends cannot be known in a line that is wrong, so rather too much is masked. Every
//! byte becomes a star: the place of a problem in the line stays the same.

use std::ops::Range;

/// Keys whose values are secrets; ours name a variable or a file, and end in `_env` or `_file`.
const KEYS: [&str; 4] = ["password", "passwd", "pass", "secret"];

/// A line of a file without its secrets.
pub(super) fn mask_line(line: &str) -> String {
    let values = KEYS.iter().flat_map(|key| line.match_indices(key)).filter_map(|(at, key)| {
        let rest = line.get(at + key.len()..)?;
        let value = rest.trim_start_matches(['"', '\'']).strip_prefix([':', '='])?;
        Some(line.len() - value.trim_start().len()..line.len())
    });
    mask(line, values.chain(users(line)))
}

/// A text with the users and passwords of URLs masked.
pub(super) fn mask_urls(text: &str) -> String {
    mask(text, users(text))
}

/// Whatever comes before an `@` and has a colon in it, as users and their passwords have, also where
/// the rest is no URL.
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

fn mask(text: &str, ranges: impl Iterator<Item = Range<usize>>) -> String {
    let ranges: Vec<Range<usize>> = ranges.collect();
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
            assert_eq!(mask_line(text), expected);
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
            assert_eq!(mask_line(line), expected);
        }
    }
}
