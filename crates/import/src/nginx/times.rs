//! Times and sizes, as nginx writes them.

/// A time in whole seconds, rounded up: `90`, `1m30s`, `500ms`.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut milliseconds = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let units = [
            ("ms", 1),
            ("s", 1000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 604_800_000),
        ];
        let (length, unit) = match units.into_iter().find(|(unit, _)| after.starts_with(unit)) {
            Some((name, unit)) => (name.len(), unit),
            None if after.is_empty() => (0, 1000),
            None => return None,
        };
        milliseconds = number.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(milliseconds)?;
        rest = after.get(length..)?.trim_start();
    }
    (!text.is_empty()).then(|| milliseconds.div_ceil(1000))
}

/// A size as policies have it: `10m` is `10MiB`.
pub(crate) fn size(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (number, unit) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(number) if lower.ends_with('k') => (number, "KiB"),
        Some(number) if lower.ends_with('m') => (number, "MiB"),
        Some(number) => (number, "GiB"),
        None => (lower.as_str(), ""),
    };
    number.parse::<u64>().ok().map(|number| format!("{number}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_those_of_nginx() {
        for (text, expected) in [
            ("90", Some(90)),
            ("1m30s", Some(90)),
            ("1h 5ms", Some(3601)),
            ("", None),
            ("5x", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        for (text, expected) in [
            ("10m", Some("10MiB")),
            ("8K", Some("8KiB")),
            ("1000", Some("1000")),
            ("0", Some("0")),
            ("m", None),
        ] {
            assert_eq!(size(text).as_deref(), expected, "{text}");
        }
    }
}
