//! JSON bodies made here.

use http::HeaderValue;
use serde::Serialize;

/// The content type.
pub(super) static JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// The same without a parameter, for clients that compare it.
pub(super) static PLAIN_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// JSON that ends with a newline, so that a terminal's prompt begins a line of its own.
pub(super) fn json_line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn newline_follows_the_json_and_nothing_else() {
        assert_eq!(
            json_line(&json!({ "message": "Not\nFound" })),
            b"{\"message\":\"Not\\nFound\"}\n"
        );
    }
}
