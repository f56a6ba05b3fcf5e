//! What was read, as a report has it.

use tollgate_history::{self as history, FileSummary, HistorySummary};

use super::{BadLine, FileRead, Read};

impl From<HistorySummary> for Read {
    fn from(summary: HistorySummary) -> Read {
        Read {
            files: summary.files.into_iter().map(FileRead::from).collect(),
            lines: summary.lines,
            requests: summary.requests,
            skipped: summary.skipped,
            bad: summary.bad,
            bad_lines: summary.bad_lines.into_iter().map(BadLine::from).collect(),
            reordered: summary.reordered,
            late: summary.late,
            ..Read::default()
        }
    }
}

impl From<FileSummary> for FileRead {
    fn from(file: FileSummary) -> FileRead {
        let format = file.format.map(|format| format.to_string());
        FileRead {
            file: file.name,
            format: format.unwrap_or_else(|| "empty".to_owned()),
            lines: file.lines,
            bad: file.bad,
            grain_seconds: file.grain_seconds.unwrap_or_default(),
        }
    }
}

impl From<history::BadLine> for BadLine {
    fn from(bad: history::BadLine) -> BadLine {
        let history::BadLine { file, line, reason, text } = bad;
        BadLine { file, line, reason, text }
    }
}
