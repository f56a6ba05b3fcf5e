//! The command line: one file below this one for each command.

mod call;
mod check;
mod completions;
mod configured;
mod demo;
mod diff;
mod explain;
mod health;
mod import;
mod init;
mod jwks;
mod key;
mod look;
mod man;
mod reload;
mod reset;
mod run;
mod schema;
mod settings_file;
mod simulate;
mod status;
mod store;
mod suggest;
mod table;
mod token;
mod top;

use std::{
    ffi::OsString,
    io::{self, Write},
};

use clap::{Parser, Subcommand};
use serde::Serialize;
use tollgate_yaml::Problem;

/// An edge reverse proxy that enforces app-level identity limits.
///
/// Stands in front of an HTTP API, finds out who is calling, charges the limits that the route
/// names, and forwards what is admitted. Every response carries the
/// client's limit, what remains of it, and when it resets.
#[derive(Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Init(init::Arguments),
    Run(run::Arguments),
    Check(check::Arguments),
    Diff(diff::Arguments),
    Explain(Box<explain::Arguments>),
    Simulate(Box<simulate::Arguments>),
    Suggest(suggest::Arguments),
    Health(health::Arguments),
    Status(status::Arguments),
    Reload(reload::Arguments),
    Top(top::Arguments),
    Look(look::Arguments),
    Reset(reset::Arguments),
    Store(store::Arguments),
    Token(Box<token::Arguments>),
    Schema(schema::Arguments),
    Import(import::Arguments),
    Key(Box<key::Arguments>),
    Jwks(jwks::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// Why a command did not succeed.
pub enum Failure {
    /// What is wrong with the configuration.
    Configuration(Vec<Problem>),
    /// The arguments make no sense; the text says how to use the command.
    Usage(String),
    /// Something that the output says already.
    Reported(Exit),
    /// An error that has an exit code of its own.
    WithExit(Exit, anyhow::Error),
    /// Anything else.
    Other(anyhow::Error),
}

/// How the program exits when a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something failed.
    Failure,
    /// More requests of a log would be denied than may be.
    TooManyDenied,
    /// Not all of a configuration was taken over.
    Partial,
    /// Too many requests of a log are out of order.
    OutOfOrder,
    /// The configuration or the arguments are bad.
    BadConfiguration,
}

impl Exit {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Failure => 1,
            Exit::TooManyDenied | Exit::Partial => 3,
            Exit::OutOfOrder => 4,
            Exit::BadConfiguration => 64,
        }
    }
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        Failure::Configuration(problems)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Other(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Other(error.into())
    }
}

/// Runs the command that `arguments` name, writing what it has to say to `output`.
///
/// # Errors
/// [`Failure`].
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return Err(Failure::Usage(error.render().to_string())),
        // `--help` and `--version` were asked for.
        Err(error) => return Ok(write!(output, "{}", error.render())?),
    };
    match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments, output),
        Command::Init(arguments) => init::run(&arguments, output),
        Command::Run(arguments) => run::run(&arguments),
        Command::Check(arguments) => check::run(&arguments, output),
        Command::Diff(arguments) => diff::run(&arguments, output),
        Command::Explain(arguments) => explain::run(&arguments, output),
        Command::Simulate(arguments) => simulate::run(&arguments, output),
        Command::Suggest(arguments) => suggest::run(&arguments, output),
        Command::Health(arguments) => health::run(&arguments, output),
        Command::Status(arguments) => status::run(&arguments, output),
        Command::Reload(arguments) => reload::run(&arguments, output),
        Command::Top(arguments) => top::run(&arguments, output),
        Command::Look(arguments) => look::run(&arguments, output),
        Command::Reset(arguments) => reset::run(&arguments, output),
        Command::Store(arguments) => store::run(&arguments, output),
        Command::Token(arguments) => token::run(&arguments, output),
        Command::Import(arguments) => import::run(&arguments, output, &mut io::stderr()),
        Command::Schema(arguments) => schema::run(&arguments, output),
        Command::Key(arguments) => key::run(&arguments, output),
        Command::Jwks(arguments) => jwks::run(&arguments, output),
        Command::Completions(arguments) => completions::run(&arguments, output),
        Command::Man(arguments) => man::run(&arguments, output),
    }
}

/// Writes a value as JSON, for programs and for people.
fn write_json(output: &mut dyn Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    Ok(writeln!(output, "{text}")?)
}

/// `1 test`, `2 tests`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
