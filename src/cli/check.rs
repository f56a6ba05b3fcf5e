//! `tollgate check`: every problem of settings and policies at once, what is surely not meant, and
//! the tests inside policies.

mod finding;
mod forward_auth;
mod github;
mod json;
mod online;
mod report;
mod sarif;
mod text;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use tollgate_clock::Clock;

use self::report::{Report, Request};
use super::{Exit, Failure, settings_file::SettingsFile};

/// Check settings and policies
///
/// Prints every problem with file, line and column, the text that is wrong, and what to write
/// instead. Without problems, warns about what is surely not meant, and runs the tests inside the
/// policies: in this process, with nothing charged before, and with a clock of their own. Policies
/// that are named without settings are judged with those of --config, which some warnings and tests
/// need. Exits with 0 if all is well, with 64 if there are problems, with 1 if a test fails.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Settings files, policy files, or folders with either. Default: the settings file of
    /// `--config`
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    settings: SettingsFile,
    /// Exit with 64 if there are warnings
    #[arg(long)]
    strict: bool,
    /// Also read the keys of issuers, and connect to introspection, upstreams and Redis; exits with
    /// 1 if one of them cannot be reached. Nothing is written anywhere
    #[arg(long)]
    online: bool,
    /// How to print it: the machine formats hold problems, warnings and tests alike
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Format {
    /// For people; problems go to standard error
    #[default]
    Text,
    /// One JSON object
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Workflow commands, which GitHub Actions shows beside the lines
    Github,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { paths, settings, strict, online, format } = arguments;
    if *online && !matches!(format, Format::Text | Format::Json) {
        return Err(Failure::Usage("--online goes with --format text and json only\n".to_owned()));
    }
    let (paths, settings) = match paths.as_slice() {
        [] => (vec![settings.find()?], None),
        paths => (paths.to_vec(), settings.given()),
    };
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let request = Request { paths: &paths, settings, is_strict: *strict, is_online: *online };
    let report = Report::collect(&request, Clock::System.now())?;
    match format {
        Format::Text => return text_and_failure(&report, output),
        Format::Json => json::write(&report, output)?,
        Format::Sarif => sarif::write(&report, output)?,
        Format::Github => github::write(&report, output)?,
    }
    match report.exit() {
        None => Ok(()),
        Some(exit) => Err(Failure::Reported(exit)),
    }
}

/// Checks what a settings file configures, for people.
pub(super) fn check_settings(file: &Path, output: &mut dyn Write) -> Result<(), Failure> {
    let request = Request { paths: &[file], settings: None, is_strict: false, is_online: false };
    text_and_failure(&Report::collect(&request, Clock::System.now())?, output)
}

/// For people, standard output has what was checked, and standard error why that is not enough.
fn text_and_failure(report: &Report, output: &mut dyn Write) -> Result<(), Failure> {
    text::write(report, output)?;
    let problems: Vec<_> = report.problems().into_iter().cloned().collect();
    if !problems.is_empty() {
        return Err(Failure::Configuration(problems));
    }
    match report.exit() {
        None => Ok(()),
        Some(exit @ Exit::BadConfiguration) => Err(Failure::Reported(exit)),
        Some(Exit::Failure | Exit::TooManyDenied | Exit::Partial | Exit::OutOfOrder) => {
            let all = report.tests().count();
            match report.failed_tests() {
                0 => {}
                failed => return Err(anyhow!("{failed} of {all} tests failed").into()),
            }
            let unreached = online::failure(report.attempts()).unwrap_or_default();
            Err(anyhow!(unreached).into())
        }
    }
}
