//! Compares embedded storage engines under the writes of a rate limiter.
//!
//! The parent process runs each phase in a child, so that every phase has its own memory and its
//! own count of bytes, and so that one of them can be killed.

#![expect(clippy::disallowed_methods, reason = "the bench waits for engines that do not tell")]

mod args;
mod engine;
mod histogram;
mod meter;
mod phases;
mod workload;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::args::Args;

/// The line with which the child that waits to be killed says that its writes are committed.
const READY: &str = "ready";

fn main() -> Result<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    match args.phase.as_deref() {
        Some(phase) => phases::run(phase, &args),
        None => run_all(&args),
    }
}

fn run_all(args: &Args) -> Result<()> {
    if args.dir.exists() {
        fs::remove_dir_all(&args.dir)?;
    }
    fs::create_dir_all(&args.dir)?;
    println!("engine\t{}", args.engine);
    println!("settings\t{}", args.settings());
    for phase in ["load", "read", "crash", "end", "read-after"] {
        run_phase(phase).with_context(|| format!("phase {phase}"))?;
    }
    if !args.keep {
        fs::remove_dir_all(&args.dir)?;
    }
    Ok(())
}

/// Runs one phase in a child and prints the lines that it reports.
fn run_phase(phase: &str) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .args(["--phase", phase])
        .stdout(Stdio::piped())
        .spawn()?;
    let killed = relay(&mut child)?;
    let status = child.wait()?;
    ensure!(killed || status.success(), "the child ended with {status}");
    Ok(())
}

/// Copies the lines of a child to our own output, and kills the child when it says it is ready.
fn relay(child: &mut Child) -> Result<bool> {
    let output = child.stdout.take().context("the child has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == READY {
            child.kill()?;
            return Ok(true);
        }
        println!("{line}");
    }
    Ok(false)
}
