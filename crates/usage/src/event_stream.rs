//! Server-sent events, as the HTML standard says in its section 9.2.6: the data of one event after
//! another, in pieces, nothing of which is held back.

use memchr::memchr2;

/// Reads a stream of events.
#[derive(Debug)]
pub struct EventStream {
    line: Line,
    /// The byte before was a carriage return: a line feed belongs to it.
    is_after_return: bool,
    /// The event has data so far.
    has_data: bool,
}

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPart<'s> {
    /// The next bytes of an event's data.
    Data(&'s [u8]),
    /// An event has ended that has data.
    End,
}

/// How much of a line was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// So many bytes of the mark that a stream may begin with.
    Mark(usize),
    /// So many bytes of the field's name, which may be `data`.
    Name(usize),
    /// The colon after `data`: a space may follow.
    Colon,
    Data,
    /// Nothing of it matters.
    Other,
}

const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();
const DATA: &[u8] = b"data";
const DATA_BEGINNING: &[u8] = b"data: ";

impl Default for EventStream {
    fn default() -> Self {
        EventStream { line: Line::Mark(0), is_after_return: false, has_data: false }
    }
}

impl EventStream {
    /// Reads the next piece of the stream.
    pub fn read<'s>(&mut self, piece: &'s [u8], mut tell: impl FnMut(EventPart<'s>)) {
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            if std::mem::take(&mut self.is_after_return) && byte == b'\n' {
                rest = after;
                continue;
            }
            match self.line {
                Line::Data | Line::Other => {
                    let bytes = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    let (content, after) = rest.split_at_checked(bytes).unwrap_or((rest, &[]));
                    if self.line == Line::Data && !content.is_empty() {
                        tell(EventPart::Data(content));
                    }
                    rest = after;
                    if let Some((&end, after)) = rest.split_first() {
                        self.end_line(end, &mut tell);
                        rest = after;
                    }
                }
                Line::Mark(count) => match BYTE_ORDER_MARK.get(count) {
                    Some(own) if *own == byte => {
                        self.line = Line::Mark(count + 1);
                        rest = after;
                    }
                    None => self.line = Line::Name(0),
                    Some(_) if count == 0 => self.line = Line::Name(0),
                    // A part of the mark is a part of a name, and of none that matters.
                    Some(_) => self.line = Line::Other,
                },
                Line::Name(_) | Line::Colon if matches!(byte, b'\n' | b'\r') => {
                    self.end_line(byte, &mut tell);
                    rest = after;
                }
                // As most lines begin that are whole.
                Line::Name(0) if rest.starts_with(DATA_BEGINNING) => {
                    self.begin_data(&mut tell);
                    self.line = Line::Data;
                    rest = rest.get(DATA_BEGINNING.len()..).unwrap_or_default();
                }
                Line::Name(count) => match DATA.get(count) {
                    Some(own) if *own == byte => {
                        self.line = Line::Name(count + 1);
                        rest = after;
                    }
                    None if byte == b':' => {
                        self.begin_data(&mut tell);
                        self.line = Line::Colon;
                        rest = after;
                    }
                    _ => self.line = Line::Other,
                },
                Line::Colon => {
                    self.line = Line::Data;
                    if byte == b' ' {
                        rest = after;
                    }
                }
            }
        }
    }

    /// There are no further pieces. The standard drops an event that no blank line ends; but what
    /// it says was used was used.
    pub fn finish<'s>(&mut self, mut tell: impl FnMut(EventPart<'s>)) {
        if std::mem::take(&mut self.has_data) {
            tell(EventPart::End);
        }
    }

    fn begin_data<'s>(&mut self, tell: &mut impl FnMut(EventPart<'s>)) {
        if std::mem::replace(&mut self.has_data, true) {
            tell(EventPart::Data(b"\n"));
        }
    }

    fn end_line<'s>(&mut self, end: u8, tell: &mut impl FnMut(EventPart<'s>)) {
        self.is_after_return = end == b'\r';
        match std::mem::replace(&mut self.line, Line::Name(0)) {
            Line::Mark(_) | Line::Name(0) => self.finish(tell),
            // A line without a colon is a field without a value.
            Line::Name(count) if count == DATA.len() => self.begin_data(tell),
            Line::Name(_) | Line::Colon | Line::Data | Line::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of the events in pieces of so many bytes.
    fn events(stream: &str, piece_bytes: usize) -> Vec<String> {
        let mut reader = EventStream::default();
        let (mut all, mut data) = (Vec::new(), Vec::new());
        let mut tell = |part: EventPart<'_>| match part {
            EventPart::Data(bytes) => data.extend_from_slice(bytes),
            EventPart::End => all.push(String::from_utf8(std::mem::take(&mut data)).unwrap()),
        };
        stream.as_bytes().chunks(piece_bytes).for_each(|piece| reader.read(piece, &mut tell));
        reader.finish(&mut tell);
        all
    }

    #[test]
    fn streams_are_read_as_the_standard_says() {
        let cases: [(&str, &[&str]); 14] = [
            ("data: a\n\n", &["a"]),
            ("data:a\r\n\r\ndata: b\r\r", &["a", "b"]),
            ("data:  two spaces\n\n", &[" two spaces"]),
            ("data: a\ndata: b\n\n", &["a\nb"]),
            ("data\ndata\n\n", &["\n"]),
            ("data:\n\n", &[""]),
            (": comment\n\nid: 1\nevent: x\n\n", &[]),
            ("id: 1\ndata: a\nretry: 10\n\n", &["a"]),
            ("\u{FEFF}data: a\n\n", &["a"]),
            ("dat: x\ndatas: y\n data: z\n\n", &[]),
            ("data: a\n\n\n\ndata: b\n\n", &["a", "b"]),
            ("data: [DONE]\n\n", &["[DONE]"]),
            ("data: no blank line", &["no blank line"]),
            ("data: a\rdata: b\n\r\n", &["a\nb"]),
        ];
        for (stream, expected) in cases {
            for piece_bytes in 1..=stream.len() {
                assert_eq!(events(stream, piece_bytes), expected, "{stream:?} by {piece_bytes}");
            }
        }
    }
}
