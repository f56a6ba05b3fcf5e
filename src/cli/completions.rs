//! `tollgate completions`: what a shell completes the commands by.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Failure;

/// Print the completions for a shell
///
/// For bash: `tollgate completions bash > /etc/bash_completion.d/tollgate`. For zsh: write them to
/// a file named `_tollgate` in a folder of `$fpath`. For fish: write them to
/// `~/.config/fish/completions/tollgate.fish`. They hold from the next shell on.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: CompletedShell,
}

/// The shells whose completions are tested.
#[derive(Clone, Copy, clap::ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let shell = match arguments.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut command = super::Arguments::command();
    // The generator panics when it cannot write, so it writes where it always can.
    let mut script = Vec::new();
    generate(shell, &mut command, "tollgate", &mut script);
    Ok(output.write_all(&script)?)
}
