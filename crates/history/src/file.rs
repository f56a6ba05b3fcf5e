//! A log that is open: its lines become requests, in order, and what cannot be read is counted.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use tollgate_clock::Timestamp;

use super::{
    Format, HistoryError, Place, ReadOptions, Record,
    columns::Columns,
    detect::{self, Detection, detect, is_header},
    draft::{Doubts, Fault, Line},
    instant::Instant,
    lines::{Lines, MAX_LINE_BYTES, Piece},
    local_clock::LocalClock,
    notes::Note,
    reader::{Reader, text},
    sorting::Sorting,
    source::Source,
    summary::{BadLine, FileSummary, MAX_BAD_CHARS, MAX_BAD_LINES},
    value_cache::ValueCache,
    window::Window,
};

/// What is counted of all files together.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) bad_lines: Vec<BadLine>,
    pub(super) skipped: BTreeMap<&'static str, u64>,
    pub(super) reordered: u64,
    pub(super) late: u64,
}

/// A log that is open.
pub(super) struct LogFile {
    path: PathBuf,
    /// Its position among all files.
    index: u32,
    lines: Lines,
    /// None: the file is empty.
    reader: Option<Reader>,
    clock: LocalClock,
    /// What the clock gives out; empty in between.
    ready: VecDeque<Box<Record>>,
    window: Window,
    /// Of a file whose lines are in no order of time; its requests are not in the window.
    sorting: Option<Sorting>,
    is_over: bool,
    counts: Counts,
}

/// What is counted of a file.
#[derive(Default)]
struct Counts {
    lines: u64,
    bad: u64,
    requests: u64,
    /// Requests whose client is written as a name.
    named_clients: u64,
    /// Requests whose client is of a list of forwarded addresses.
    forwarded_clients: u64,
    /// Requests whose time may be that of the request or that of the end.
    without_side: u64,
    /// Requests whose duration is in no form that is read.
    unread_durations: u64,
    /// The finest unit of a time that was written, in microseconds; zero: there was none.
    grain_micros: u64,
    /// Whether a time did not say its offset from UTC.
    lacks_offset: bool,
    /// Whether a request had to be given out before it could be in order, for want of memory.
    overflowed: bool,
}

/// Reasons for a line that is bad whatever its format is.
const TOO_LONG: &str = "the line is longer than 1 MiB: no program logs so long a request; line ends \
                        are missing, or the file is no log";
const NUL: &str = "the line has NUL bytes: a part of the file was lost (a crash, a full disk), or it \
                   is UTF-16; convert that with iconv";
const NO_FORMAT: &str = "the start of the file is empty, so that its format is not known: pass it as \
                         --format";
const CUT: &str = "the compressed file ends here, in the midst, or is damaged: all before this is \
                   counted; copy the file again";

impl Tally {
    fn note_bad(&mut self, file: &Path, line: u64, reason: Fault, text: &str) {
        if self.bad_lines.len() < MAX_BAD_LINES {
            self.bad_lines.push(BadLine {
                file: file.display().to_string(),
                line,
                reason: reason.into_owned(),
                text: text.chars().take(MAX_BAD_CHARS).collect(),
            });
        }
    }
}

impl Counts {
    fn note_request(&mut self, written: Instant, doubts: Doubts) {
        self.requests += 1;
        self.named_clients += u64::from(doubts.has_named_client);
        self.forwarded_clients += u64::from(doubts.has_forwarded_client);
        self.unread_durations += u64::from(doubts.has_unread_took);
        self.without_side += u64::from(doubts.has_no_side);
        self.lacks_offset |= !written.has_offset;
        let grain = grain_micros(written.time);
        if self.grain_micros == 0 || grain < self.grain_micros {
            self.grain_micros = grain;
        }
    }
}

impl LogFile {
    /// Opens a file and finds out its format.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub(super) fn open(
        path: &Path,
        index: u32,
        options: &ReadOptions,
        max_bytes: usize,
    ) -> Result<LogFile, HistoryError> {
        let asked = options.asked()?;
        let mut lines = Lines::new(Source::open(path)?);
        let fail = |source| HistoryError::Read { file: path.into(), source };
        let start = lines.peek().map_err(fail)?;
        let format = match options.format {
            Some(format) => Some(format),
            None => match detect(start, &asked.columns) {
                Detection::Format(format) => Some(format),
                Detection::Empty => None,
                Detection::Unknown(first) => {
                    let known = Format::names();
                    return Err(HistoryError::Undetected { file: path.into(), known, first });
                }
            },
        };
        // Of a pipe, this is the last moment: what was given out cannot be called back.
        let is_newest_first =
            format.is_some_and(|format| detect::is_newest_first(start, format, &asked));
        let reader = match format {
            Some(Format::Csv) => {
                header(&mut lines, &asked.columns).map_err(fail)?.map_or(Ok(None), |header| {
                    Reader::csv(&header, asked.clone()).map(Some).map_err(|lacks| {
                        HistoryError::Column {
                            file: path.into(),
                            what: lacks.what,
                            found: lacks.found,
                        }
                    })
                })?
            }
            format => format.map(|format| Reader::new(format, asked.clone())),
        };
        Ok(LogFile {
            path: path.into(),
            index,
            lines,
            reader,
            clock: LocalClock::default(),
            ready: VecDeque::new(),
            window: Window::default(),
            sorting: (options.sort || is_newest_first).then(|| Sorting::new(max_bytes)),
            is_over: false,
            counts: Counts::default(),
        })
    }

    /// Reads until the earliest request is known, or until `max_bytes` of memory are in use. No
    /// request gets a time before `given`, the latest time that was given out.
    ///
    /// # Errors
    /// [`HistoryError::Read`].
    pub(super) fn fill(
        &mut self,
        given: Timestamp,
        max_bytes: usize,
        tally: &mut Tally,
        repeated: &mut ValueCache,
    ) -> Result<(), HistoryError> {
        if self.sorting.is_some() {
            return self.sort(given, tally, repeated);
        }
        while !self.is_over && !self.window.is_settled(max_bytes / 4) {
            if self.window.bytes >= max_bytes {
                self.counts.overflowed = true;
                break;
            }
            self.read_line(given, tally, repeated)?;
        }
        Ok(())
    }

    /// Reads all requests, unless they were read, and puts them in order.
    fn sort(
        &mut self,
        given: Timestamp,
        tally: &mut Tally,
        repeated: &mut ValueCache,
    ) -> Result<(), HistoryError> {
        if self.is_over {
            return Ok(());
        }
        while !self.is_over {
            self.read_line(given, tally, repeated)?;
        }
        let Some(sorting) = &mut self.sorting else { return Ok(()) };
        sorting.finish().map_err(|source| HistoryError::Sort { file: self.path.clone(), source })
    }

    /// The time of the earliest request that was read.
    pub(super) fn first(&self) -> Option<Timestamp> {
        match &self.sorting {
            Some(sorting) => sorting.first(),
            None => self.window.first(),
        }
    }

    /// Gives out the earliest request that was read.
    ///
    /// # Errors
    /// [`HistoryError::Sort`].
    pub(super) fn pop(&mut self) -> Result<Option<Box<Record>>, HistoryError> {
        match &mut self.sorting {
            Some(sorting) => sorting
                .pop()
                .map_err(|source| HistoryError::Sort { file: self.path.clone(), source }),
            None => Ok(self.window.pop()),
        }
    }

    fn read_line(
        &mut self,
        given: Timestamp,
        tally: &mut Tally,
        repeated: &mut ValueCache,
    ) -> Result<(), HistoryError> {
        let number = self.lines.number + 1;
        let piece = self
            .lines
            .next()
            .map_err(|source| HistoryError::Read { file: self.path.clone(), source })?;
        let (line, fault) = match piece {
            None => {
                self.is_over = true;
                self.clock.finish(&mut self.ready);
                self.push_ready(given, tally);
                return Ok(());
            }
            Some(Piece::Line(line)) if line.len() <= MAX_LINE_BYTES => (line, None),
            Some(Piece::Line(line) | Piece::TooLong(line)) => (line, Some(TOO_LONG)),
            Some(Piece::Hole) => (&[][..], Some(NUL)),
            Some(Piece::Cut(line)) => (line, Some(CUT)),
        };
        let text = match (text(line), fault) {
            (Some(text), _) => text,
            // A hole in the file, or the end of a compressed one: there is nothing to show.
            (None, Some(_)) => "".into(),
            (None, None) if line.contains(&0) => "".into(),
            (None, None) => return Ok(()),
        };
        self.counts.lines += 1;
        let read = match (fault, &mut self.reader) {
            (Some(fault), _) => Err(Fault::from(fault)),
            _ if text.is_empty() || memchr::memchr(0, text.as_bytes()).is_some() => Err(NUL.into()),
            (None, Some(reader)) => reader.read(&text, repeated),
            (None, None) => Err(NO_FORMAT.into()),
        };
        match read {
            Ok(Line::Request { mut record, written, doubts }) => {
                record.place = Place { file: self.index, line: number };
                self.counts.note_request(written, doubts);
                self.take(record, written.has_offset, given, tally)?;
            }
            Ok(Line::Skipped(reason)) => *tally.skipped.entry(reason).or_default() += 1,
            Err(reason) => {
                self.counts.bad += 1;
                tally.note_bad(&self.path, number, reason, &text);
            }
        }
        Ok(())
    }

    /// Puts a request where it is sorted by time; one without an offset waits for its clock first.
    fn take(
        &mut self,
        record: Box<Record>,
        has_offset: bool,
        given: Timestamp,
        tally: &mut Tally,
    ) -> Result<(), HistoryError> {
        if let Some(sorting) = &mut self.sorting {
            // Of lines in no order, a clock that goes back says nothing.
            let is_earlier = sorting
                .push(record)
                .map_err(|source| HistoryError::Sort { file: self.path.clone(), source })?;
            tally.reordered += u64::from(is_earlier);
        } else if has_offset {
            self.push(record, given, tally);
        } else {
            self.clock.take(record, &mut self.ready);
            self.push_ready(given, tally);
        }
        Ok(())
    }

    /// Puts what the clock gives out among the others.
    fn push_ready(&mut self, given: Timestamp, tally: &mut Tally) {
        let mut ready = std::mem::take(&mut self.ready);
        for record in ready.drain(..) {
            self.push(record, given, tally);
        }
        self.ready = ready;
    }

    /// Puts a request among the others.
    fn push(&mut self, mut record: Box<Record>, given: Timestamp, tally: &mut Tally) {
        if record.time < given {
            self.window.learn(record.took);
            // It comes later than it did, and ends when it did.
            let late_by = given.saturating_since(record.time);
            record.took = record.took.map(|took| took.saturating_sub(late_by));
            record.time = given;
            tally.late += 1;
            self.window.push(record);
        } else if self.window.push(record) {
            tally.reordered += 1;
        }
    }

    /// Bytes that were read of it, and that it has; none: it is a pipe.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let source = &self.lines.source;
        (source.read.load(Ordering::Relaxed), source.total)
    }

    /// What was read.
    pub(super) fn summary(&self) -> FileSummary {
        let Counts { lines, bad, grain_micros, .. } = self.counts;
        #[expect(clippy::cast_precision_loss, reason = "1, 1000 or 1,000,000")]
        let grain_seconds = (grain_micros > 0).then(|| grain_micros as f64 / 1e6);
        FileSummary { name: self.name(), format: self.format(), lines, bad, grain_seconds }
    }

    /// Requests that were read.
    pub(super) const fn requests(&self) -> u64 {
        self.counts.requests
    }

    /// What a reader of a report has to know of it.
    pub(super) fn notes(&self) -> impl Iterator<Item = (String, Note)> {
        let Counts { named_clients, forwarded_clients, unread_durations, without_side, .. } =
            self.counts;
        let notes = [
            (without_side > 0).then_some(Note::NoSide),
            self.counts.lacks_offset.then_some(Note::NoOffset),
            self.clock.line.map(Note::WentBack),
            (named_clients > 0).then_some(Note::NamedClients(named_clients)),
            (forwarded_clients > 0).then_some(Note::ForwardedClients(forwarded_clients)),
            (unread_durations > 0).then_some(Note::UnreadDurations(unread_durations)),
            self.counts.overflowed.then_some(Note::Overflowed),
            self.sorting.is_some().then_some(Note::Sorted),
        ];
        notes.into_iter().flatten().map(|note| (self.name(), note))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn format(&self) -> Option<Format> {
        self.reader.as_ref().map(|reader| reader.format)
    }
}

/// The first line that names columns.
fn header(lines: &mut Lines, columns: &Columns) -> std::io::Result<Option<String>> {
    loop {
        match lines.next()? {
            None => return Ok(None),
            Some(Piece::Hole) => {}
            Some(Piece::Line(line) | Piece::TooLong(line) | Piece::Cut(line)) => {
                if let Some(text) = text(line).filter(|text| is_header(text, columns)) {
                    return Ok(Some(text.into_owned()));
                }
            }
        }
    }
}

/// The coarsest unit that a time is a multiple of, in microseconds.
const fn grain_micros(time: Timestamp) -> u64 {
    match time.as_micros() {
        micros if micros % 1_000_000 == 0 => 1_000_000,
        micros if micros % 1000 == 0 => 1000,
        _ => 1,
    }
}
