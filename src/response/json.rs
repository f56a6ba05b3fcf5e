//! JSON bodies of our own.

use serde::Serialize;

/// JSON that ends with a newline: what follows it in a terminal or a log begins a line of its own.
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
