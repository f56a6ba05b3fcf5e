//! `traceparent`: which trace a request belongs to, and which span is the parent of the next one
//! (W3C Trace Context, <https://www.w3.org/TR/trace-context/>, section 3.2).

use std::fmt;

use http::HeaderValue;

/// Identifies a trace. Never all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// Identifies a span in its trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

/// What a `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the sender.
    pub span_id: SpanId,
    /// Whether the sender may have recorded the trace.
    pub is_sampled: bool,
}

/// The length of a `traceparent` of version 00, the one that is written here.
const LENGTH: usize = 55;

/// Where the span is in it.
pub(super) const SPAN_AT: usize = 36;

impl TraceId {
    /// None: all zeros name no trace.
    pub(super) fn new(number: u128) -> Option<TraceId> {
        (number != 0).then_some(TraceId(number))
    }

    /// As OTLP has it: 16 bytes.
    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The last eight bytes, by which traces are sampled.
    pub(super) fn low(self) -> u64 {
        self.0 as u64
    }
}

impl SpanId {
    /// None: zero names no span.
    pub(super) fn new(number: u64) -> Option<SpanId> {
        (number != 0).then_some(SpanId(number))
    }

    /// As OTLP has it: eight bytes.
    pub(super) fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// As `traceparent` has it: 16 digits.
    pub(super) fn to_hex(self) -> [u8; 16] {
        let mut digits = [0; 16];
        write_hex(&self.to_bytes(), &mut digits);
        digits
    }
}

impl Parent {
    /// Reads a `traceparent`. None: it is not valid, and is treated as if it was not there. Later
    /// versions may have more fields, and the first four mean the same in them.
    pub fn parse(text: &[u8]) -> Option<Parent> {
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let separators = [2, 35, 52].map(|at| head.get(at));
        if separators != [Some(&b'-'); 3] {
            return None;
        }
        let version = read_hex(head.get(..2)?)?;
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        if !is_whole {
            return None;
        }
        let trace_id = TraceId::new(read_hex(head.get(3..35)?)?)?;
        let span_id = SpanId::new(read_hex(head.get(SPAN_AT..52)?)? as u64)?;
        let flags = read_hex(head.get(53..)?)?;
        Some(Parent { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }

    /// The field's value, in version 00.
    pub(super) fn to_value(self) -> HeaderValue {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        if let Some(place) = text.get_mut(3..35) {
            write_hex(&self.trace_id.to_bytes(), place);
        }
        if let Some(place) = text.get_mut(SPAN_AT..52) {
            write_hex(&self.span_id.to_bytes(), place);
        }
        if let (Some(flag), true) = (text.last_mut(), self.is_sampled) {
            *flag = b'1';
        }
        // Digits and hyphens are a value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// 32 digits.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The number that digits stand for; none if one of them is no digit in lower case.
fn read_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parse(text: &str) -> Option<Parent> {
        Parent::parse(text.as_bytes())
    }

    #[test]
    fn valid_parents_are_read_and_written_alike() {
        for (flags, is_sampled) in [("00", false), ("01", true)] {
            let text = format!("00-{TRACE}-{SPAN}-{flags}");
            let parent = parse(&text).unwrap();
            assert_eq!(parent.trace_id.to_string(), TRACE);
            assert_eq!(parent.span_id.to_hex(), *SPAN.as_bytes());
            assert_eq!(parent.is_sampled, is_sampled);
            assert_eq!(parent.to_value(), text.as_str());
        }
    }

    #[test]
    fn unknown_flags_are_ignored() {
        for (flags, is_sampled) in [("02", false), ("03", true), ("fe", false), ("ff", true)] {
            let parent = parse(&format!("00-{TRACE}-{SPAN}-{flags}")).unwrap();
            assert_eq!(parent.is_sampled, is_sampled, "{flags}");
        }
    }

    #[test]
    fn later_versions_are_read_by_their_first_fields() {
        for text in [
            format!("01-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01-what-the-future-brings"),
            format!("fe-{TRACE}-{SPAN}-01-"),
        ] {
            let parent = parse(&text).unwrap();
            assert_eq!(parent.to_value(), format!("00-{TRACE}-{SPAN}-01").as_str(), "{text}");
        }
    }

    #[test]
    fn what_is_no_parent_is_not_read() {
        for text in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-011"),
            format!("01-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("FE-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0A"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
            format!("00-{}g-{SPAN}-01", &TRACE[1..]),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn prop_whatever_is_read_is_written_as_it_came(
            text in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-0[01](-[ -~]{0,8})?",
        ) {
            if let Some(parent) = parse(&text) {
                let written = parent.to_value();
                prop_assert_eq!(&written.as_bytes()[2..], &text.as_bytes()[2..LENGTH]);
                prop_assert_eq!(Parent::parse(written.as_bytes()), Some(parent));
            }
        }

        #[test]
        fn prop_no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Parent::parse(&bytes);
        }

        #[test]
        fn prop_one_wrong_byte_is_noticed(at in 0usize..LENGTH, byte in any::<u8>()) {
            let mut text = format!("00-{TRACE}-{SPAN}-01").into_bytes();
            text[at] = byte;
            let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let is_separator = [2, 35, 52].contains(&at);
            let is_read = Parent::parse(&text).is_some();
            let is_sound = if is_separator { byte == b'-' } else { is_digit };
            // A later version is read as well, and 0xff is none.
            prop_assert_eq!(is_read, is_sound, "{}", String::from_utf8_lossy(&text));
        }
    }
}
