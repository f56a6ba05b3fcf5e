//! Integers as clients write them.

/// A signed decimal number of 64 bits. `None`: it is something else, or out of range.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    // Counted downwards, for the least number has no positive counterpart.
    let negative = digits.iter().try_fold(0i64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        let digit = (digit < 10).then(|| i64::from(digit))?;
        number.checked_mul(10)?.checked_sub(digit)
    })?;
    if is_negative { Some(negative) } else { negative.checked_neg() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_number_of_64_bits_is_refused() {
        for text in ["", "-", "+", "1 ", " 1", "1.0", "0x1", "--1", "9223372036854775808"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
        assert_eq!(parse_integer(b"-9223372036854775808"), Some(i64::MIN));
    }

    proptest! {
        #[test]
        fn prop_it_reads_what_the_standard_library_reads(text in "[+-]?[0-9]{0,20}") {
            prop_assert_eq!(parse_integer(text.as_bytes()), text.parse().ok());
        }

        #[test]
        fn prop_every_number_is_read(number: i64) {
            prop_assert_eq!(parse_integer(number.to_string().as_bytes()), Some(number));
        }
    }
}
