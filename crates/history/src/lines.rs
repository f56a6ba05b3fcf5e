//! The lines of a log, in a buffer that is used again and again.

use std::io::{self, Read};

use super::source::Source;

/// A longer line is no line of a log.
pub(super) const MAX_LINE_BYTES: usize = 1024 * 1024;
/// What is read of a file at once, and looked at to tell its format.
const BUFFER_BYTES: usize = 128 * 1024;
/// Of a line that is too long, so much is shown.
const SHOWN_BYTES: usize = 1024;

/// The lines of a log.
pub(super) struct Lines {
    pub(super) source: Source,
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer, and where what was read ends.
    start: usize,
    end: usize,
    /// The number of the latest line, from 1.
    pub(super) number: u64,
    /// Whether NULs were left out in front of the next line.
    is_behind_hole: bool,
    /// How it ended, once it has.
    ending: Option<Ending>,
    /// The start of a line that was too long: the buffer has moved on.
    shown: Vec<u8>,
}

/// How a file ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Whole,
    /// What is compressed cannot be read any further.
    Cut,
    /// The file is cut off, and its last line was given out.
    CutAndTold,
}

/// A line, or why it cannot be read.
pub(super) enum Piece<'l> {
    /// Its bytes, without its end.
    Line(&'l [u8]),
    /// The start of a line of more than [`MAX_LINE_BYTES`].
    TooLong(&'l [u8]),
    /// Nothing but NULs.
    Hole,
    /// What is left of the last line where a compressed file is cut off or damaged.
    Cut(&'l [u8]),
}

impl Lines {
    pub(super) fn new(source: Source) -> Lines {
        let buffer = vec![0; BUFFER_BYTES];
        Lines {
            source,
            buffer,
            start: 0,
            end: 0,
            number: 0,
            is_behind_hole: false,
            ending: None,
            shown: Vec::new(),
        }
    }

    /// The first bytes of the file, without taking them. Only for the start of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        self.skip_nuls()?;
        while self.ending.is_none() && self.end - self.start < self.buffer.len() {
            self.fill()?;
        }
        // Windows begins UTF-8 with a mark.
        if self.buffer.get(self.start..self.end).is_some_and(|all| all.starts_with(b"\xef\xbb\xbf"))
        {
            self.start += 3;
        }
        Ok(self.buffer.get(self.start..self.end).unwrap_or_default())
    }

    /// The next line; none: there are no more.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        self.skip_nuls()?;
        let is_behind_hole = std::mem::take(&mut self.is_behind_hole);
        let mut searched = 0;
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            let unsearched = rest.get(searched..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unsearched) {
                let begin = self.start;
                let line_end = begin + searched + at;
                self.start = line_end + 1;
                self.number += 1;
                let line = self.buffer.get(begin..line_end).unwrap_or_default();
                let is_hole = is_behind_hole && line.trim_ascii().is_empty();
                return Ok(Some(if is_hole { Piece::Hole } else { Piece::Line(line) }));
            }
            searched = rest.len();
            if let Some(ending) = self.ending {
                if is_behind_hole && rest.is_empty() && ending == Ending::Whole {
                    self.number += 1;
                    return Ok(Some(Piece::Hole));
                }
                return Ok(self.last(ending));
            }
            if searched > MAX_LINE_BYTES {
                return self.skip_long().map(Some);
            }
            self.fill()?;
        }
    }

    /// Leaves out the NULs in front of a line: a file that was cut while its writer had it open
    /// (`copytruncate`) has as many of them as it had bytes before. They are no part of the line.
    fn skip_nuls(&mut self) -> io::Result<()> {
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            match rest.iter().position(|byte| *byte != 0) {
                Some(0) => return Ok(()),
                Some(at) => {
                    self.is_behind_hole = true;
                    self.start += at;
                    return Ok(());
                }
                None => {
                    self.is_behind_hole |= !rest.is_empty();
                    self.start = self.end;
                }
            }
            if self.ending.is_some() {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// What is behind the last end of a line.
    fn last(&mut self, ending: Ending) -> Option<Piece<'_>> {
        let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
        self.start = self.end;
        match ending {
            Ending::Whole | Ending::CutAndTold if rest.is_empty() => None,
            Ending::Whole | Ending::CutAndTold => {
                self.number += 1;
                Some(Piece::Line(rest))
            }
            Ending::Cut => {
                self.ending = Some(Ending::CutAndTold);
                self.number += 1;
                Some(Piece::Cut(rest))
            }
        }
    }

    /// Leaves out the rest of a line that is too long.
    fn skip_long(&mut self) -> io::Result<Piece<'_>> {
        let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
        self.shown.clear();
        self.shown.extend(rest.iter().take(SHOWN_BYTES));
        self.number += 1;
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                self.start += at + 1;
                break;
            }
            self.start = self.end;
            if self.ending.is_some() {
                break;
            }
            self.fill()?;
        }
        Ok(Piece::TooLong(&self.shown))
    }

    /// Reads more, behind what is there; the buffer grows if it is full.
    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        match self.source.read(room) {
            Ok(0) => self.ending = Some(Ending::Whole),
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An error of the disk has a number, one of the decoder has none.
            Err(error) if self.source.is_compressed && error.raw_os_error().is_none() => {
                self.ending = Some(Ending::Cut);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
