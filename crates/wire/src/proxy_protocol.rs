//! The PROXY header: what a balancer writes before a client's first byte, to say who the client is.
//! Version 1 is a line of text, version 2 is binary.
//!
//! Reading it is a pure function of the bytes so far. It is strict: who may write this header is a
//! machine of ours, and a header that is not quite right is a sign that something else wrote it.

mod binary;
mod text;

use std::net::IpAddr;

/// A header, and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who the client is.
    pub source: Source,
    /// How many bytes the header has: what follows is the client's.
    pub length: usize,
}

/// Who the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The peer itself: it checks the health of this server, or does not know its client.
    Peer,
    /// The client with this address.
    Address(IpAddr),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// They begin otherwise.
    #[error("no PROXY header")]
    Missing,
    /// It goes on for longer than any that is to be expected.
    #[error("PROXY header too long")]
    TooLong,
    /// It is of another version, or asks for something that is not known.
    #[error("PROXY header of an unknown kind")]
    Unknown,
    /// It breaks off, or contradicts itself.
    #[error("malformed PROXY header")]
    Malformed,
    /// It was changed on its way.
    #[error("PROXY header with a wrong checksum")]
    Checksum,
}

/// The most bytes that a header may have. Version 2 could have more: what it would say with them is
/// of no use here.
pub const MAX_BYTES: usize = 4096;

/// Reads the header that `bytes` begin with. None: there is more to come.
///
/// # Errors
/// [`HeaderError`], as soon as it is certain.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    match bytes.first() {
        None => Ok(None),
        Some(first) if *first == binary::SIGNATURE[0] => binary::parse(bytes),
        Some(_) => text::parse(bytes),
    }
}

/// Whether `bytes` begin with `start`, as far as they go.
fn may_begin_with(bytes: &[u8], start: &[u8]) -> bool {
    let length = bytes.len().min(start.len());
    bytes.get(..length) == start.get(..length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Result<Header, HeaderError> {
        parse(bytes).map(|header| header.expect("the header is complete"))
    }

    fn address(text: &str) -> Source {
        Source::Address(text.parse().unwrap())
    }

    /// A header of version 2.
    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([command, family]);
        header.extend((rest.len() as u16).to_be_bytes());
        header.extend(rest);
        header
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x04, 0xd2, 0x01, 0xbb];

    fn with(tlvs: &[u8]) -> Vec<u8> {
        [&V4[..], tlvs].concat()
    }

    #[test]
    fn lines_are_read_to_their_end_and_no_further() {
        for (line, source) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1234 443\r\n", address("192.0.2.1")),
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                address("255.255.255.255"),
            ),
            ("PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n", address("2001:db8::1")),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", address("192.0.2.1")),
            ("PROXY UNKNOWN\r\n", Source::Peer),
            ("PROXY UNKNOWN ffff:: ffff:: 65535 65535\r\n", Source::Peer),
        ] {
            let header = Header { source, length: line.len() };
            let followed = format!("{line}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(whole(followed.as_bytes()), Ok(header), "{line}");
        }
    }

    #[test]
    fn lines_that_are_not_quite_right_are_refused() {
        use HeaderError::{Malformed, Missing, TooLong, Unknown};
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        for (line, error) in [
            ("GET / HTTP/1.1\r\n\r\n", Missing),
            ("\x16\x03\x01", Missing),
            ("proxy TCP4 192.0.2.1 198.51.100.2 1 2\r\n", Missing),
            ("PROXY\tTCP4 192.0.2.1 198.51.100.2 1 2\r\n", Missing),
            ("PROXY \r\n", Unknown),
            ("PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n", Unknown),
            ("PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n", Unknown),
            ("PROXY UNKNOWNx\r\n", Unknown),
            ("PROXY TCP4\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n", Malformed),
            ("PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n", Malformed),
            ("PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n", Malformed),
            ("PROXY TCP4 192.0.2.256 198.51.100.2 1 2\r\n", Malformed),
            ("PROXY TCP4 ::1 ::2 1 2\r\n", Malformed),
            ("PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n", Malformed),
            ("PROXY TCP4 192.0.2.1 nowhere 1 2\r\n", Malformed),
            (&long, TooLong),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(error), "{line:?}");
        }
    }

    #[test]
    fn binary_headers_name_the_client_or_the_peer() {
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        for (header, source) in [
            (binary(0x21, 0x11, &V4), address("192.0.2.1")),
            (binary(0x21, 0x21, &v6), address("2001:db8::1")),
            // NOOP and ALPN.
            (binary(0x21, 0x11, &with(&[4, 0, 1, 0, 1, 0, 2, b'h', b'2'])), address("192.0.2.1")),
            (binary(0x21, 0x31, &[0; 216]), Source::Peer),
            (binary(0x21, 0x00, &[]), Source::Peer),
            (binary(0x21, 0x00, &[1, 2, 3]), Source::Peer),
            (binary(0x20, 0x00, &[]), Source::Peer),
            (binary(0x20, 0x11, &V4), Source::Peer),
            (binary(0x20, 0xff, &[1]), Source::Peer),
        ] {
            let expected = Header { source, length: header.len() };
            let followed = [&header[..], b"GET /"].concat();
            assert_eq!(whole(&followed), Ok(expected), "{header:?}");
        }
    }

    #[test]
    fn binary_headers_that_are_not_quite_right_are_refused() {
        use HeaderError::{Malformed, Missing, TooLong, Unknown};
        let mut other = binary(0x21, 0x11, &V4);
        other[11] = b'x';
        for (header, error) in [
            (other, Missing),
            (binary(0x11, 0x11, &V4), Unknown),
            (binary(0x22, 0x11, &V4), Unknown),
            (binary(0x21, 0x41, &V4), Unknown),
            (binary(0x21, 0x13, &V4), Unknown),
            (binary(0x21, 0x12, &V4), Unknown),
            (binary(0x21, 0x11, &V4[..11]), Malformed),
            (binary(0x21, 0x21, &V4), Malformed),
            (binary(0x21, 0x11, &with(&[4, 0])), Malformed),
            (binary(0x21, 0x11, &with(&[4, 0, 2, 0])), Malformed),
            (binary(0x21, 0x11, &[0; MAX_BYTES]), TooLong),
        ] {
            assert_eq!(parse(&header), Err(error), "{header:?}");
        }
    }

    #[test]
    fn checksum_is_believed_only_if_it_is_right() {
        let mut header = binary(0x21, 0x11, &with(&[3, 0, 4, 0, 0, 0, 0]));
        assert_eq!(parse(&header), Err(HeaderError::Checksum));
        let sum = super::binary::crc32c([&header[..]]);
        let at = header.len() - 4;
        header[at..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(whole(&header).unwrap().source, address("192.0.2.1"));
        header[17] ^= 1;
        assert_eq!(parse(&header), Err(HeaderError::Checksum));
        let short = binary(0x21, 0x11, &with(&[3, 0, 1, 0]));
        assert_eq!(parse(&short), Err(HeaderError::Malformed));
    }

    #[test]
    fn checksum_is_crc32c() {
        assert_eq!(super::binary::crc32c([b"123456789".as_slice()]), 0xe306_9283);
        assert_eq!(super::binary::crc32c([b"1234".as_slice(), b"56789"]), 0xe306_9283);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let line =
            "PROXY (TCP4|TCP6|UNKNOWN) [0-9a-f:.]{1,20} [0-9.:]{1,9} [0-9]{1,5} [0-9]{1,5}\r\n";
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            line.prop_map(String::into_bytes),
            (any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(
                |(command, family, rest)| binary(0x20 | (command & 1), family & 0x33, &rest)
            ),
        ]
    }

    proptest! {
        #[test]
        fn prop_cutting_a_header_anywhere_changes_nothing(bytes in bytes()) {
            let whole = parse(&bytes);
            for end in 0..bytes.len() {
                match (parse(&bytes[..end]), whole) {
                    (Ok(None), _) => {}
                    (Ok(Some(early)), whole) => prop_assert_eq!(Ok(Some(early)), whole),
                    (Err(error), whole) => prop_assert_eq!(Err(error), whole),
                }
            }
            if let Ok(Some(header)) = whole {
                prop_assert!(header.length <= bytes.len() && header.length <= MAX_BYTES);
                prop_assert_eq!(parse(&bytes[..header.length]), whole);
                prop_assert_eq!(parse(&bytes[..header.length - 1]), Ok(None));
            }
        }
    }
}
