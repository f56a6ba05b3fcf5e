//! Which paths a pattern takes, and which patterns are a part of another one.

/// Whether a pattern takes a path.
pub(super) fn takes(pattern: &str, path: &str, ignores_case: bool) -> bool {
    if ignores_case {
        return takes(&pattern.to_ascii_lowercase(), &path.to_ascii_lowercase(), false);
    }
    let (base, is_below) =
        pattern.strip_suffix("/**").map_or((pattern, false), |base| (base, true));
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    for wanted in base.split('/').filter(|segment| !segment.is_empty()) {
        let Some(segment) = segments.next() else { return false };
        let is_like = match wanted.split_once('*') {
            Some((before, after)) => {
                segment.len() >= wanted.len() - 1
                    && segment.starts_with(before)
                    && segment.ends_with(after)
            }
            None => segment == wanted,
        };
        if !is_like {
            return false;
        }
    }
    is_below || segments.next().is_none()
}

/// Whether a pattern takes all paths that another one takes.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    let (base, is_below) = narrow.strip_suffix("/**").map_or((narrow, false), |base| (base, true));
    // An asterisk of the narrow one is a letter like others here: what stands beside it decides.
    (!is_below || wide.ends_with("/**")) && takes(wide, base, false)
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
