//! `tollgate reset`: makes the limits of a caller as never used on a running proxy.

use std::io::Write;

use http::Method;
use serde_json::json;
use tollgate_settings::Permission;

use super::{
    Failure,
    call::{CALL_TIMEOUT, Where},
    look::{Whose, write_shared, write_skipped},
};
use crate::callers::{CounterCommand, ResetReport};

/// Reset the limits of a caller
///
/// Has a running proxy make all windows of the limits that count by this caller alone as never
/// used, or of those that count by these values. The next request sees it; on other proxies that
/// share a Redis, within a second. The proxy logs who reset what, and why.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    whose: Whose,
    /// The reason, for the log
    #[arg(long, value_name = "TEXT")]
    why: String,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { place, whose, why } = arguments;
    let path = format!("{}/reset", whose.path());
    let order = json!({ "policy": whose.policy, "limit": whose.limit, "why": why }).to_string();
    let target = place.target(Permission::Write)?;
    let ResetReport { caller, limits, shared, skipped } =
        target.report(&Method::POST, &path, order, CALL_TIMEOUT)?;
    writeln!(output, "reset {caller}: {}", limits.join(", "))?;
    write_shared(output, &shared, "reset", CounterCommand::Reset)?;
    write_skipped(output, &skipped)?;
    Ok(())
}
