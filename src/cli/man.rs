//! `tollgate man`: the manual, a page for the program and one for each command.

use std::{fs, io::Write, path::PathBuf};

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::{Man, generate_to};

use super::Failure;

/// Print a page of the manual
///
/// `tollgate man > tollgate.1` writes the page of the program, which lists the commands;
/// `tollgate man check` prints that of one command, and `tollgate man --all FOLDER` writes every
/// page, for a package.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The command whose page is printed. Left out: the program's
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    /// Write every page to this folder, which is made if it is missing
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    all: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    // `help` says what the pages say.
    let mut program = super::Arguments::command().disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &arguments.all {
        let write = || {
            fs::create_dir_all(folder)?;
            generate_to(program, folder)
        };
        let shown = folder.display();
        return Ok(write().with_context(|| format!("cannot write the manual to {shown}"))?);
    }
    let command = match &arguments.command {
        None => program,
        Some(name) => page_of(&program, name)?,
    };
    Ok(Man::new(command).render(output)?)
}

/// The command called `name`.
fn page_of(program: &Command, name: &str) -> Result<Command, Failure> {
    let command = program.find_subcommand(name).ok_or_else(|| {
        let names: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        Failure::Usage(format!(
            "error: there is no command `{name}`; the commands are {}\n",
            names.join(", ")
        ))
    })?;
    Ok(command.clone())
}
