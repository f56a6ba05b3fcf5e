//! Version 2: a signature, a command, a family, the length of what follows; addresses; and any
//! number of fields with a type and a length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Header, HeaderError, MAX_BYTES, Source, may_begin_with};

pub(super) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length.
const FIXED: usize = 16;

/// Two addresses and two ports.
const V4_ADDRESSES: usize = 12;
const V6_ADDRESSES: usize = 36;
/// Two paths.
const UNIX_ADDRESSES: usize = 216;

/// The type of the field with the checksum.
const CRC32C: u8 = 3;

pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    if !may_begin_with(bytes, &SIGNATURE) {
        return Err(HeaderError::Missing);
    }
    let Some((fixed, _)) = bytes.split_first_chunk::<FIXED>() else { return Ok(None) };
    let [.., command, family, high, low] = *fixed;
    let length = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_BYTES {
        return Err(HeaderError::TooLong);
    }
    let Some(header) = bytes.get(..length) else { return Ok(None) };
    let source = match command {
        // What else it says is to be ignored.
        0x20 => Source::Peer,
        0x21 => source(header, family)?,
        _ => return Err(HeaderError::Unknown),
    };
    Ok(Some(Header { source, length }))
}

fn source(header: &[u8], family: u8) -> Result<Source, HeaderError> {
    let rest = header.get(FIXED..).unwrap_or_default();
    let (source, addresses): (Source, usize) = match family {
        0x11 => {
            let octets: [u8; 4] = *rest.first_chunk().ok_or(HeaderError::Malformed)?;
            (Source::Address(Ipv4Addr::from(octets).into()), V4_ADDRESSES)
        }
        0x21 => {
            let octets: [u8; 16] = *rest.first_chunk().ok_or(HeaderError::Malformed)?;
            let address = IpAddr::from(Ipv6Addr::from(octets));
            (Source::Address(address.to_canonical()), V6_ADDRESSES)
        }
        0x31 => (Source::Peer, UNIX_ADDRESSES),
        // Of an unspecified family: its addresses cannot be separated from its TLVs.
        0x00..=0x02 | 0x10 | 0x20 | 0x30 => return Ok(Source::Peer),
        _ => return Err(HeaderError::Unknown),
    };
    let fields = rest.get(addresses..).ok_or(HeaderError::Malformed)?;
    check_fields(header, fields)?;
    Ok(source)
}

/// Whether the fields fill their place exactly, and the checksum is right if there is one.
fn check_fields(header: &[u8], mut fields: &[u8]) -> Result<(), HeaderError> {
    while let Some((&[kind, high, low], rest)) = fields.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, rest) = rest.split_at_checked(length).ok_or(HeaderError::Malformed)?;
        if kind == CRC32C {
            let expected: [u8; 4] = value.try_into().map_err(|_| HeaderError::Malformed)?;
            // It is the sum of the header in which it is zero.
            let at = header.len() - rest.len() - expected.len();
            let (before, after) = header.split_at_checked(at).ok_or(HeaderError::Malformed)?;
            let after = after.get(expected.len()..).unwrap_or_default();
            if crc32c([before, &[0; 4], after]) != u32::from_be_bytes(expected) {
                return Err(HeaderError::Checksum);
            }
        }
        fields = rest;
    }
    if fields.is_empty() { Ok(()) } else { Err(HeaderError::Malformed) }
}

/// CRC-32C (RFC 9260 appendix A). Headers are short: no table is worth its while.
pub(super) fn crc32c<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let bytes = parts.into_iter().flatten();
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (REVERSED_POLYNOMIAL & (sum & 1).wrapping_neg())
        })
    })
}
