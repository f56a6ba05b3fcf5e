//! Reads a history in a thread of its own, some way ahead of who judges it.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use super::{History, HistoryError, HistorySummary, ReadOptions, Record, window::size};

/// Records that are sent at once, and about how much memory they take, in bytes: more would only
/// wait. The last one may be longer.
const RECORDS: usize = 512;
const BYTES: usize = 1024 * 1024;

/// Parcels that may wait.
const PARCELS: usize = 8;

/// A history that is read by a thread of its own.
pub struct HistoryAhead {
    parcels: Option<Receiver<Parcel>>,
    reader: Option<JoinHandle<Result<HistorySummary, HistoryError>>>,
    records: std::vec::IntoIter<Box<Record>>,
    progress: (u64, Option<u64>),
}

/// Records, and how far the reader was with them.
struct Parcel {
    #[expect(clippy::vec_box, reason = "a record is large, and was moved in its box before")]
    records: Vec<Box<Record>>,
    progress: (u64, Option<u64>),
}

impl HistoryAhead {
    /// Opens the files, and begins to read.
    ///
    /// # Errors
    /// [`HistoryError`], if they cannot be read at all; or the system has no thread.
    pub fn open(options: &ReadOptions) -> Result<HistoryAhead, HistoryError> {
        let history = History::open(options)?;
        let (sender, parcels) = sync_channel(PARCELS);
        let reader = thread::Builder::new().name("log-reader".to_owned());
        let reader = reader.spawn(move || read(history, &sender)).map_err(HistoryError::Thread)?;
        Ok(HistoryAhead {
            parcels: Some(parcels),
            reader: Some(reader),
            records: Vec::new().into_iter(),
            progress: (0, None),
        })
    }

    /// The next request, in the order of time; none: there are no more. [`HistoryAhead::finish`]
    /// returns what could not be read.
    pub fn next_record(&mut self) -> Option<Box<Record>> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            let Parcel { records, progress } = self.parcels.as_ref()?.recv().ok()?;
            self.progress = progress;
            self.records = records.into_iter();
        }
    }

    /// How many bytes were read, and how many there are: none, if that is not known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.progress
    }

    /// Ends the reader, and says what was read.
    ///
    /// # Errors
    /// [`HistoryError`], if a file could be read no further.
    pub fn finish(mut self) -> Result<HistorySummary, HistoryError> {
        // The reader does not go on when nobody takes its parcels.
        self.parcels = None;
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(summary)) => summary,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(HistorySummary::default()),
        }
    }
}

fn read(
    mut history: History,
    parcels: &SyncSender<Parcel>,
) -> Result<HistorySummary, HistoryError> {
    loop {
        let mut records = Vec::with_capacity(RECORDS);
        let mut bytes = 0;
        let mut is_last = false;
        while !is_last && records.len() < RECORDS && bytes < BYTES {
            match history.next_record()? {
                Some(record) => {
                    bytes += size(&record);
                    records.push(record);
                }
                None => is_last = true,
            }
        }
        let parcel = Parcel { records, progress: history.progress() };
        if parcels.send(parcel).is_err() || is_last {
            return Ok(history.summary());
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn few_long_requests_are_sent_at_once() {
        let file = NamedTempFile::new().unwrap();
        let line = |number: usize| {
            let target = "x".repeat(60_000);
            format!(
                "192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] \"GET /{number}{target} HTTP/1.1\" 200 5\n"
            )
        };
        std::fs::write(file.path(), (0..100).map(line).collect::<String>()).unwrap();
        let files = vec![file.path().to_owned()];
        let mut history =
            HistoryAhead::open(&ReadOptions { files, ..ReadOptions::default() }).unwrap();
        assert!(history.next_record().is_some());
        assert_eq!(history.records.len() + 1, BYTES.div_ceil(60_000));
        assert_eq!(std::iter::from_fn(|| history.next_record()).count(), 99);
        assert_eq!(history.finish().unwrap().requests, 100);
    }
}
