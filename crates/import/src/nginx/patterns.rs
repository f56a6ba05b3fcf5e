//! Which patterns are a part of another one.

use crate::paths;

/// Whether a pattern takes all paths that another one takes.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    let (base, is_below) = narrow.strip_suffix("/**").map_or((narrow, false), |base| (base, true));
    // An asterisk of the narrow one is a letter like others here: what stands beside it decides.
    (!is_below || wide.ends_with("/**")) && paths::takes(wide, base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_pattern_covers_what_is_a_part_of_it() {
        for (wide, narrow, expected) in [
            ("/**", "/", true),
            ("/a*/**", "/a/b*/**", true),
            ("/a*/**", "/a*/**", true),
            ("/a/**", "/a*/**", false),
            ("/*", "/*/**", false),
            ("/*", "/*.php", true),
            ("/*.php", "/*", false),
            ("/*/*/**", "/a/**", false),
            ("/*/*/**", "/api/*/*/**", true),
            ("/a/b", "/a/*", false),
            ("/a*b", "/ab*", false),
        ] {
            assert_eq!(covers(wide, narrow), expected, "{wide} {narrow}");
        }
    }
}
