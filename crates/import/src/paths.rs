//! Patterns of paths, as routes have them.

/// A path as a pattern has it. None: no request's path looks like this here.
pub(crate) fn literal(path: &str) -> Option<String> {
    let is_normal = (path.is_empty() || path.starts_with('/') || !path.contains('/'))
        && !path.contains("//")
        && !path.split('/').any(|segment| matches!(segment, "." | ".."))
        && !path.contains(['%', '?', '#', '\\', ';'])
        && !path.contains(|letter: char| letter.is_control());
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"*{}".contains(byte);
    let encoded = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    is_normal.then(|| path.bytes().map(encoded).collect())
}

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
