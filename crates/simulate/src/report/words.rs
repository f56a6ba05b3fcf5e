//! Numbers, shares and durations as people read them.

/// An integer with a comma between thousands.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and the word for what is counted.
pub(super) fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

/// A part of a whole in percent, with two significant digits.
///
/// Neither a part that is little becomes nothing, nor one that is nearly the whole the whole: who
/// reads `0 %` may rely on that nobody is concerned.
pub(super) fn share(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        _ if !percent.is_finite() => "–".into(),
        _ if percent <= 0.0 => "0 %".into(),
        _ if percent < 0.01 => "< 0.01 %".into(),
        _ if percent < 0.995 => format!("{} %", trimmed(&format!("{percent:.2}"))),
        _ if percent < 9.95 => format!("{} %", trimmed(&format!("{percent:.1}"))),
        _ if percent < 99.0 => format!("{percent:.0} %"),
        _ if percent < 100.0 => "> 99 %".into(),
        _ => "100 %".into(),
    }
}

/// A number with at most one digit after the point, and two if it is below one.
pub(super) fn decimal(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".into(),
        // Beyond 2^53 no float has a part.
        _ if value >= 99.5 => number(value.round() as u64),
        _ if value >= 1.0 => trimmed(&format!("{value:.1}")),
        _ => trimmed(&format!("{value:.2}")),
    }
}

/// Without zeros at its end.
fn trimmed(decimal: &str) -> String {
    match decimal.contains('.') {
        true => decimal.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => decimal.to_owned(),
    }
}

/// Seconds in the two largest units that are not zero: `2 h 5 min`.
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "–".into();
    }
    if seconds <= 0.0 {
        return "0 s".into();
    }
    if seconds < 0.001 {
        return "< 1 ms".into();
    }
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 9.95 {
        return format!("{} s", trimmed(&format!("{seconds:.1}")));
    }
    in_units(seconds.round() as u64, 2)
}

/// The length of a window, exact: nothing of it is left out.
pub(super) fn window(seconds: u64) -> String {
    in_units(seconds, UNITS.len())
}

/// The units of time, in seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

/// Seconds in so many units from the largest one that they reach, without those of which there is
/// nothing.
fn in_units(seconds: u64, most: usize) -> String {
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (name, length) in UNITS.iter().skip_while(|(_, length)| seconds < *length).take(most) {
        if rest / length > 0 {
            parts.push(format!("{} {name}", rest / length));
        }
        rest %= length;
    }
    if parts.is_empty() { "0 s".into() } else { parts.join(" ") }
}

/// Bytes in units of 1,024.
pub(super) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB"].into_iter();
    if bytes < 1024 {
        return count(bytes, "byte", "bytes");
    }
    let mut unit = "";
    while value >= 1024.0 {
        let Some(next) = units.next() else { break };
        value /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", decimal(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn shares_have_two_digits_that_count() {
        for (part, expected) in [
            (0.0, "0 %"),
            (0.000_000_1, "< 0.01 %"),
            (0.000_12, "0.01 %"),
            (0.001, "0.1 %"),
            (0.001_27, "0.13 %"),
            (0.009_96, "1 %"),
            (0.0123, "1.2 %"),
            (0.0996, "10 %"),
            (0.126, "13 %"),
            (0.989, "99 %"),
            (0.999_99, "> 99 %"),
            (1.0, "100 %"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(share(part), expected, "{part}");
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (0.000_1, "< 1 ms"),
            (0.25, "250 ms"),
            (1.0, "1 s"),
            (2.25, "2.2 s"),
            (59.6, "1 min"),
            (125.0, "2 min 5 s"),
            (7_500.0, "2 h 5 min"),
            (7_205.0, "2 h"),
            (86_400.0 * 30.0, "30 d"),
            (90_061.0, "1 d 1 h"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn windows_are_exact() {
        for (seconds, expected) in
            [(1, "1 s"), (90, "1 min 30 s"), (3_600, "1 h"), (90_061, "1 d 1 h 1 min 1 s")]
        {
            assert_eq!(window(seconds), expected);
        }
    }

    #[test]
    fn bytes_have_units() {
        for (size, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1_536, "1.5 KiB"),
            (52_428_800, "50 MiB"),
            (u64::MAX, "16,777,216 TiB"),
        ] {
            assert_eq!(bytes(size), expected);
        }
    }
}
