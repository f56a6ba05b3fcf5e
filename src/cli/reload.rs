//! `tollgate reload`: has a running proxy read its configuration, and waits for what comes of it.

use std::{io::Write, time::Duration};

use anyhow::anyhow;
use bytes::Bytes;
use http::{Method, StatusCode};
use tollgate_settings::Permission;

use super::{
    Failure,
    call::{Where, read, refusal},
};
use crate::admin::{RefusedReload, Reloaded};

/// Have a running proxy read its configuration
///
/// Asks its admin listener, and waits until all files are read and in force, or refused. Exits with
/// 0 if they are in force, with 1 if not: then the problems are shown, and what was in force stays.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Where,
}

/// How long a reload may take. Reading many files, and again those that change meanwhile, is slow.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let target = arguments.place.target(Permission::Write)?;
    let (status, body) = target.call(&Method::POST, "/reload", Bytes::new(), TIMEOUT)?;
    match status {
        StatusCode::OK => {
            let Reloaded { generation, move_waits_for } = read(&body)?;
            writeln!(output, "reloaded: generation {generation} is in force")?;
            if let Some(obstacle) = move_waits_for {
                writeln!(output, "callers are mirrored, and not moved yet: {obstacle}")?;
            }
            Ok(())
        }
        StatusCode::UNPROCESSABLE_ENTITY => {
            write_problems(output, &read(&body)?)?;
            Err(anyhow!("not reloaded: what was in force stays").into())
        }
        status => Err(refusal(status, &body).into()),
    }
}

/// Each problem as `tollgate check` shows it.
pub(super) fn write_problems(
    output: &mut dyn Write,
    refused: &RefusedReload,
) -> std::io::Result<()> {
    for problem in &refused.problems {
        writeln!(output, "{problem}\n")?;
    }
    match refused.more {
        0 => Ok(()),
        more => writeln!(output, "and {more} more\n"),
    }
}
