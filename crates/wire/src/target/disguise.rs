//! Dot segments in disguise: text that is a name to us and to every server that decodes once, and a
//! way up to a server that decodes again, repairs bad UTF-8 or folds look-alike characters.
//!
//! No real file has such a name, so such a path is refused. Anything else that is encoded twice
//! goes on as it is: `group%252Fproject` names one thing, with or without dots in it.

use super::TargetError;

/// Refuses a path in normal form, of which nothing in plain sight is a dot segment, if a part of it
/// reads as one once everything in it is decoded.
///
/// # Errors
/// [`TargetError::HiddenDots`], and [`TargetError::Overlong`] wherever such a sequence is.
pub(super) fn check(path: &str) -> Result<(), TargetError> {
    let decoded = decode_all(path.as_bytes());
    if holds_overlong(&decoded) {
        return Err(TargetError::Overlong);
    }
    let mut piece = Piece::default();
    for chunk in decoded.utf8_chunks() {
        for character in chunk.valid().chars() {
            if let Reading::Slash = piece.read(character) {
                if piece.is_dots() {
                    return Err(TargetError::HiddenDots);
                }
                piece = Piece::default();
            }
        }
        piece.is_name |= !chunk.invalid().is_empty() && !piece.is_over;
    }
    if piece.is_dots() { Err(TargetError::HiddenDots) } else { Ok(()) }
}

/// Decodes escapes, and the escapes that this makes, until none is left; in one pass, because the
/// number of layers is the client's choice.
fn decode_all(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    for &byte in path {
        decoded.push(byte);
        // The byte that an escape stood for may be the last one of another escape.
        while let [head @ .., b'%', high, low] = decoded.as_slice()
            && let (Some(high), Some(low)) = (super::hex_value(*high), super::hex_value(*low))
        {
            let kept = head.len();
            decoded.truncate(kept);
            decoded.push(high << 4 | low);
        }
    }
    decoded
}

/// Whether a character is encoded in more bytes than it needs, which decoders that repair such
/// sequences turn into the ASCII that was hidden (RFC 3629, section 10). In no other common
/// encoding do these bytes stand together in a name.
fn holds_overlong(decoded: &[u8]) -> bool {
    let mut rest = decoded;
    while let [_, tail @ ..] = rest {
        let is_overlong = matches!(
            rest,
            [0xC0 | 0xC1, 0x80..=0xBF, ..]
                | [0xE0, 0x80..=0x9F, 0x80..=0xBF, ..]
                | [0xF0, 0x80..=0x8F, 0x80..=0xBF, 0x80..=0xBF, ..]
        );
        if is_overlong {
            return true;
        }
        rest = tail;
    }
    false
}

/// What was read since the last slash.
#[derive(Default)]
struct Piece {
    dots: u32,
    /// Something else than dots was read.
    is_name: bool,
    /// Parameters have begun, or what some servers take for the end of the path.
    is_over: bool,
}

impl Piece {
    fn read(&mut self, character: char) -> Reading {
        let reading = Reading::of(character);
        match reading {
            Reading::Dots(count) if !self.is_over => self.dots += count,
            Reading::End => self.is_over = true,
            Reading::Name if !self.is_over => self.is_name = true,
            Reading::Dots(_) | Reading::Name | Reading::Blank | Reading::Slash => {}
        }
        reading
    }

    fn is_dots(&self) -> bool {
        !self.is_name && matches!(self.dots, 1 | 2)
    }
}

/// What some server takes a character for. The look-alikes are those of Unicode's compatibility
/// normalisation (NFKC) and of the best-fit tables of Windows.
enum Reading {
    Dots(u32),
    Slash,
    /// Parameters, a query, a fragment, or the end of a text in C.
    End,
    /// What is cut off from names, or skipped: spaces and controls.
    Blank,
    Name,
}

impl Reading {
    fn of(character: char) -> Self {
        match character {
            '.' | '\u{2024}' | '\u{fe52}' | '\u{ff0e}' => Reading::Dots(1),
            '\u{2025}' | '\u{fe30}' => Reading::Dots(2),
            '/' | '\\' | '\u{2044}' | '\u{2215}' | '\u{2216}' | '\u{fe68}' | '\u{ff0f}'
            | '\u{ff3c}' => Reading::Slash,
            '\0' | ';' | '?' | '#' | '\u{37e}' | '\u{fe54}' | '\u{ff03}' | '\u{ff1b}'
            | '\u{ff1f}' => Reading::End,
            ' ' => Reading::Blank,
            _ if character.is_control() => Reading::Blank,
            _ => Reading::Name,
        }
    }
}
