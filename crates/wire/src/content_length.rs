//! The value of a `content-length` field (RFC 9110 section 8.6).

use super::Violation;

/// The longest body that can be declared: many servers have it in a signed number of 64 bits, and
/// the protocol engine answers some greater ones in words of its own.
const MAX_LENGTH: u64 = i64::MAX as u64;

/// A length, and with how many digits it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentLength {
    pub(super) bytes: u64,
    pub(super) digits: usize,
}

/// Reads a length, which has no white space around it.
///
/// # Errors
/// [`Violation::BadLength`].
pub(super) fn content_length(digits: &[u8]) -> Result<ContentLength, Violation> {
    //= rfc9110#section-8.6
    //# a sender MUST NOT forward a message with a Content-Length header field value that does not
    //# match the ABNF above
    if digits.is_empty() {
        return Err(Violation::BadLength);
    }
    //= rfc9110#section-8.6
    //# a recipient MUST anticipate potentially large decimal numerals and prevent parsing errors
    //# due to integer conversion overflows
    let number = digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    //= rfc9112#section-6.3
    //# then the message framing is invalid and the recipient MUST treat it as an unrecoverable
    //# error
    let bytes = number.filter(|bytes| *bytes <= MAX_LENGTH).ok_or(Violation::BadLength)?;
    Ok(ContentLength { bytes, digits: digits.len() })
}
