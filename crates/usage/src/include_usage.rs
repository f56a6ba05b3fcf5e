//! Asks a model for the usage of a stream, in a request that does not: OpenAI's Chat Completions
//! tell it only if `stream_options` has `include_usage`.

use std::ops::Range;

use crate::members::written;

const INCLUDE_USAGE: &str = "\"include_usage\":true";

/// The body of a request in JSON, with `stream_options.include_usage` set; every other byte stays
/// as it is. None: it is no object, or two readers may see two values of what is to be set.
pub fn with_usage(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let plain = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let [options] = written(plain, ["stream_options"]).ok()?;
    let (place, set) = match options {
        None => (after_brace(text, text)?, format!("\"stream_options\":{{{INCLUDE_USAGE}}},")),
        Some(object) if object.starts_with('{') => {
            match written(object, ["include_usage"]).ok()? {
                [Some(value)] => (place_in(text, value)?, "true".to_owned()),
                [None] => {
                    let is_empty = object.trim_matches(['{', '}']).trim().is_empty();
                    let comma = if is_empty { "" } else { "," };
                    (after_brace(text, object)?, format!("{INCLUDE_USAGE}{comma}"))
                }
            }
        }
        Some(other) => (place_in(text, other)?, format!("{{{INCLUDE_USAGE}}}")),
    };
    let [before, after] = [text.get(..place.start)?, text.get(place.end..)?];
    Some([before, &set, after].concat().into_bytes())
}

/// Where a part of a text is in it.
fn place_in(text: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    Some(start..start.checked_add(part.len())?)
}

/// The place after the brace that opens an object in a text.
fn after_brace(text: &str, object: &str) -> Option<Range<usize>> {
    let start = place_in(text, object)?.start + object.find('{')? + 1;
    Some(start..start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(body: &str) -> Option<String> {
        with_usage(body.as_bytes()).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn usage_is_asked_for_and_nothing_else_changes() {
        for (body, expected) in [
            (
                " { \"stream\" : true}\n",
                " {\"stream_options\":{\"include_usage\":true}, \"stream\" : true}\n",
            ),
            (
                r#"{"stream_options": null,"stream":true}"#,
                r#"{"stream_options": {"include_usage":true},"stream":true}"#,
            ),
            (
                r#"{"stream":true,"stream_options":{ }}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true }}"#,
            ),
            (
                r#"{"stream_options":{"include_obfuscation":false}}"#,
                r#"{"stream_options":{"include_usage":true,"include_obfuscation":false}}"#,
            ),
            (
                r#"{"stream_options":{"include_usage": false },"n":1}"#,
                r#"{"stream_options":{"include_usage": true },"n":1}"#,
            ),
            (
                "\u{FEFF}{\"stream\":true}",
                "\u{FEFF}{\"stream_options\":{\"include_usage\":true},\"stream\":true}",
            ),
        ] {
            assert_eq!(set(body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn what_cannot_be_read_in_one_way_is_left_alone() {
        for body in [
            "",
            "[]",
            "{",
            r#"{"stream_options":{},"stream_options":{}}"#,
            r#"{"Stream_Options":{}}"#,
            r#"{"stream_options":{"include_usage":true,"include_usage":false}}"#,
        ] {
            assert_eq!(set(body), None, "{body}");
        }
    }
}
