//! Numbers: their grammar, and what they amount to.

/// How much of a number was read, by the grammar of RFC 8259 section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberState {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// A number as far as costs are concerned: how many units it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Rounded up to a whole number.
    pub units: u64,
    /// It was a whole number.
    pub is_whole: bool,
}

/// Digits that an exponent may have that is looked at: what is longer is no amount of anything.
const MAX_EXPONENT: i32 = 400;

impl NumberState {
    /// After the first byte of a number; none: no number begins so.
    pub(super) fn begin(byte: u8) -> Option<NumberState> {
        match byte {
            b'-' => Some(NumberState::Minus),
            b'0' => Some(NumberState::Zero),
            b'1'..=b'9' => Some(NumberState::Integer),
            _ => None,
        }
    }

    /// Whether the number may end here.
    pub(super) fn is_whole(self) -> bool {
        use NumberState::{ExponentDigits, Fraction, Integer, Zero};
        matches!(self, Zero | Integer | Fraction | ExponentDigits)
    }

    /// Takes the bytes that go on with it, and says how many they are.
    pub(super) fn read(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for byte in bytes {
            let Some(next) = self.next(*byte) else { break };
            *self = next;
            taken += 1;
        }
        taken
    }

    fn next(self, byte: u8) -> Option<NumberState> {
        use NumberState::{
            Exponent, ExponentDigits, ExponentSign, Fraction, Integer, Minus, Point, Zero,
        };
        Some(match (self, byte) {
            (Minus, b'0') => Zero,
            (Minus, b'1'..=b'9') | (Integer, b'0'..=b'9') => Integer,
            (Zero | Integer, b'.') => Point,
            (Point | Fraction, b'0'..=b'9') => Fraction,
            (Zero | Integer | Fraction, b'e' | b'E') => Exponent,
            (Exponent, b'+' | b'-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, b'0'..=b'9') => ExponentDigits,
            _ => return None,
        })
    }
}

impl Amount {
    /// Of a number as JSON writes it; none: it is negative, or no number. What is more than a `u64`
    /// has is as much as that.
    pub fn parse(text: &str) -> Option<Amount> {
        let mut bytes = text.bytes();
        let mut state = NumberState::begin(bytes.next()?)?;
        if !bytes.all(|byte| state.next(byte).map(|next| state = next).is_some())
            || !state.is_whole()
        {
            return None;
        }
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let is_negative = digits.starts_with('-');
        let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = integer.trim_start_matches('-').bytes().chain(fraction.bytes());
        if all.clone().all(|digit| digit == b'0') {
            return Some(Amount { units: 0, is_whole: true });
        }
        if is_negative {
            return None;
        }
        let exponent = match exponent.strip_prefix('-') {
            Some(exponent) => -parse_exponent(exponent),
            None => parse_exponent(exponent.trim_start_matches('+')),
        };
        // The position of the point among all digits.
        let point = i64::try_from(integer.len()).ok()? + i64::from(exponent);
        let mut units: u64 = 0;
        let mut is_whole = true;
        let mut positions: i64 = 0;
        for digit in all {
            if positions < point {
                units = units.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            } else if digit != b'0' {
                is_whole = false;
            }
            positions += 1;
        }
        for _ in positions..point {
            units = units.saturating_mul(10);
        }
        Some(Amount { units: units.saturating_add(u64::from(!is_whole)), is_whole })
    }
}

/// An exponent without its sign. One that is too high for any amount is as high as it takes.
fn parse_exponent(digits: &str) -> i32 {
    digits.parse().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Option<(u64, bool)> {
        Amount::parse(text).map(|amount| (amount.units, amount.is_whole))
    }

    #[test]
    fn whole_numbers_are_whole_however_they_are_written() {
        for text in ["100", "100.0", "1e2", "1E+2", "1000e-1", "10.00e1", "0.1e3"] {
            assert_eq!(amount(text), Some((100, true)), "{text}");
        }
        assert_eq!(amount("0"), Some((0, true)));
        assert_eq!(amount("-0.0"), Some((0, true)));
    }

    #[test]
    fn fractions_are_rounded_up() {
        assert_eq!(amount("0.1"), Some((1, false)));
        assert_eq!(amount("2.5"), Some((3, false)));
        assert_eq!(amount("1e-300"), Some((1, false)));
        assert_eq!(amount("12e-1"), Some((2, false)));
    }

    #[test]
    fn what_is_negative_or_no_number_is_no_amount() {
        for text in ["-1", "-0.5", "", "-", "01", "1.", ".5", "1e", "+1", "inf", "nan", "1 "] {
            assert_eq!(amount(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_end_at_the_highest_number() {
        for text in ["18446744073709551616", "1e20", "1e999999999999", "9e400"] {
            assert_eq!(amount(text), Some((u64::MAX, true)), "{text}");
        }
    }
}
