//! PEM files, and the little DER it takes to find a key in a certificate or in PKCS#8.
//!
//! No key is interpreted here: the bytes go to AWS-LC, which checks them.

use base64::{Engine, engine::general_purpose::STANDARD};

/// One `-----BEGIN label-----` block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    pub(crate) label: &'a str,
    pub(crate) der: Vec<u8>,
}

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
/// `[0] EXPLICIT`, which holds the version of a certificate.
const VERSION: u8 = 0xa0;

/// The blocks of a file in their order; text around them is ignored, as RFC 7468 allows. `None` if
/// a block does not end or is not base64.
pub(crate) fn blocks(pem: &[u8]) -> Option<Vec<Block<'_>>> {
    let mut lines = std::str::from_utf8(pem).ok()?.lines().map(str::trim);
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let Some(label) = label(line, "-----BEGIN ") else { continue };
        let mut body = String::new();
        loop {
            let line = lines.next()?;
            match self::label(line, "-----END ") {
                Some(end) if end == label => break,
                Some(_) => return None,
                // RFC 1421 headers, which only encrypted private keys have, are no base64.
                None => body.push_str(line),
            }
        }
        // An encrypted key is reported by its label, so its body may stay unread.
        let der = STANDARD.decode(body).or_else(|error| {
            if label.ends_with("PRIVATE KEY") { Ok(Vec::new()) } else { Err(error) }
        });
        blocks.push(Block { label, der: der.ok()? });
    }
    Some(blocks)
}

fn label<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.strip_prefix(prefix)?.strip_suffix("-----")
}

/// `der` in PEM, under `label`.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (index, character) in STANDARD.encode(der).chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str(&format!("\n-----END {label}-----\n"));
    pem
}

/// The SubjectPublicKeyInfo of an X.509 certificate (RFC 5280 section 4.1).
///
/// Nothing else of the certificate counts: whoever put it in the policy vouches for the key.
pub(crate) fn certificate_public_key(der: &[u8]) -> Option<&[u8]> {
    let certificate = Element::read(der)?.content_of(SEQUENCE)?;
    let mut field = Element::read(Element::read(certificate)?.content_of(SEQUENCE)?)?;
    if field.tag == VERSION {
        field = Element::read(field.rest)?;
    }
    // `field` is the serial number; signature, issuer, validity and subject follow, then the key.
    for _ in 0..5 {
        field = Element::read(field.rest)?;
    }
    (field.tag == SEQUENCE).then_some(field.whole)
}

/// The key inside a SubjectPublicKeyInfo (RFC 5280 section 4.1).
pub(crate) fn public_key_bits(der: &[u8]) -> Option<&[u8]> {
    let algorithm = Element::read(Element::read(der)?.content_of(SEQUENCE)?)?;
    let bits = Element::read(algorithm.rest)?.content_of(BIT_STRING)?;
    // Keys are whole bytes: no bit of the last one is unused.
    bits.strip_prefix(&[0])
}

/// The key inside a PKCS#8 PrivateKeyInfo (RFC 5208 section 5).
pub(crate) fn pkcs8_private_key(der: &[u8]) -> Option<&[u8]> {
    let version = Element::read(Element::read(der)?.content_of(SEQUENCE)?)?;
    let algorithm = Element::read(version.rest)?;
    Element::read(algorithm.rest)?.content_of(OCTET_STRING)
}

/// One DER element and what follows it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    fn read(der: &'a [u8]) -> Option<Element<'a>> {
        let (&tag, after_tag) = der.split_first()?;
        let (&first, after_first) = after_tag.split_first()?;
        let (length, body) = match first {
            0..=0x7f => (usize::from(first), after_first),
            // Two length bytes reach 64 KiB: more than any key or certificate needs.
            0x81 | 0x82 => {
                let (bytes, body) = after_first.split_at_checked(usize::from(first & 0x0f))?;
                (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), body)
            }
            _ => return None,
        };
        let (content, rest) = body.split_at_checked(length)?;
        let (whole, _) = der.split_at_checked(der.len() - rest.len())?;
        Some(Element { tag, content, whole, rest })
    }

    fn content_of(self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.content)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A DER element.
    pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        let length = match (high, low) {
            (0, ..0x80) => vec![low],
            (0, _) => vec![0x81, low],
            _ => vec![0x82, high, low],
        };
        [&[tag], length.as_slice(), content].concat()
    }

    /// A certificate in shape only: its signature is empty, and nobody looks.
    pub(crate) fn certificate(public_key: &[u8]) -> Vec<u8> {
        let version = element(VERSION, &element(0x02, &[2]));
        let (serial, empty) = (element(0x02, &[7]), element(SEQUENCE, &[]));
        let fields = [&version, &serial, &empty, &empty, &empty, &empty, public_key].concat();
        let tbs = element(SEQUENCE, &fields);
        element(SEQUENCE, &[tbs, empty, element(0x03, &[0])].concat())
    }

    #[test]
    fn blocks_survive_crlf_and_surrounding_text() {
        let der: Vec<u8> = (0..100).collect();
        let pem = format!("subject=x\n{}\n{}", encode("ONE", &der), encode("TWO", &[1]));
        let expected = vec![Block { label: "ONE", der }, Block { label: "TWO", der: vec![1] }];
        assert_eq!(blocks(pem.as_bytes()), Some(expected));
        assert_eq!(blocks(pem.as_bytes()), blocks(pem.replace('\n', "\r\n").as_bytes()));
        assert!(pem.lines().all(|line| line.len() <= 64));
    }

    #[test]
    fn broken_blocks_are_refused() {
        for pem in [
            "-----BEGIN A-----\nAAAA\n",
            "-----BEGIN A-----\nAAAA\n-----END B-----\n",
            "-----BEGIN A-----\n!!!!\n-----END A-----\n",
        ] {
            assert_eq!(blocks(pem.as_bytes()), None, "{pem}");
        }
        assert_eq!(blocks(b"no key here"), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn prop_der_of_any_bytes_never_panics(der in proptest::collection::vec(any::<u8>(), 0..80)) {
            certificate_public_key(&der);
            pkcs8_private_key(&der);
            public_key_bits(&der);
        }
    }
}
