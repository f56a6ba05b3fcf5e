//! Commands in the bytes that a client sends, however they are cut into pieces.

/// The bytes that were not read yet.
#[derive(Debug, Default)]
pub(super) struct CommandReader {
    unread: Vec<u8>,
}

/// What no client of ours sends: something else than an array of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error")]
pub(crate) struct BadCommand;

impl CommandReader {
    /// Takes bytes, and returns the commands that are whole now.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, BadCommand> {
        self.unread.extend_from_slice(bytes);
        let mut commands = Vec::new();
        let mut rest = self.unread.as_slice();
        while let Some((command, after)) = command(rest)? {
            commands.push(command);
            rest = after;
        }
        self.unread = rest.to_vec();
        Ok(commands)
    }
}

/// Something that was read, and the bytes after it; none if it is not whole yet.
type Parsed<'b, T> = Result<Option<(T, &'b [u8])>, BadCommand>;

fn command(bytes: &[u8]) -> Parsed<'_, Vec<Vec<u8>>> {
    let Some((count, mut rest)) = length(bytes, b'*')? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((word, after)) = word(rest)? else { return Ok(None) };
        words.push(word);
        rest = after;
    }
    Ok(Some((words, rest)))
}

fn word(bytes: &[u8]) -> Parsed<'_, Vec<u8>> {
    let Some((length, rest)) = length(bytes, b'$')? else { return Ok(None) };
    if rest.len() < length + 2 {
        return Ok(None);
    }
    let (word, rest) = rest.split_at(length);
    let rest = rest.strip_prefix(b"\r\n").ok_or(BadCommand)?;
    Ok(Some((word.to_vec(), rest)))
}

/// A line with a kind and a length.
fn length(bytes: &[u8], kind: u8) -> Parsed<'_, usize> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let (line, rest) = bytes.split_at(end);
    let digits = line.strip_prefix(&[kind]).ok_or(BadCommand)?;
    let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    Ok(Some((length.ok_or(BadCommand)?, &rest[2..])))
}

#[test]
fn commands_are_read_however_they_are_cut() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n*1\r\n$4\r\nPING\r\n";
    let expected: Vec<Vec<Vec<u8>>> =
        vec![vec![b"GET".to_vec(), b"a\r\nbc".to_vec()], vec![b"PING".to_vec()]];
    for size in 1..=bytes.len() {
        let mut reader = CommandReader::default();
        let pieces = bytes.chunks(size).map(|piece| reader.feed(piece).unwrap());
        assert_eq!(pieces.flatten().collect::<Vec<_>>(), expected, "{size}");
    }
    for bad in [&b"PING\r\n"[..], b"*1\r\n:1\r\n", b"*x\r\n", b"*1\r\n$1\r\nabc"] {
        assert_eq!(CommandReader::default().feed(bad), Err(BadCommand));
    }
}
