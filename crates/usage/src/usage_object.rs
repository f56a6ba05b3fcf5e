//! The usage of a response, as a program hands it over in place of the response.

use crate::response::{ResponseReader, Used, Wanted};

/// What this JSON object says: a vendor's usage object alone, or a whole response. None: nothing of
/// what is wanted.
pub fn used_in(wanted: &Wanted, object: &str) -> Option<Used> {
    // Vendors keep their usage objects under two names, and a whole response has one of them
    // itself. Only the documents in which the object is in its right place say something.
    let documents = format!("{{\"usage\":{object},\"usageMetadata\":{object}}}\n{object}\n");
    let mut reader = ResponseReader::new(wanted.clone(), Some("application/x-ndjson"), None);
    reader.read(documents.as_bytes());
    reader.end().used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Tokens, Vendor};

    #[test]
    fn usage_says_the_same_alone_and_in_its_response() {
        let tokens = |input, cached, cache_write, output| {
            Some(Used::Tokens(Tokens { input, cached, cache_write, output }))
        };
        for (vendor, name, usage, expected) in [
            (
                Vendor::OpenAi,
                "usage",
                r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,
                    "prompt_tokens_details":{"cached_tokens":60}}"#,
                tokens(40, 60, 0, 20),
            ),
            (
                Vendor::OpenAi,
                "usage",
                r#"{"input_tokens":81,"input_tokens_details":{"cached_tokens":1},"output_tokens":9}"#,
                tokens(80, 1, 0, 9),
            ),
            (
                Vendor::OpenAi,
                "usage",
                r#"{"prompt_tokens":8,"total_tokens":8}"#,
                tokens(8, 0, 0, 0),
            ),
            (
                Vendor::Anthropic,
                "usage",
                r#"{"input_tokens":12,"cache_creation_input_tokens":3,
                    "cache_read_input_tokens":100,"output_tokens":30}"#,
                tokens(12, 100, 3, 30),
            ),
            (
                Vendor::Gemini,
                "usageMetadata",
                r#"{"promptTokenCount":50,"candidatesTokenCount":7,"thoughtsTokenCount":3}"#,
                tokens(50, 0, 0, 10),
            ),
        ] {
            let response = format!(r#"{{"id":"x","{name}":{usage},"model":"m"}}"#);
            for object in [usage, &response] {
                for vendor in [vendor, Vendor::Auto] {
                    assert_eq!(used_in(&Wanted::Tokens(vendor), object), expected, "{object}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_usage_says_nothing() {
        for object in ["{}", r#"{"total_tokens":5}"#, r#"{"usage":null}"#, r#"{"tokens":{"a":1}}"#]
        {
            assert_eq!(used_in(&Wanted::Tokens(Vendor::Auto), object), None, "{object}");
        }
        let gemini = r#"{"promptTokenCount":50}"#;
        assert_eq!(used_in(&Wanted::Tokens(Vendor::Anthropic), gemini), None);
    }
}
