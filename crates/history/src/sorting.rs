//! The requests of a file whose lines are in no order of time: all of them, sorted. What memory
//! does not hold lies in a file of its own, in parts that are in order and are merged.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tollgate_clock::Timestamp;

use super::{Record, kept::Kept, window::size};

/// Parts that are merged at once, with a buffer each.
const MAX_PARTS: usize = 1024;
const PART_BUFFER_BYTES: usize = 64 * 1024;

/// When a request comes among the others of its file.
type Rank = (Timestamp, u64);

/// Whether the times of a log rise or fall from line to line.
#[derive(Default)]
pub(super) struct Trend {
    previous: Timestamp,
    rises: u64,
    falls: u64,
}

/// The requests of a file, which are given out in order once all of them were taken.
pub(super) struct Sorting {
    #[expect(clippy::vec_box, reason = "a record is large, and was moved in its box before")]
    held: Vec<Box<Record>>,
    bytes: usize,
    max_bytes: usize,
    trend: Trend,
    /// Whether lines of one instant are in reversed order, as the log is newest first; none:
    /// nothing was sorted yet.
    is_reversed: Option<bool>,
    /// Where parts lie, and where they end in it.
    spilled: Option<(File, Vec<u64>)>,
    parts: Vec<Part>,
    heads: BinaryHeap<Reverse<(Rank, usize)>>,
}

/// A part of the file that is in order.
struct Part {
    lines: BufReader<Piece>,
    head: Option<Box<Record>>,
}

/// Bytes of a file that others read, too.
struct Piece {
    file: Arc<File>,
    from: u64,
    until: u64,
}

impl Trend {
    /// Takes the time of the next line; returns whether it is earlier.
    pub(super) fn see(&mut self, time: Timestamp) -> bool {
        let is_earlier = time < self.previous;
        self.falls += u64::from(is_earlier);
        self.rises += u64::from(time > self.previous && self.previous > Timestamp::default());
        self.previous = time;
        is_earlier
    }

    fn is_falling(&self) -> bool {
        self.falls > self.rises
    }

    /// Whether this is no accident: durations make lines of a busy second rise and fall.
    pub(super) fn is_newest_first(&self) -> bool {
        self.falls >= 3 && self.falls >= self.rises * 3
    }
}

impl Sorting {
    pub(super) fn new(max_bytes: usize) -> Sorting {
        Sorting {
            held: Vec::new(),
            bytes: 0,
            max_bytes,
            trend: Trend::default(),
            is_reversed: None,
            spilled: None,
            parts: Vec::new(),
            heads: BinaryHeap::new(),
        }
    }

    /// Takes a request; returns whether it is earlier than the one of the line before.
    ///
    /// # Errors
    /// If there is no room for what memory does not hold.
    pub(super) fn push(&mut self, record: Box<Record>) -> io::Result<bool> {
        let is_earlier = self.trend.see(record.time);
        self.bytes += size(&record);
        self.held.push(record);
        if self.bytes >= self.max_bytes {
            self.spill()?;
        }
        Ok(is_earlier)
    }

    /// Begins to give out requests: there are no more.
    ///
    /// # Errors
    /// If what lies in the file cannot be read.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if self.spilled.is_none() {
            self.sort_held();
            // The earliest one is at the end.
            self.held.reverse();
            return Ok(());
        }
        self.spill()?;
        let Some((file, ends)) = self.spilled.take() else { return Ok(()) };
        let file = Arc::new(file);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        for (from, until) in starts.zip(ends.iter().copied()) {
            let piece = Piece { file: Arc::clone(&file), from, until };
            let lines = BufReader::with_capacity(PART_BUFFER_BYTES, piece);
            self.parts.push(Part { lines, head: None });
            self.advance(self.parts.len() - 1)?;
        }
        Ok(())
    }

    /// The time of the earliest request.
    pub(super) fn first(&self) -> Option<Timestamp> {
        let of_parts = self.heads.peek().map(|Reverse(((time, _), _))| *time);
        of_parts.or_else(|| self.held.last().map(|record| record.time))
    }

    /// Gives out the earliest request.
    ///
    /// # Errors
    /// If what lies in the file cannot be read.
    pub(super) fn pop(&mut self) -> io::Result<Option<Box<Record>>> {
        let Some(Reverse((_, at))) = self.heads.pop() else { return Ok(self.held.pop()) };
        let record = self.parts.get_mut(at).and_then(|part| part.head.take());
        self.advance(at)?;
        Ok(record)
    }

    /// Reads the next request of a part.
    fn advance(&mut self, at: usize) -> io::Result<()> {
        let is_reversed = self.is_reversed == Some(true);
        let Some(part) = self.parts.get_mut(at) else { return Ok(()) };
        let mut line = Vec::new();
        part.lines.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let record = Kept::read(&line)?;
        self.heads.push(Reverse((rank(&record, is_reversed), at)));
        part.head = Some(record);
        Ok(())
    }

    fn sort_held(&mut self) {
        let is_reversed = *self.is_reversed.get_or_insert(self.trend.is_falling());
        self.held.sort_unstable_by_key(|record| rank(record, is_reversed));
    }

    /// Writes what is held as one part more.
    fn spill(&mut self) -> io::Result<()> {
        self.sort_held();
        let (mut file, mut ends) = match self.spilled.take() {
            Some(spilled) => spilled,
            None => (nameless_file()?, Vec::new()),
        };
        if ends.len() >= MAX_PARTS {
            return Err(io::Error::other("the log is too long to sort: sort it by time"));
        }
        let mut output = BufWriter::new(&mut file);
        for record in self.held.drain(..) {
            Kept::of(&record).write(&mut output)?;
        }
        output.flush()?;
        drop(output);
        ends.push(file.stream_position()?);
        self.spilled = Some((file, ends));
        self.bytes = 0;
        Ok(())
    }
}

/// When a request comes: by its time, and of one instant in the order of the lines, or against it.
fn rank(record: &Record, is_reversed: bool) -> Rank {
    let line = record.place.line;
    (record.time, if is_reversed { u64::MAX - line } else { line })
}

/// A file that nobody else sees, and that is gone with the process.
fn nameless_file() -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("tollgate-sort-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl Read for Piece {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.until - self.from).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = self.file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), self.from)?;
        self.from += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};
    use tollgate_usage::logged::{LoggedCost, LoggedUse};

    use super::*;
    use crate::{OwnFields, Place, Target};

    /// A request with all that a log can say.
    fn record(second: u64, line: u64) -> Box<Record> {
        Box::new(Record {
            time: Timestamp::from_secs(second),
            place: Place { file: 3, line },
            client: Some([192, 0, 2, 1].into()),
            method: Method::from_bytes(b"PURGE").unwrap(),
            host: Some(HeaderValue::from_static("a")),
            target: match line % 2 {
                0 => Target::Valid("/a?b".parse().unwrap()),
                _ => Target::Invalid("/a\u{7f} \"b".into()),
            },
            status: Some(200),
            took: Some(std::time::Duration::from_nanos(1_234_567_891)),
            used: LoggedUse {
                costs: vec![
                    LoggedCost {
                        limit: Some("tokens".into()),
                        units: Some(130),
                        reserved: Some(408),
                    },
                    LoggedCost { limit: None, units: Some(line), reserved: None },
                ],
                request_bytes: Some(line),
                response_bytes: None,
                took: Some(std::time::Duration::from_nanos(1_234_567_891)),
            },
            user_agent: HeaderValue::from_str("\u{e4} \"b\"").ok(),
            referer: None,
            own: Some(OwnFields {
                caller: Some("user:1".into()),
                facts: serde_json::from_str(r#"{"a":[1,"b"]}"#).unwrap(),
                denied: Some("limit".into()),
                stands_for: 10,
                ..OwnFields::default()
            }),
            fields: vec![None, Some("x".into())],
        })
    }

    fn sorted(max_bytes: usize, records: impl Iterator<Item = Box<Record>>) -> Vec<String> {
        let mut sorting = Sorting::new(max_bytes);
        for record in records {
            sorting.push(record).unwrap();
        }
        sorting.finish().unwrap();
        let mut all = Vec::new();
        while let Some(first) = sorting.first() {
            let record = sorting.pop().unwrap().unwrap();
            assert_eq!(record.time, first);
            all.push(format!("{record:?}"));
        }
        assert!(sorting.pop().unwrap().is_none());
        all
    }

    #[test]
    fn what_memory_does_not_hold_is_as_it_was() {
        let in_order = || (0..60).map(|line| record(1000 + line / 3, line));
        let expected: Vec<String> = in_order().map(|record| format!("{record:?}")).collect();
        let shuffled = || (0..60).map(|at| at * 7 % 60).map(|line| record(1000 + line / 3, line));
        // Newest first, lines have other numbers.
        let newest_first = || (0..60).rev().map(|at| record(1000 + at / 3, 59 - at));
        for max_bytes in [usize::MAX, 6000, 1] {
            assert_eq!(sorted(max_bytes, in_order()), expected, "{max_bytes}");
            assert_eq!(sorted(max_bytes, shuffled()), expected, "{max_bytes}");
        }
        let whole = sorted(usize::MAX, newest_first());
        let of_lines: Vec<String> =
            (0..60).map(|at| format!("{:?}", record(1000 + at / 3, 59 - at))).collect();
        assert_eq!(whole, of_lines);
        assert_eq!(sorted(6000, newest_first()), of_lines);
    }
}
