//! HTTP/1.1 messages as bytes on a socket, read without forgiveness: a test sees what was sent.

use std::{
    fmt,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
};

use super::PATIENCE;

/// Header or trailer fields, in the order of the wire.
#[derive(Clone, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The value of a field that may be there once.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() <= 1, "{name} is there more than once:\n{self:?}");
        values.first().copied()
    }

    /// All values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.0.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.as_str()).collect()
    }

    /// Names in lower case, in order of the alphabet.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort();
        names
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "{name}: {value}"))
    }
}

/// How long a body is.
pub(super) enum Length {
    Nothing,
    Bytes(usize),
    Chunked,
    UntilClose,
}

/// One end of a connection. Every read has a deadline.
pub(super) struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Wire {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Wire { reader: BufReader::new(stream) }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Writes all, or as much as the other side takes before it closes: its response shows what it
    /// made of that.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.reader.get_mut().write_all(bytes) {
            assert!(!is_timeout(&error), "the other side does not read what is sent");
        }
    }

    /// Waits for as long as it takes until there is something to read; false at the end.
    pub(super) fn wait_for_more(&mut self) -> bool {
        self.stream().set_read_timeout(None).unwrap();
        let more = self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        let _ = self.stream().set_read_timeout(Some(PATIENCE));
        more
    }

    /// Whether there is something to read now.
    pub(super) fn has_more(&self) -> bool {
        self.stream().set_nonblocking(true).unwrap();
        let peeked = self.stream().peek(&mut [0]);
        self.stream().set_nonblocking(false).unwrap();
        peeked.is_ok()
    }

    /// Whatever comes next, at least a byte; empty at the end.
    pub(super) fn read_some(&mut self) -> Vec<u8> {
        let bytes = unless_closed(self.reader.fill_buf().map(<[u8]>::to_vec));
        self.reader.consume(bytes.len());
        bytes
    }

    /// Everything until the other side closes.
    pub(super) fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.read_some() {
                some if some.is_empty() => return all,
                some => all.extend(some),
            }
        }
    }

    /// First line and fields; none if the connection was closed instead.
    pub(super) fn read_head(&mut self) -> Option<(String, Fields)> {
        let start = self.read_line()?;
        Some((start, self.read_fields()))
    }

    pub(super) fn read_fields(&mut self) -> Fields {
        self.read_fields_unless_closed().expect("the connection was closed inside a head")
    }

    fn read_fields_unless_closed(&mut self) -> Option<Fields> {
        let mut fields = Vec::new();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Some(Fields(fields));
            }
            let (name, value) = line.split_once(':').expect("a field has a colon");
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// A body and its trailers.
    pub(super) fn read_body(&mut self, length: Length) -> (Vec<u8>, Fields) {
        self.read_body_unless_closed(length).expect("the connection was closed inside a body")
    }

    /// A body and its trailers; none if the connection was closed before their end.
    pub(super) fn read_body_unless_closed(&mut self, length: Length) -> Option<(Vec<u8>, Fields)> {
        let body = match length {
            Length::Nothing => Vec::new(),
            Length::Bytes(bytes) => self.read_exact_unless_closed(bytes)?,
            Length::UntilClose => self.read_to_end(),
            Length::Chunked => return self.read_chunks_unless_closed(),
        };
        Some((body, Fields::default()))
    }

    fn read_chunks_unless_closed(&mut self) -> Option<(Vec<u8>, Fields)> {
        let mut body = Vec::new();
        loop {
            match self.read_chunk_unless_closed()? {
                chunk if chunk.is_empty() => {
                    return Some((body, self.read_fields_unless_closed()?));
                }
                chunk => body.extend(chunk),
            }
        }
    }

    /// A chunk's data; none for the last one, whose trailers follow.
    pub(super) fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let chunk = self.read_chunk_unless_closed();
        let chunk = chunk.expect("the connection was closed inside a body");
        (!chunk.is_empty()).then_some(chunk)
    }

    /// A chunk's data, empty for the last one; none if the connection was closed before its end.
    fn read_chunk_unless_closed(&mut self) -> Option<Vec<u8>> {
        let size = self.read_line()?;
        let size = usize::from_str_radix(&size, 16).expect("a chunk has a size");
        let chunk = self.read_exact_unless_closed(size)?;
        if size > 0 {
            assert_eq!(self.read_line()?, "", "a chunk ends where it says");
        }
        Some(chunk)
    }

    pub(super) fn read_exact(&mut self, bytes: usize) -> Vec<u8> {
        self.read_exact_unless_closed(bytes).expect("a body is as long as it says")
    }

    fn read_exact_unless_closed(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let mut body = vec![0; bytes];
        match self.reader.read_exact(&mut body) {
            Ok(()) => Some(body),
            Err(error) if is_timeout(&error) => panic!("nothing came in time"),
            Err(_) => None,
        }
    }

    /// A line without its end; none if the connection was closed before it.
    fn read_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        unless_closed(self.reader.read_until(b'\n', &mut line));
        if !line.ends_with(b"\n") {
            return None;
        }
        let line = line.strip_suffix(b"\r\n").expect("a line ends in CR LF");
        Some(String::from_utf8_lossy(line).into_owned())
    }
}

/// A connection that was reset is as closed as one that was ended.
fn unless_closed<T: Default>(result: std::io::Result<T>) -> T {
    match result {
        Ok(read) => read,
        Err(error) if is_timeout(&error) => panic!("nothing came in time"),
        Err(_) => T::default(),
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
