//! Two spellings of one path: every server that decodes escapes once reads both alike.

use super::escaped_byte;

/// Whether `raw` differs from its normal form in escapes only: no segment and no slash was taken
/// out or put in.
pub(super) fn is_same(raw: &[u8], normal: &[u8]) -> bool {
    let (mut raw, mut normal) = (raw, normal);
    loop {
        (raw, normal) = match (raw, normal) {
            ([], []) => return true,
            ([b'%', high, low, raw @ ..], [b'%', own_high, own_low, normal @ ..])
                if high.eq_ignore_ascii_case(own_high) && low.eq_ignore_ascii_case(own_low) =>
            {
                (raw, normal)
            }
            // An escaped slash is a slash to some servers only.
            ([b'%', digits @ ..], [own, normal @ ..])
                if *own != b'/' && escaped_byte(digits) == Ok(*own) =>
            {
                (digits.get(2..).unwrap_or_default(), normal)
            }
            ([byte, raw @ ..], [own, normal @ ..]) if byte == own => (raw, normal),
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::target::{EncodedSlash, normalize_path};

    #[test]
    fn only_escapes_may_differ() {
        for (raw, normal, expected) in [
            ("/a", "/a", true),
            ("/%61%2D", "/a-", true),
            ("/%40", "/@", true),
            ("/caf%c3%A9", "/caf%C3%A9", true),
            ("/%2541", "/%2541", true),
            ("/", "", false),
            ("/a/", "/a", false),
            ("//a", "/a", false),
            ("/a/../b", "/b", false),
            ("/%2e/b", "/b", false),
            ("/a%2Fb", "/a/b", false),
            ("/a%2Fb", "/a%2Fb", true),
            ("/a%2", "/a%2", true),
            ("/a%2", "/a", false),
        ] {
            assert_eq!(is_same(raw.as_bytes(), normal.as_bytes()), expected, "{raw} {normal}");
        }
    }

    proptest! {
        /// Dot segments and slashes that go, go with bytes of the path.
        #[test]
        fn prop_normal_form_of_as_many_characters_has_the_same_segments(
            raw in "/([a.;%/]|%2[eE]|%61|%3b|%c3){0,12}",
        ) {
            if let Ok(normal) = normalize_path(&raw, EncodedSlash::Reject) {
                let slashes = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
                if is_same(raw.as_bytes(), normal.as_bytes()) {
                    prop_assert_eq!(slashes(&raw), slashes(&normal));
                    let has_dots = |segment: &str| {
                        let name = segment.split(';').next().unwrap_or_default();
                        matches!(name.to_lowercase().replace("%2e", ".").as_str(), "." | "..")
                    };
                    prop_assert!(!raw.split('/').any(has_dots), "{} is {}", raw, normal);
                }
            }
        }
    }
}
