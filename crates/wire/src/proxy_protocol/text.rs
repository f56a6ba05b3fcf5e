//! Version 1: `PROXY TCP4 192.0.2.1 198.51.100.2 1234 443`, and CR LF.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::{FromStr, Split},
};

use super::{Header, HeaderError, Source, may_begin_with};

const START: &[u8] = b"PROXY ";
const END: &[u8] = b"\r\n";

/// The longest line, with its end, that the specification allows for.
const MAX_LINE: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    if !may_begin_with(bytes, START) {
        return Err(HeaderError::Missing);
    }
    let line = bytes.get(..MAX_LINE).unwrap_or(bytes);
    let Some(break_at) = memchr::memchr(b'\n', line) else {
        return if line.len() == MAX_LINE { Err(HeaderError::TooLong) } else { Ok(None) };
    };
    let length = break_at + 1;
    let words = line.get(START.len()..length).and_then(|rest| rest.strip_suffix(END));
    let words = words.and_then(|words| std::str::from_utf8(words).ok());
    let source = source(words.ok_or(HeaderError::Malformed)?)?;
    Ok(Some(Header { source, length }))
}

fn source(words: &str) -> Result<Source, HeaderError> {
    let mut words = words.split(' ');
    match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => Ok(Source::Peer),
        Some("TCP4") => addresses::<Ipv4Addr>(words),
        Some("TCP6") => addresses::<Ipv6Addr>(words),
        _ => Err(HeaderError::Unknown),
    }
}

/// Two addresses and two ports; the first address is the client's.
fn addresses<A: FromStr + Into<IpAddr>>(mut words: Split<'_, char>) -> Result<Source, HeaderError> {
    let mut address = || words.next().and_then(|word| word.parse::<A>().ok());
    let source = address();
    let destination = address();
    let mut port = || words.next().is_some_and(is_port);
    let are_ports = port() && port();
    match (source, destination, are_ports, words.next()) {
        (Some(source), Some(_), true, None) => Ok(Source::Address(source.into().to_canonical())),
        _ => Err(HeaderError::Malformed),
    }
}

fn is_port(word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = word == "0" || !word.starts_with('0');
    is_number && is_short && word.parse::<u16>().is_ok()
}
