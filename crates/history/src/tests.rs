//! Whole files, from their bytes to requests in order.

use tempfile::TempDir;

use super::*;

/// What cannot be read: lines, files and their ends.
mod broken;
/// Clocks that are set, and clocks that are wrong.
mod clocks;
/// How the format of a file is found.
mod detection;
/// How long requests took, and the order that follows from it.
mod durations;
/// In which order requests come, and at which times.
mod order;
/// Lines of each program.
mod samples;
/// What requests have used and cost.
mod used;

/// Files in a directory of their own.
struct Logs {
    directory: TempDir,
    options: ReadOptions,
}

/// What came of reading files.
struct Outcome {
    records: Vec<Record>,
    summary: HistorySummary,
}

impl Logs {
    fn new() -> Logs {
        Logs { directory: TempDir::new().unwrap(), options: ReadOptions::default() }
    }

    /// One file with these bytes.
    fn of(bytes: impl AsRef<[u8]>) -> Logs {
        Logs::new().and(bytes)
    }

    /// Another file with these bytes.
    fn and(mut self, bytes: impl AsRef<[u8]>) -> Logs {
        let path = self.directory.path().join(format!("{}.log", self.options.files.len()));
        std::fs::write(&path, bytes).unwrap();
        self.options.files.push(path);
        self
    }

    fn format(mut self, format: Format) -> Logs {
        self.options.format = Some(format);
        self
    }

    fn wanted(mut self, names: &[&str]) -> Logs {
        self.options.wanted = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    fn columns(mut self, columns: &[(&str, &str)]) -> Logs {
        let owned = |(field, name): &(&str, &str)| ((*field).to_owned(), (*name).to_owned());
        self.options.columns = columns.iter().map(owned).collect();
        self
    }

    fn read(&self) -> Outcome {
        let mut history = History::open(&self.options).unwrap();
        let mut records = Vec::new();
        while let Some(record) = history.next_record().unwrap() {
            records.push(*record);
        }
        let summary = history.summary();
        let skipped: u64 = summary.skipped.values().sum();
        assert_eq!(summary.requests, records.len() as u64);
        assert_eq!(summary.requests + summary.bad + skipped, summary.lines, "{summary:#?}");
        assert!(records.is_sorted_by_key(|record| record.time));
        let (read, total) = history.progress();
        assert_eq!(Some(read), total);
        Outcome { records, summary }
    }

    fn error(&self) -> String {
        History::open(&self.options).err().unwrap().to_string()
    }
}

impl Outcome {
    /// Format, and of each request what a log can say.
    fn shown(&self) -> Vec<String> {
        self.records.iter().map(shown).collect()
    }

    fn format(&self) -> Option<Format> {
        self.summary.files[0].format
    }

    fn targets(&self) -> Vec<&str> {
        self.records.iter().map(|record| record.target.as_str()).collect()
    }

    fn reasons(&self) -> Vec<(u64, &str)> {
        self.summary.bad_lines.iter().map(|bad| (bad.line, bad.reason.as_str())).collect()
    }
}

/// `time client method host target status [user agent]`, with `-` for what is not known.
fn shown(record: &Record) -> String {
    let or_hyphen = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{} {} {} {} {} {} [{}]",
        record.time,
        or_hyphen(record.client.map(|client| client.to_string())),
        record.method,
        record.host.as_ref().map_or("-", |host| host.to_str().unwrap()),
        record.target,
        or_hyphen(record.status.map(|status| status.to_string())),
        or_hyphen(
            record
                .user_agent
                .as_ref()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        ),
    )
}

/// A line of a combined log at a second of an hour.
fn combined(second: u32, target: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "192.0.2.1 - - [21/Nov/2026:08:{minute:02}:{second:02} +0000] \"GET {target} HTTP/1.1\" 200 5 \
         \"-\" \"curl\"\n"
    )
}
