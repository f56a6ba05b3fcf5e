//! Many logs as one history, in the order of time.

use std::{cmp::Reverse, collections::BinaryHeap, mem};

use tollgate_clock::Timestamp;

use super::{
    HistoryError, HistorySummary, ReadOptions, Record,
    file::{LogFile, Tally},
    notes,
    value_cache::ValueCache,
};

/// What requests that wait to be put in order may take of the memory, in bytes: about a million of
/// them.
const MAX_BYTES: usize = 512 * 1024 * 1024;

/// The requests of all logs, in the order of their time.
///
/// Of each file it keeps the requests of ten seconds of its log, and of as long as requests took,
/// so memory does not grow with the files' length. A file whose lines are newest first is sorted
/// before; what memory does not hold of it lies in the system's folder for temporary files.
pub struct History {
    files: Vec<LogFile>,
    /// The earliest request of each file that has one left, by time and position of the file.
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Whether they were read for their first requests.
    has_begun: bool,
    /// The latest time that was given out.
    given: Timestamp,
    /// What the requests of one file may take of the memory, in bytes.
    max_bytes: usize,
    tally: Tally,
    repeated: ValueCache,
}

impl History {
    /// Opens the files, and finds out their formats. Their requests are read by the thread that
    /// asks for them: the allocator keeps memory for each thread apart, and that of another one
    /// would not be used again.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn open(options: &ReadOptions) -> Result<History, HistoryError> {
        if options.files.is_empty() {
            return Err(HistoryError::Nothing);
        }
        let max_bytes = MAX_BYTES / options.files.len();
        let files: Vec<LogFile> = options
            .files
            .iter()
            .zip(0..)
            .map(|(path, index)| LogFile::open(path, index, options, max_bytes))
            .collect::<Result<_, _>>()?;
        Ok(History {
            heads: BinaryHeap::with_capacity(files.len()),
            has_begun: false,
            max_bytes,
            files,
            given: Timestamp::default(),
            tally: Tally::default(),
            repeated: ValueCache::default(),
        })
    }

    /// The next request; none: there are no more. Its time is never before that of the one before.
    ///
    /// # Errors
    /// [`HistoryError::Read`], if a file can be read no further.
    pub fn next_record(&mut self) -> Result<Option<Box<Record>>, HistoryError> {
        if !mem::replace(&mut self.has_begun, true) {
            (0..self.files.len()).try_for_each(|at| self.advance(at))?;
        }
        let Some(Reverse((_, at))) = self.heads.pop() else { return Ok(None) };
        let Some(file) = self.files.get_mut(at) else { return Ok(None) };
        let Some(record) = file.pop()? else { return Ok(None) };
        self.given = record.time;
        self.advance(at)?;
        Ok(Some(record))
    }

    /// Reads on in a file until its earliest request is known.
    fn advance(&mut self, at: usize) -> Result<(), HistoryError> {
        if let Some(file) = self.files.get_mut(at) {
            file.fill(self.given, self.max_bytes, &mut self.tally, &mut self.repeated)?;
            self.heads.extend(file.first().map(|first| Reverse((first, at))));
        }
        Ok(())
    }

    /// What was read so far.
    pub fn summary(&self) -> HistorySummary {
        let files: Vec<_> = self.files.iter().map(LogFile::summary).collect();
        HistorySummary {
            lines: files.iter().map(|file| file.lines).sum(),
            requests: self.files.iter().map(LogFile::requests).sum(),
            bad: files.iter().map(|file| file.bad).sum(),
            files,
            bad_lines: self.tally.bad_lines.clone(),
            skipped: self
                .tally
                .skipped
                .iter()
                .map(|(reason, count)| ((*reason).to_owned(), *count))
                .collect(),
            reordered: self.tally.reordered,
            late: self.tally.late,
            notes: notes::sentences(self.files.iter().flat_map(LogFile::notes)),
        }
    }

    /// Bytes that were read of the files, as they lie on the disk, and that they have in total;
    /// none: one of them is a pipe.
    pub fn progress(&self) -> (u64, Option<u64>) {
        let parts = self.files.iter().map(LogFile::progress);
        parts.fold((0, Some(0)), |(read, total), (file_read, file_total)| {
            (read + file_read, total.zip(file_total).map(|(total, file)| total + file))
        })
    }
}
