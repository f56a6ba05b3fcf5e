//! Runs a command, prints what went wrong, exits: 0, 1 for a failure, 64 for a bad configuration.

use std::{
    io::{self, stdout},
    process::ExitCode,
};

use tollgate::cli::{self, Exit, Failure};

#[expect(clippy::print_stderr, reason = "this is the one place that prints")]
fn main() -> ExitCode {
    match cli::run(std::env::args_os(), &mut stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Configuration(problems)) => {
            for problem in &problems {
                eprintln!("{problem}\n");
            }
            eprintln!("{} found", count(problems.len()));
            ExitCode::from(Exit::BadConfiguration.code())
        }
        Err(Failure::Usage(usage)) => {
            eprint!("{usage}");
            ExitCode::from(Exit::BadConfiguration.code())
        }
        Err(Failure::Reported(exit)) => ExitCode::from(exit.code()),
        Err(Failure::WithExit(exit, error)) => {
            eprintln!("tollgate: {error:#}");
            ExitCode::from(exit.code())
        }
        // The reader closed the pipe: it needs no more output.
        Err(Failure::Other(error)) if is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(Failure::Other(error)) => {
            eprintln!("tollgate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn count(problems: usize) -> String {
    match problems {
        1 => "1 problem".into(),
        _ => format!("{problems} problems"),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
