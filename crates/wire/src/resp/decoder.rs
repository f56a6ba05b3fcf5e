//! One command out of the bytes that have come.
//!
//! Decoding starts at the command's first byte each time. That costs a look at each argument's
//! length and none at its content, so a client that sends byte by byte causes little work, and no
//! state has to be kept between two reads.

/// Most arguments of a command, with its name.
pub const MAX_ARGUMENTS: usize = 64;

/// How large a command may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Arguments, with the name; never more than [`MAX_ARGUMENTS`].
    pub arguments: usize,
    /// Bytes of one argument.
    pub argument_bytes: usize,
    /// Bytes of all arguments together.
    pub command_bytes: usize,
}

/// The arguments of one command, where they are in the input.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'i> {
    input: &'i [u8],
    places: [(u32, u32); MAX_ARGUMENTS],
    count: usize,
}

/// What the beginning of the input is.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it was made")]
pub enum Decoded<'i> {
    /// A command, and how many bytes of input it takes.
    Command(Arguments<'i>, usize),
    /// A part of a command. So many bytes in front of it say nothing and can be dropped.
    Partial(usize),
}

/// Bytes that are no command. The connection has to end: where the next command would begin is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It does not begin as an array, or the number of its elements is not one that is taken.
    #[error("Protocol Error: Invalid Array length")]
    ArrayLength,
    /// An element is not a bulk string, or longer than is taken.
    #[error("Protocol Error: Invalid Bulk String length")]
    BulkLength,
    /// A line does not end as it has to.
    #[error("Protocol Error: Expect '\\r\\n'")]
    LineEnd,
}

impl<'i> Arguments<'i> {
    /// How many there are, with the name: at least one.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Never: a command has a name.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The argument at a place; the name is at 0. `None`: there are fewer.
    pub fn at(&self, place: usize) -> Option<&'i [u8]> {
        let (start, end) = self.places.get(..self.count)?.get(place)?;
        self.input.get(*start as usize..*end as usize)
    }

    /// Those from a place on.
    pub fn from(&self, place: usize) -> impl Iterator<Item = &'i [u8]> + '_ {
        (place..self.count).filter_map(|place| self.at(place))
    }
}

/// The first command of `input`, if it is all there.
///
/// # Errors
/// The input does not begin with a command within the bounds.
pub fn decode<'i>(input: &'i [u8], bounds: &Bounds) -> Result<Decoded<'i>, ProtocolError> {
    let mut reader = Reader { input, at: 0 };
    // Some clients send them after a command.
    while reader.rest().starts_with(b"\r\n") {
        reader.at += 2;
    }
    let start = reader.at;
    if reader.rest() == b"\r" {
        return Ok(Decoded::Partial(start));
    }
    let most = bounds.arguments.min(MAX_ARGUMENTS);
    let Some(count) = reader.length(b'*', most, ProtocolError::ArrayLength)? else {
        return Ok(Decoded::Partial(start));
    };
    if count == 0 {
        return Err(ProtocolError::ArrayLength);
    }
    let mut arguments = Arguments { input, places: [(0, 0); MAX_ARGUMENTS], count };
    let mut bytes_left = bounds.command_bytes;
    for place in arguments.places.iter_mut().take(count) {
        let most = bounds.argument_bytes.min(bytes_left);
        let Some(length) = reader.length(b'$', most, ProtocolError::BulkLength)? else {
            return Ok(Decoded::Partial(start));
        };
        bytes_left -= length;
        let end = reader.at + length;
        *place = (to_u32(reader.at), to_u32(end));
        match input.get(end..end + 2) {
            Some(b"\r\n") => reader.at = end + 2,
            Some(_) => return Err(ProtocolError::LineEnd),
            None => match input.get(end) {
                None | Some(b'\r') => return Ok(Decoded::Partial(start)),
                Some(_) => return Err(ProtocolError::LineEnd),
            },
        }
    }
    Ok(Decoded::Command(arguments, reader.at))
}

/// Places are within [`Bounds`], whose sum is far below 4 GiB; a larger one would be found missing.
fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

struct Reader<'i> {
    input: &'i [u8],
    at: usize,
}

/// More digits than any length that is taken.
const MAX_DIGITS: usize = 10;

impl<'i> Reader<'i> {
    fn rest(&self) -> &'i [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// A line of a mark and a length. `None`: it is not all there yet.
    fn length(
        &mut self,
        mark: u8,
        most: usize,
        error: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let Some((first, line)) = self.rest().split_first() else { return Ok(None) };
        if *first != mark {
            return Err(error);
        }
        let mut length = 0usize;
        for (digits, byte) in line.iter().enumerate() {
            match byte {
                b'0'..=b'9' if digits < MAX_DIGITS => {
                    length = length * 10 + usize::from(byte - b'0');
                }
                b'\r' if digits > 0 => {
                    if length > most {
                        return Err(error);
                    }
                    return match line.get(digits + 1) {
                        Some(b'\n') => {
                            self.at += 1 + digits + 2;
                            Ok(Some(length))
                        }
                        Some(_) => Err(ProtocolError::LineEnd),
                        None => Ok(None),
                    };
                }
                b'\n' if digits > 0 => return Err(ProtocolError::LineEnd),
                _ => return Err(error),
            }
            // Not only when the line ends: what is too much is not waited for.
            if length > most {
                return Err(error);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { arguments: 4, argument_bytes: 10, command_bytes: 20 };

    /// The arguments of a command, and the bytes that it takes.
    type Command = (Vec<Vec<u8>>, usize);

    fn decoded(input: &[u8]) -> Result<Option<Command>, ProtocolError> {
        Ok(match decode(input, &BOUNDS)? {
            Decoded::Command(arguments, length) => {
                Some((arguments.from(0).map(<[u8]>::to_vec).collect(), length))
            }
            Decoded::Partial(_) => None,
        })
    }

    fn encoded(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    #[test]
    fn commands_are_found_and_what_follows_is_left() {
        let input = b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n*1\r\n";
        assert_eq!(decoded(input), Ok(Some((vec![b"PING".to_vec(), vec![]], 20))));
        let input = b"\r\n\r\n*1\r\n$2\r\n\r\n\r\n";
        assert_eq!(decoded(input), Ok(Some((vec![b"\r\n".to_vec()], input.len()))));
    }

    #[test]
    fn what_is_no_command_is_an_error_at_once() {
        use ProtocolError::{ArrayLength, BulkLength, LineEnd};
        for (input, error) in [
            (&b"PING\r\n"[..], ArrayLength),
            (b"\n", ArrayLength),
            (b"*0\r\n", ArrayLength),
            (b"*-1\r\n", ArrayLength),
            (b"*\r\n", ArrayLength),
            (b"*5", ArrayLength),
            (b"*99999999999999999999", ArrayLength),
            (b"*00000000001", ArrayLength),
            (b"*1x", ArrayLength),
            (b"*1\n", LineEnd),
            (b"*1\rx", LineEnd),
            (b"*1\r\n:1\r\n", BulkLength),
            (b"*1\r\n$-1\r\n", BulkLength),
            (b"*1\r\n$11", BulkLength),
            (b"*1\r\n$4294967296", BulkLength),
            (b"*1\r\n$1\r\nab", LineEnd),
            (b"*1\r\n$1\r\na\rb", LineEnd),
            // Each is within its bound, and not all of them together.
            (b"*3\r\n$9\r\n123456789\r\n$9\r\n123456789\r\n$9\r\n", BulkLength),
        ] {
            assert_eq!(decoded(input), Err(error), "{}", input.escape_ascii());
        }
        assert_eq!(LineEnd.to_string(), r"Protocol Error: Expect '\r\n'");
    }

    proptest! {
        #[test]
        fn prop_every_command_within_bounds_is_decoded_wherever_it_is_split(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..4),
            after in prop::collection::vec(any::<u8>(), 0..6),
        ) {
            let bytes = encoded(&arguments);
            for split in 0..bytes.len() {
                prop_assert_eq!(decoded(&bytes[..split]), Ok(None), "split at {}", split);
            }
            let more = [&bytes[..], &after].concat();
            prop_assert_eq!(decoded(&more), Ok(Some((arguments, bytes.len()))));
        }

        #[test]
        fn prop_more_input_does_not_change_what_was_decided(
            input in prop::collection::vec(prop_oneof![
                prop::sample::select(&b"*$\r\n0123456789:-+aP"[..]), any::<u8>(),
            ], 0..60),
        ) {
            let whole = decoded(&input);
            for length in 0..input.len() {
                match decoded(&input[..length]) {
                    Ok(None) => {}
                    decided => prop_assert_eq!(&decided, &whole, "after {} bytes", length),
                }
            }
            if let Ok(Some((arguments, length))) = whole {
                prop_assert!(length <= input.len());
                prop_assert!(arguments.len() <= BOUNDS.arguments);
                let bytes: usize = arguments.iter().map(Vec::len).sum();
                prop_assert!(bytes <= BOUNDS.command_bytes);
            }
        }
    }
}
