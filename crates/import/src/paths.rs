//! Patterns of paths, as routes have them.

/// Whether a pattern takes a path, of which each segment may have one star.
pub(crate) fn takes(pattern: &str, path: &str) -> bool {
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
