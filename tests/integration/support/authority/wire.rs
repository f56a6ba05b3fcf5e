//! As much of HTTP/1.1 as an authority needs, over TCP or TLS.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
};

/// The largest request that is read.
const MAX_BYTES: u64 = 64 * 1024;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    /// The value of a field, if it is there.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(super) trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A connection.
pub(super) struct Line {
    socket: TcpStream,
    reader: BufReader<Box<dyn Stream>>,
}

impl Line {
    pub(super) fn plain(stream: TcpStream) -> Line {
        Line::new(stream.try_clone().unwrap(), Box::new(stream))
    }

    pub(super) fn new(socket: TcpStream, stream: Box<dyn Stream>) -> Line {
        socket.set_nodelay(true).unwrap();
        Line { socket, reader: BufReader::new(stream) }
    }

    /// The next request; none at the end, however that comes about: clients that do not trust the
    /// certificate go away too.
    pub(super) fn read(&mut self) -> Option<Asked> {
        self.try_read().ok()
    }

    fn try_read(&mut self) -> io::Result<Asked> {
        let mut reader = (&mut self.reader).take(MAX_BYTES);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end() {
                "" if line.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                "" => break,
                text => lines.push(text.to_owned()),
            }
        }
        let words: Vec<&str> = lines[0].split(' ').collect();
        let [method, path, "HTTP/1.1"] = words[..] else { panic!("not a request: {}", lines[0]) };
        let field = |line: &String| {
            let (name, value) = line.split_once(':').expect("a field has a colon");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let method = method.to_owned();
        let path = path.to_owned();
        let fields = lines[1..].iter().map(field).collect();
        let mut asked = Asked { method, path, fields, body: String::new() };
        let length = asked.field("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        asked.body = String::from_utf8_lossy(&body).into_owned();
        Ok(asked)
    }

    /// Writes all, or as much as somebody takes.
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        let stream = self.reader.get_mut();
        let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
    }

    pub(super) fn close(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Waits until the client has closed the connection, or the server is stopped.
    pub(super) fn wait_for_close(mut self) {
        let _ = io::copy(&mut self.reader, &mut io::sink());
    }
}

/// A response with these fields beside its length.
pub(super) fn respond(status: u16, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} So\r\n{fields}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
