//! The chunked transfer coding of a response (RFC 9112 section 7.1), read strictly.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memchr;

/// Bytes of a chunk's line: its size, and extensions.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// Bytes of the extensions of all chunks of a body: none has a use for them.
const MAX_EXTENSION_BYTES: usize = 16 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;
const MAX_TRAILERS: usize = 128;
/// Hexadecimal digits of a size: as many as 64 bits have.
const MAX_DIGITS: usize = 16;

/// Where a chunked body is.
#[derive(Debug)]
pub struct Chunked {
    phase: Phase,
    /// Bytes of extensions so far.
    extension_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the line of a chunk.
    Size,
    /// In a chunk's data, of which this is left.
    Data(u64),
    /// Before the end of the line after a chunk's data.
    DataEnd,
    /// After the last chunk. So many bytes were looked at for the end of the trailers.
    Trailers {
        line: usize,
    },
    Over,
}

/// What was taken.
#[derive(Debug)]
pub(super) enum Chunk {
    /// Data, at least a byte of it.
    Data(Bytes),
    /// The last chunk, and the fields after it, if any.
    Trailers(HeaderMap),
    /// More has to be read first.
    Incomplete,
    /// All was taken before.
    End,
}

/// What is wrong with a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It is not a hexadecimal number of at most 64 bits.
    #[error("the size of a chunk is not valid")]
    Size,
    /// A control character in an extension, or too many bytes of extensions.
    #[error("the extensions of a chunk are not valid")]
    Extension,
    /// Something else than the end of a line comes after a chunk's data, or a line ends in a bare
    /// line feed.
    #[error("a chunk does not end where it should")]
    End,
    /// They are no fields, or too many.
    #[error("the trailers are not valid")]
    Trailers,
}

impl Chunked {
    pub(super) fn new() -> Chunked {
        Chunked { phase: Phase::Size, extension_bytes: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Takes the next part out of what was read.
    //= rfc9112#section-7.1
    //# A recipient MUST be able to parse and decode the chunked transfer coding
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Chunk, ChunkError> {
        loop {
            match self.phase {
                Phase::Size => {
                    let end = memchr(b'\n', read);
                    if end.unwrap_or(read.len()) > MAX_LINE_BYTES {
                        return Err(ChunkError::Size);
                    }
                    let Some(end) = end else { return Ok(Chunk::Incomplete) };
                    let line = read.get(..end).and_then(|line| line.strip_suffix(b"\r"));
                    let size = self.size(line.ok_or(ChunkError::End)?)?;
                    read.advance(end + 1);
                    self.phase = match size {
                        0 => Phase::Trailers { line: 0 },
                        _ => Phase::Data(size),
                    };
                }
                Phase::Data(left) => {
                    if read.is_empty() {
                        return Ok(Chunk::Incomplete);
                    }
                    let data = take_at_most(read, left);
                    self.phase = match left - data.len() as u64 {
                        0 => Phase::DataEnd,
                        left => Phase::Data(left),
                    };
                    // The end of the data is taken with it if it is there: a body that is over is
                    // known to be over as soon as it can be.
                    self.take_data_end(read)?;
                    return Ok(Chunk::Data(data));
                }
                Phase::DataEnd => {
                    self.take_data_end(read)?;
                    if self.phase == Phase::DataEnd {
                        return Ok(Chunk::Incomplete);
                    }
                }
                Phase::Trailers { line } => match end_of_trailers(read, line)? {
                    Ok(end) => {
                        let section = read.split_to(end).freeze();
                        self.phase = Phase::Over;
                        return Ok(Chunk::Trailers(fields(&section)?));
                    }
                    Err(line) => {
                        self.phase = Phase::Trailers { line };
                        return Ok(Chunk::Incomplete);
                    }
                },
                Phase::Over => return Ok(Chunk::End),
            }
        }
    }

    fn take_data_end(&mut self, read: &mut BytesMut) -> Result<(), ChunkError> {
        if self.phase == Phase::DataEnd {
            match (read.first(), read.get(1)) {
                (Some(b'\r'), Some(b'\n')) => {
                    read.advance(2);
                    self.phase = Phase::Size;
                }
                (None, _) | (Some(b'\r'), None) => {}
                _ => return Err(ChunkError::End),
            }
        }
        Ok(())
    }

    /// The size that a line says, after which may be extensions.
    fn size(&mut self, line: &[u8]) -> Result<u64, ChunkError> {
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (number, rest) = line.split_at(digits);
        //= rfc9112#section-7.1
        //# recipients MUST anticipate potentially large hexadecimal numerals
        let number = str::from_utf8(number).ok().filter(|_| digits <= MAX_DIGITS);
        let size = number.and_then(|number| u64::from_str_radix(number, 16).ok());
        let size = size.ok_or(ChunkError::Size)?;
        match rest.trim_ascii_start().first() {
            None if rest.is_empty() => return Ok(size),
            Some(b';') => {}
            _ => return Err(ChunkError::Size),
        }
        //= rfc9112#section-7.1.1
        //# A recipient MUST ignore unrecognized chunk extensions
        self.extension_bytes += rest.len();
        let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        match self.extension_bytes <= MAX_EXTENSION_BYTES && rest.iter().all(is_text) {
            true => Ok(size),
            false => Err(ChunkError::Extension),
        }
    }
}

/// Where the section of trailers ends, from the line that begins at `line` on. If its end was not
/// read yet, where its last line begins.
fn end_of_trailers(read: &[u8], mut line: usize) -> Result<Result<usize, usize>, ChunkError> {
    while let Some(length) = read.get(line..).and_then(|rest| memchr(b'\n', rest)) {
        match read.get(line..line + length) {
            Some(b"\r") => {
                let end = line + length + 1;
                return match end > MAX_TRAILER_BYTES {
                    true => Err(ChunkError::Trailers),
                    false => Ok(Ok(end)),
                };
            }
            Some([.., b'\r']) => line += length + 1,
            _ => return Err(ChunkError::Trailers),
        }
    }
    if read.len() > MAX_TRAILER_BYTES { Err(ChunkError::Trailers) } else { Ok(Err(line)) }
}

/// Takes up to `most` bytes.
pub(super) fn take_at_most(read: &mut BytesMut, most: u64) -> Bytes {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(read.len());
    read.split_to(length).freeze()
}

fn fields(section: &Bytes) -> Result<HeaderMap, ChunkError> {
    let mut trailers = HeaderMap::new();
    if section.len() == 2 {
        return Ok(trailers);
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let parsed = httparse::parse_headers(section, &mut fields);
    let Ok(httparse::Status::Complete((_, fields))) = parsed else {
        return Err(ChunkError::Trailers);
    };
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(section.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else { return Err(ChunkError::Trailers) };
        trailers.append(name, value);
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data and the trailers of a body that comes in pieces of this size; none if it does not
    /// end, and what is left after its end.
    fn read(text: &[u8], size: usize) -> Result<Option<(Vec<u8>, HeaderMap, usize)>, ChunkError> {
        let mut chunked = Chunked::new();
        let mut read = BytesMut::new();
        let mut data = Vec::new();
        let mut pieces = text.chunks(size);
        loop {
            match chunked.take(&mut read)? {
                Chunk::Data(more) => {
                    assert!(!more.is_empty());
                    data.extend_from_slice(&more);
                }
                Chunk::Trailers(trailers) => {
                    let left = read.len() + pieces.map(<[u8]>::len).sum::<usize>();
                    return Ok(Some((data, trailers, left)));
                }
                Chunk::Incomplete => match pieces.next() {
                    Some(piece) => read.extend_from_slice(piece),
                    None => return Ok(None),
                },
                Chunk::End => unreachable!("it ends with trailers"),
            }
        }
    }

    #[test]
    fn body_is_the_same_however_it_is_cut() {
        for (text, data, trailers, left) in [
            ("0\r\n\r\n", "", 0, 0),
            ("5\r\nhello\r\n0\r\n\r\n", "hello", 0, 0),
            ("5;a=b;c\r\nhello\r\n00A \t;x\r\n0123456789\r\n000\r\n\r\n", "hello0123456789", 0, 0),
            ("1\r\na\r\n0\r\nx-sum: 5\r\nx-b:\r\n\r\nHTTP/1.1", "a", 2, 8),
        ] {
            for size in 1..text.len() + 1 {
                let (found, fields, rest) = read(text.as_bytes(), size).unwrap().unwrap();
                assert_eq!(str::from_utf8(&found).unwrap(), data, "{text:?} by {size}");
                assert_eq!((fields.len(), rest), (trailers, left), "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for (text, expected) in [
            ("\r\n", ChunkError::Size),
            ("g\r\n", ChunkError::Size),
            ("-1\r\n", ChunkError::Size),
            ("+1\r\n", ChunkError::Size),
            ("0x5\r\n", ChunkError::Size),
            (" 5\r\n", ChunkError::Size),
            ("5 \r\n", ChunkError::Size),
            ("5 5\r\n", ChunkError::Size),
            ("11111111111111111\r\n", ChunkError::Size),
            ("5\nhello", ChunkError::End),
            ("5;\ra\r\n", ChunkError::Extension),
            ("5;a=\0\r\n", ChunkError::Extension),
            ("5\r\nhelloo\r\n", ChunkError::End),
            ("5\r\nhello\n0\r\n", ChunkError::End),
            ("0\r\n\n", ChunkError::Trailers),
            ("0\r\na: b\n\r\n", ChunkError::Trailers),
            ("0\r\na b\r\n\r\n", ChunkError::Trailers),
            ("0\r\na: b\r\n c\r\n\r\n", ChunkError::Trailers),
            ("0\r\na : b\r\n\r\n", ChunkError::Trailers),
            ("0\r\na: \x01\r\n\r\n", ChunkError::Trailers),
        ] {
            for size in 1..text.len() + 1 {
                assert_eq!(
                    read(text.as_bytes(), size).unwrap_err(),
                    expected,
                    "{text:?} by {size}"
                );
            }
        }
    }

    #[test]
    fn lines_and_trailers_are_bounded() {
        let long = |text: &str, bytes| text.repeat(bytes / text.len() + 1);
        let many = long("1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\na\r\n", 40 * 1024);
        for (text, expected) in [
            (long("0", 2 * MAX_LINE_BYTES), ChunkError::Size),
            (many, ChunkError::Extension),
            (format!("0\r\n{}", long("a: b\r\n", 2 * MAX_TRAILER_BYTES)), ChunkError::Trailers),
            (format!("0\r\na: {}", long("b", 2 * MAX_TRAILER_BYTES)), ChunkError::Trailers),
            (format!("0\r\n{}\r\n", "a: b\r\n".repeat(MAX_TRAILERS + 1)), ChunkError::Trailers),
            (format!("1;{}\r\na\r\n0\r\n\r\n", long("a", MAX_LINE_BYTES)), ChunkError::Size),
            (format!("0\r\na: {}\r\n\r\n", long("b", MAX_TRAILER_BYTES)), ChunkError::Trailers),
        ] {
            for size in [1, 1000, text.len()] {
                let error = read(text.as_bytes(), size).err();
                assert_eq!(error, Some(expected), "{:?} by {size}", &text[..20]);
            }
        }
    }
}
