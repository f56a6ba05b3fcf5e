//! `tollgate suggest`: a policy to begin with, from an access log.

use std::{io::Write, path::PathBuf};

use tollgate_simulate::suggest;

use super::{
    Failure,
    simulate::{ProgressBar, Reading, failure},
};

/// Write a policy to begin with, from an access log
///
/// Finds the routes and the callers of the log, and limits that 99.9 % of the callers stay below.
/// Each limit only counts (`mode: shadow`), and has the evidence for its number in a comment. The
/// logs are read twice.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The logs, in any order
    #[arg(long = "log", value_name = "FILE", required = true, num_args = 1..)]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { logs, reading } = arguments;
    let mut bar = ProgressBar::new();
    let options = reading.options(logs);
    let callers = reading.callers();
    let policy = suggest(&options, &callers, reading.host(), &mut |progress| bar.show(progress));
    bar.clear();
    Ok(write!(output, "{}", policy.map_err(failure)?)?)
}
