//! Numbers in commands and replies, read and written as Redis does.

use super::command_error::CommandError;

/// Reads an integer: one that would be written otherwise is none.
pub(super) fn integer(text: &[u8]) -> Result<i64, CommandError> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let number = number.filter(|number| number.to_string().as_bytes() == text);
    number.ok_or(CommandError::NotAnInteger)
}

/// Reads a number.
pub(super) fn float(text: &[u8]) -> Result<f64, CommandError> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number.filter(|number| !number.is_nan()).ok_or(CommandError::NotAFloat)
}

/// Writes a number with at most 17 digits: `%.17g` in C.
pub(super) fn text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:.16e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent @ -4..17) => {
            let decimals = (16 - exponent) as usize;
            trimmed(&format!("{number:.decimals$}")).to_owned()
        }
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
        }
        Err(_) => scientific,
    }
}

/// Without zeros at the end of the fraction.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// A number without its fraction, as C makes it on the processors that we know: one that is too
/// large becomes the least of all.
pub(super) fn truncated(number: f64) -> i64 {
    let is_held = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if is_held { number as i64 } else { i64::MIN }
}

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    score: f64,
    is_open: bool,
}

impl Bound {
    /// Reads a bound: with a parenthesis before it, it is not in the range itself.
    pub(super) fn parse(text: &[u8]) -> Result<Bound, CommandError> {
        let (score, is_open) = match text.strip_prefix(b"(") {
            Some(score) => (score, true),
            None => (text, false),
        };
        let score = match score {
            // C reads zero in it.
            b"" => 0.0,
            score => float(score).map_err(|_| CommandError::NotABound)?,
        };
        Ok(Bound { score, is_open })
    }

    /// Whether a score is not below this bound.
    pub(super) fn admits_above(self, score: f64) -> bool {
        if self.is_open { score > self.score } else { score >= self.score }
    }

    /// Whether a score is not above this bound.
    pub(super) fn admits_below(self, score: f64) -> bool {
        if self.is_open { score < self.score } else { score <= self.score }
    }
}

/// The positions in a sequence of this length between two ends, both included, where negative
/// numbers count from its end.
pub(super) fn positions(first: i64, last: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from_end = |at: i64| if at < 0 { length.saturating_add(at) } else { at };
    let (first, last) = (from_end(first).max(0), from_end(last).min(length - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

#[test]
fn numbers_are_written_as_in_c() {
    for (number, expected) in [
        (0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.10000000000000001"),
        (1_796_083_200_123.0, "1796083200123"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (1e17, "1e+17"),
        (12_345_678_901_234_567_890.0, "1.2345678901234567e+19"),
        (0.000_012_5, "1.2500000000000001e-05"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        assert_eq!(text(number), expected);
    }
}
