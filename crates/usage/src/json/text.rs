//! Texts: their escapes, their length, and what is kept of them.

use memchr::memchr2;

use super::{MAX_KEPT, Malformed};

/// A text that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextToken {
    /// Bytes of it in UTF-8, so far.
    bytes: u64,
    /// Whether it is of interest.
    is_kept: bool,
    /// Whether it is not kept whole: it is too long, or not all of it is characters.
    is_cut: bool,
    escape: Escape,
    /// The first half of a surrogate pair whose second has to come next.
    high: Option<u16>,
}

/// How much of an escape was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// `\u`: so many of its digits, and their value.
    Digits(u8, u16),
}

/// How many bytes a text goes on with as they are: up to its end, an escape, or what may not be in
/// it.
pub(super) fn plain_bytes(bytes: &[u8]) -> usize {
    // Eight at a time: of each byte that is looked for, a subtraction borrows its highest bit. What
    // is above such a byte may be wrong, what is below it is not.
    const ONES: u64 = u64::MAX / 0xFF;
    const HIGHEST: u64 = ONES << 7;
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks();
    for (position, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let ends = (below(word, b' ') | is(word, b'"') | is(word, b'\\')) & HIGHEST;
        if ends != 0 {
            return position * 8 + ends.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | 0..b' ');
    bytes.len() - rest.len() + rest.iter().take_while(is_plain).count()
}

impl TextToken {
    pub(super) fn new(is_kept: bool) -> Self {
        TextToken { bytes: 0, is_kept, is_cut: false, escape: Escape::None, high: None }
    }

    /// Bytes of the text in UTF-8.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The text, of which `kept` is what was kept; none: that is not all of it.
    pub(super) fn kept<'k>(&self, kept: &'k [u8]) -> Option<&'k [u8]> {
        (self.is_kept && !self.is_cut).then_some(kept)
    }

    /// Reads on, and keeps what is of interest. Returns the bytes that are left, and whether the
    /// text is over.
    ///
    /// # Errors
    /// [`Malformed::Syntax`].
    pub(super) fn read<'r>(
        &mut self,
        bytes: &'r [u8],
        kept: &mut Vec<u8>,
    ) -> Result<(&'r [u8], bool), Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.escape != Escape::None {
                rest = self.read_escape(rest, kept)?;
                continue;
            }
            let plain_bytes = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            let (plain, after) = rest.split_at_checked(plain_bytes).unwrap_or((rest, &[]));
            if plain.iter().any(|byte| *byte < b' ') {
                return Err(Malformed::Syntax);
            }
            if !plain.is_empty() {
                self.flush_high(kept);
                self.push(plain, kept);
            }
            match after.split_first() {
                None => return Ok((after, false)),
                Some((b'"', after)) => {
                    self.flush_high(kept);
                    return Ok((after, true));
                }
                Some((_, after)) => {
                    self.escape = Escape::Begun;
                    rest = after;
                }
            }
        }
        Ok((rest, false))
    }

    fn read_escape<'r>(
        &mut self,
        bytes: &'r [u8],
        kept: &mut Vec<u8>,
    ) -> Result<&'r [u8], Malformed> {
        let Some((&byte, rest)) = bytes.split_first() else { return Ok(bytes) };
        let Escape::Digits(count, value) = self.escape else {
            self.escape = Escape::None;
            let plain = match byte {
                b'"' | b'\\' | b'/' => byte,
                b'b' => 0x08,
                b'f' => 0x0C,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => {
                    self.escape = Escape::Digits(0, 0);
                    return Ok(rest);
                }
                _ => return Err(Malformed::Syntax),
            };
            self.flush_high(kept);
            self.push(&[plain], kept);
            return Ok(rest);
        };
        let digit = char::from(byte).to_digit(16).ok_or(Malformed::Syntax)?;
        let value = value << 4 | digit as u16;
        if count < 3 {
            self.escape = Escape::Digits(count + 1, value);
        } else {
            self.escape = Escape::None;
            self.push_unit(value, kept);
        }
        Ok(rest)
    }

    /// Adds a code unit of UTF-16.
    fn push_unit(&mut self, unit: u16, kept: &mut Vec<u8>) {
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, unit) {
            self.high = None;
            let pair = 0x1_0000 + ((u32::from(high) - 0xD800) << 10) + (u32::from(unit) - 0xDC00);
            return self.push_char(char::from_u32(pair), kept);
        }
        self.flush_high(kept);
        match unit {
            0xD800..=0xDBFF => self.high = Some(unit),
            _ => self.push_char(char::from_u32(unit.into()), kept),
        }
    }

    /// A half of a surrogate pair that has no other is no character.
    fn flush_high(&mut self, kept: &mut Vec<u8>) {
        if self.high.take().is_some() {
            self.push_char(None, kept);
        }
    }

    fn push_char(&mut self, char: Option<char>, kept: &mut Vec<u8>) {
        let mut buffer = [0; 4];
        self.is_cut |= char.is_none();
        let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
        self.push(char.encode_utf8(&mut buffer).as_bytes(), kept);
    }

    fn push(&mut self, bytes: &[u8], kept: &mut Vec<u8>) {
        self.bytes += bytes.len() as u64;
        if !self.is_kept || self.is_cut {
            return;
        }
        match kept.len() + bytes.len() <= MAX_KEPT {
            true => kept.extend_from_slice(bytes),
            false => self.is_cut = true,
        }
    }
}
