//! The heads of one response in HTTP/1.1, line by line, beside the protocol engine.
//!
//! The engine does not report interim responses, and reads on for as long as they come. It also
//! accepts a bare line feed as the end of a line (RFC 9112 section 2.2 lets it). A server or client
//! that does not would see other fields than this proxy.

use memchr::memchr_iter;

/// Interim responses (1xx) to one request that are taken for something else than an attack.
pub(super) const MAX_INTERIM: u32 = 32;

/// Follows what comes until the response's head is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    /// Interim responses so far.
    interim: u32,
    /// Bytes of the present line.
    line_bytes: usize,
    ends_in_cr: bool,
    /// Whether a head has begun: the present line is one of its fields.
    is_in_head: bool,
    status: u32,
}

/// How far the heads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadProgress {
    /// There is more to come.
    Incomplete,
    /// The response's own head is complete. What comes next is none of this one's business.
    Done,
    /// There was a line feed without its carriage return.
    BareLineFeed,
}

/// Where a status line has its status: `HTTP/1.1 200`.
const STATUS: std::ops::Range<usize> = 9..12;

impl Heads {
    /// Interim responses that were complete.
    pub(super) fn interim(&self) -> u32 {
        self.interim
    }

    /// Takes the next bytes of the connection, as many as a read happened to give.
    pub(super) fn read(&mut self, bytes: &[u8]) -> HeadProgress {
        let mut begin = 0;
        for end in memchr_iter(b'\n', bytes) {
            self.take(bytes.get(begin..end).unwrap_or_default());
            begin = end + 1;
            if !self.ends_in_cr {
                return HeadProgress::BareLineFeed;
            }
            if self.end_line() {
                return HeadProgress::Done;
            }
        }
        self.take(bytes.get(begin..).unwrap_or_default());
        HeadProgress::Incomplete
    }

    /// Takes a part of a line.
    fn take(&mut self, text: &[u8]) {
        if !self.is_in_head && self.line_bytes < STATUS.end {
            for (at, byte) in (self.line_bytes..STATUS.end).zip(text) {
                if at >= STATUS.start {
                    self.status = self.status * 10 + u32::from(byte.wrapping_sub(b'0'));
                }
            }
        }
        if let Some(last) = text.last() {
            self.ends_in_cr = *last == b'\r';
        }
        self.line_bytes = self.line_bytes.saturating_add(text.len());
    }

    /// Ends a line; whether that was the last of the response's own head.
    fn end_line(&mut self) -> bool {
        let is_empty = self.line_bytes == 1;
        (self.line_bytes, self.ends_in_cr) = (0, false);
        if !is_empty {
            self.is_in_head = true;
            return false;
        }
        // Before a head, the engine passes over empty lines.
        if !std::mem::take(&mut self.is_in_head) {
            self.status = 0;
            return false;
        }
        // What follows a switch is another protocol's.
        let is_interim = matches!(std::mem::take(&mut self.status), 100 | 102..=199);
        self.interim = self.interim.saturating_add(u32::from(is_interim));
        !is_interim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\nvia: HTTP/1.1 103\r\n\r\n";

    /// The result of reading `text`, however it is cut, and the number of interim responses.
    fn read(text: &str) -> (HeadProgress, u32) {
        let in_pieces = |size: usize| {
            let mut heads = Heads::default();
            let mut pieces = text.as_bytes().chunks(size).map(|piece| heads.read(piece));
            let last = pieces
                .find(|read| *read != HeadProgress::Incomplete)
                .unwrap_or(HeadProgress::Incomplete);
            (last, heads.interim())
        };
        let whole = in_pieces(usize::MAX);
        for size in 1..20 {
            assert_eq!(in_pieces(size), whole, "{text:?} in pieces of {size}");
        }
        whole
    }

    #[test]
    fn heads_are_followed_however_they_are_cut() {
        use HeadProgress::{BareLineFeed, Done, Incomplete};

        for (text, expected) in [
            (format!("{OK}\n\nbody"), (Done, 0)),
            (format!("{HINT}{HINT}{OK}"), (Done, 2)),
            (format!("\r\n\r\n{HINT}\r\n{OK}"), (Done, 1)),
            (HINT.repeat(3), (Incomplete, 3)),
            ("HTTP/1.1 101 x\r\n\r\n\n\n".to_owned(), (Done, 0)),
            ("HTTP/1.1 200 OK\r\nx: \r\r\n\r\n".to_owned(), (Done, 0)),
            ("HTTP/1.1 200 OK\r\n\n".to_owned(), (BareLineFeed, 0)),
            ("HTTP/1.1 200 OK\n\r\n".to_owned(), (BareLineFeed, 0)),
            ("HTTP/1.1 200 OK\r\nx: \r\n\n".to_owned(), (BareLineFeed, 0)),
            ("\nHTTP/1.1 200 OK\r\n\r\n".to_owned(), (BareLineFeed, 0)),
            (format!("{HINT}\n"), (BareLineFeed, 1)),
        ] {
            assert_eq!(read(&text), expected, "{text:?}");
        }
    }
}
