//! Which texts may name a caller.

use std::borrow::Cow;

/// How long the name of a caller may be.
const MAX_CALLER_BYTES: usize = 256;

/// A claim as the name of a caller. None: it is not text or a whole number, or cannot be a name.
pub(super) fn caller_value(value: &serde_json::Value) -> Option<Cow<'_, str>> {
    let text = match value {
        serde_json::Value::String(text) => Cow::Borrowed(text.as_str()),
        serde_json::Value::Number(number) if !number.is_f64() => Cow::Owned(number.to_string()),
        _ => return None,
    };
    is_caller_text(&text).then_some(text)
}

/// Whether a text may name a caller: not empty, of bounded length, without control characters.
pub(super) fn is_caller_text(text: &str) -> bool {
    // Spaces around a field's value are no part of it (RFC 9110 section 5.5), so the upstream would
    // read another name than the one that is counted here.
    !text.is_empty()
        && text.len() <= MAX_CALLER_BYTES
        && text.trim() == text
        && !text.chars().any(char::is_control)
}
