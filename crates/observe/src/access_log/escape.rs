//! Text from outside in a line: it can neither end its field nor its line, nor hide what stands
//! beside it.
//!
//! Written straight into the line. Most text is printable ASCII and is copied in one piece.

use std::fmt::{self, Display, Write as _};

/// A line into which text is written as a part of a JSON string.
pub(super) struct JsonText<'l>(pub(super) &'l mut Vec<u8>);

/// The same, without a space: a word of a text line.
pub(super) struct JsonWord<'l>(pub(super) &'l mut Vec<u8>);

/// A line into which text is written as one word.
pub(super) struct Word<'l>(pub(super) &'l mut Vec<u8>);

impl fmt::Write for JsonText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        escape(self.0, text, is_plain, push_json_escape);
        Ok(())
    }
}

impl fmt::Write for JsonWord<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'\\';
        escape(self.0, text, is_plain, push_json_escape);
        Ok(())
    }
}

impl fmt::Write for Word<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_plain = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'\\';
        escape(self.0, text, is_plain, |line, c| match c {
            ' ' => line.extend_from_slice(b"\\x20"),
            c => line.extend_from_slice(c.escape_default().to_string().as_bytes()),
        });
        Ok(())
    }
}

/// Appends a character as an escape of JSON.
fn push_json_escape(line: &mut Vec<u8>, c: char) {
    match c {
        '"' => line.extend_from_slice(b"\\\""),
        '\\' => line.extend_from_slice(b"\\\\"),
        '\n' => line.extend_from_slice(b"\\n"),
        '\r' => line.extend_from_slice(b"\\r"),
        '\t' => line.extend_from_slice(b"\\t"),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                line.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
}

/// Appends `text`, with `escaped` for what is not plain. Letters of all scripts are; marks that
/// turn the direction of text around, and whatever else cannot be seen, are not.
fn escape(
    line: &mut Vec<u8>,
    text: &str,
    is_plain: impl Fn(u8) -> bool,
    escaped: impl Fn(&mut Vec<u8>, char),
) {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| !is_plain(byte)) {
        // Only ASCII is before it.
        let (plain, special) = rest.split_at(at);
        line.extend_from_slice(plain.as_bytes());
        let mut chars = special.chars();
        match chars.next() {
            Some(c) if !c.is_ascii() && c.is_alphanumeric() => {
                line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Some(c) => escaped(line, c),
            None => {}
        }
        rest = chars.as_str();
    }
    line.extend_from_slice(rest.as_bytes());
}

/// Appends a JSON string.
pub(super) fn push_json(line: &mut Vec<u8>, text: &dyn Display) {
    line.push(b'"');
    // Writing to memory does not fail.
    let _ = write!(JsonText(line), "{text}");
    line.push(b'"');
}

/// The same for what is text already.
pub(super) fn push_json_text(line: &mut Vec<u8>, text: &str) {
    line.push(b'"');
    let _ = JsonText(line).write_str(text);
    line.push(b'"');
}

/// Appends one word.
pub(super) fn push_word(line: &mut Vec<u8>, text: &str) {
    let _ = Word(line).write_str(text);
}

/// Appends the value of a header as a JSON string of at most so many of its bytes, with `…` where
/// it was cut.
pub(super) fn push_json_header(line: &mut Vec<u8>, value: &[u8], max_bytes: usize) {
    let kept = match value.get(..max_bytes) {
        // Not within a character.
        Some(start) if value.len() > max_bytes => match value.get(max_bytes) {
            Some(next) if is_continuation(*next) => {
                let end = start.iter().rposition(|byte| !is_continuation(*byte));
                start.get(..end.unwrap_or(max_bytes)).unwrap_or(start)
            }
            _ => start,
        },
        _ => value,
    };
    line.push(b'"');
    for chunk in kept.utf8_chunks() {
        let _ = JsonText(line).write_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            let _ = JsonText(line).write_char(char::REPLACEMENT_CHARACTER);
        }
    }
    if kept.len() < value.len() {
        let _ = JsonText(line).write_char('…');
    }
    line.push(b'"');
}

/// Whether a byte is within a character of UTF-8.
fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}
