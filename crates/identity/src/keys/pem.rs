//! PEM files (RFC 7468): labelled blocks of base64.
//!
//! The PEM reader of `rustls-pki-types` is not used here: it skips labels that it does not know,
//! such as `ENCRYPTED PRIVATE KEY`, and such a file must be refused.

use base64::{Engine, engine::general_purpose::STANDARD};

/// One `-----BEGIN label-----` block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    pub(crate) label: &'a str,
    pub(crate) der: Vec<u8>,
}

/// The blocks of a file in their order. Text around them is ignored, as RFC 7468 allows. Returns
/// `None` if a block does not end or is not base64.
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
                // The headers of RFC 1421 are not base64, but only encrypted private keys have
                // them.
                None => body.push_str(line),
            }
        }
        // The label is enough to refuse an encrypted key, so its body need not be base64.
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

/// Writes `der` as one PEM block with this label.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
