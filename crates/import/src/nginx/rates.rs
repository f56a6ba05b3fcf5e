//! Rates, in thousandths of a request a second as nginx has them.

/// A rate of thousandths a second, as limits have it.
pub(super) fn rate_in_words(milli: u64) -> String {
    match (milli % 1000, milli * 60 % 1000) {
        (0, _) => format!("{}/second", milli / 1000),
        (_, 0) => format!("{}/minute", milli * 60 / 1000),
        _ => format!("{milli}/1000s"),
    }
}

/// Thousandths of a request a second, rounded down as nginx does.
pub(super) fn rate(text: &str) -> Option<u64> {
    let (number, seconds) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => (text, 1),
    };
    Some(number.parse::<u64>().ok().filter(|number| *number <= 4_000_000)? * 1000 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_down_as_nginx_does() {
        for (text, expected) in [
            ("10r/s", "10/second"),
            ("3", "3/second"),
            ("1r/m", "16/1000s"),
            ("5r/m", "83/1000s"),
            ("30r/m", "30/minute"),
            ("60r/m", "1/second"),
            ("240r/m", "4/second"),
            ("100r/m", "1666/1000s"),
        ] {
            assert_eq!(rate_in_words(rate(text).unwrap()), expected, "{text}");
        }
        for text in ["5r/h", "0.5r/s", "", "-1r/s"] {
            assert_eq!(rate(text), None);
        }
    }
}
