//! Replies, written one after the other into one buffer, which leaves in one write.

/// Which version of the protocol a client has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2: a map is a list of names and values.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// Replies that wait to be sent.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    protocol: Protocol,
}

/// The most bytes of a name in an error: a client chooses it.
const MAX_QUOTED: usize = 256;

impl Replies {
    /// Replies from here on are in this version.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// The version that is spoken.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// What is to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All that waited was sent, or is given up. What was reserved stays, up to `most` bytes.
    pub fn clear(&mut self, most: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(most);
    }

    /// A simple string: a word of ours, without line ends.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        let mut digits = itoa::Buffer::new();
        self.line(b':', digits.format(number).as_bytes());
    }

    /// Any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Nothing.
    pub fn null(&mut self) {
        let null: &[u8] = match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        };
        self.bytes.extend_from_slice(null);
    }

    /// The head of a list; the replies that follow are its elements.
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// The head of a map; twice as many replies follow: names and their values.
    pub fn map(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', length * 2),
            Protocol::Resp3 => self.length(b'%', length),
        }
    }

    /// An error with a text of ours.
    pub fn error(&mut self, text: &str) {
        self.error_about(text, b"", "");
    }

    /// An error that quotes what a client has written. Bytes that would break the line, or are not
    /// ASCII, are written as `\r`, `\x07` and the like, and what is too long is cut.
    pub fn error_about(&mut self, before: &str, quoted: &[u8], after: &str) {
        self.bytes.push(b'-');
        self.bytes.extend_from_slice(before.as_bytes());
        let quoted = quoted.get(..MAX_QUOTED).unwrap_or(quoted);
        for byte in quoted {
            match byte {
                b' '..=b'~' => self.bytes.push(*byte),
                _ => self.bytes.extend(std::ascii::escape_default(*byte)),
            }
        }
        self.bytes.extend_from_slice(after.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, mark: u8, length: usize) {
        let mut digits = itoa::Buffer::new();
        self.line(mark, digits.format(length).as_bytes());
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_those_of_the_protocol_that_is_spoken() {
        for (protocol, expected) in [
            (Protocol::Resp2, "*2\r\n$1\r\na\r\n$-1\r\n"),
            (Protocol::Resp3, "%1\r\n$1\r\na\r\n_\r\n"),
        ] {
            let mut replies = Replies::default();
            replies.speak(protocol);
            replies.map(1);
            replies.bulk(b"a");
            replies.null();
            assert_eq!(
                replies.as_bytes().escape_ascii().to_string(),
                expected.escape_default().to_string()
            );
        }
    }

    #[test]
    fn no_quoted_byte_ends_the_line() {
        let mut replies = Replies::default();
        let quoted: Vec<u8> = b"a\r\n\xff".iter().copied().chain([b'x'; 1000]).collect();
        replies.error_about("no '", &quoted, "'");
        let text = String::from_utf8(replies.as_bytes().to_vec()).unwrap();
        assert!(text.starts_with(r"-no 'a\r\n\xffxxx"), "{text}");
        assert!(text.ends_with("x'\r\n") && text.len() < 300, "{text}");
        replies.clear(10);
        replies.integer(i64::MIN);
        assert_eq!(replies.as_bytes(), b":-9223372036854775808\r\n");
    }
}
