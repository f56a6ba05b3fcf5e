//! `tollgate look`: how the limits of a caller stand on a running proxy.

use std::io::{self, Write};

use tollgate_settings::Permission;

use super::{
    Failure,
    call::{Where, encoded},
};
use crate::callers::{
    AnsweredBy, CallerReport, CounterCommand, LimitReport, PolicyReport, SharedLimit,
    SkippedPolicy, WindowReport,
};

/// Show how the limits of a caller stand
///
/// Queries the admin listener of a running proxy for the limits that count by this caller, or by
/// these values, alone: how much of each window is used, and which override applies. Nothing is
/// charged, and no window begins.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    whose: Whose,
    /// Show everything, as JSON
    #[arg(long)]
    json: bool,
}

/// Whose counters.
#[derive(clap::Args)]
pub(super) struct Whose {
    /// The caller as policies and the log name it: user:42, or main/user:42 where several issuers
    /// have users; client.ip:192.0.2.1 for limits by address; a value of anything else that limits
    /// count by, as jwt.org:acme, path.owner:acme or key:acct-7; and where one counts by several
    /// things, all values: client.ip=192.0.2.1,header.x-login=bob
    pub(super) caller: String,
    /// Only this limit: core, or api/core of policy api
    #[arg(long, value_name = "NAME")]
    pub(super) limit: Option<String>,
    /// Only this policy
    #[arg(long, value_name = "NAME")]
    pub(super) policy: Option<String>,
}

impl Whose {
    /// Its path on the admin listener.
    pub(super) fn path(&self) -> String {
        format!("/callers/{}", encoded(&self.caller))
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { place, whose, json } = arguments;
    let mut path = whose.path();
    let parameters = [("limit", &whose.limit), ("policy", &whose.policy)];
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (at, (name, value)) in given.enumerate() {
        let mark = if at == 0 { '?' } else { '&' };
        path = format!("{path}{mark}{name}={}", encoded(value));
    }
    let target = place.target(Permission::Read)?;
    target.show(&path, *json, output, write_report)?;
    Ok(())
}

fn write_report(output: &mut dyn Write, report: &CallerReport) -> io::Result<()> {
    for (at, policy) in report.policies.iter().enumerate() {
        if at > 0 {
            writeln!(output)?;
        }
        write_policy(output, policy)?;
    }
    write_skipped(output, &report.skipped)
}

/// Policies in which a name says too little.
pub(super) fn write_skipped(output: &mut dyn Write, all: &[SkippedPolicy]) -> io::Result<()> {
    let mut all = all.iter();
    all.try_for_each(|own| writeln!(output, "not in policy {}: {}", own.policy, own.why))
}

fn write_policy(output: &mut dyn Write, report: &PolicyReport) -> io::Result<()> {
    let PolicyReport { policy, caller, issuer, tier, listed, limits, shared, beside } = report;
    write!(output, "{caller}, policy {policy}")?;
    if let Some(issuer) = issuer {
        write!(output, ", issuer {issuer}")?;
    }
    match tier {
        Some(tier) => writeln!(output, ", tier {tier}")?,
        None => writeln!(output, ", tier not known: the windows of every tier are shown")?,
    }
    match listed.as_deref() {
        Some("deny") => writeln!(output, "  refused: it is in the list `deny`")?,
        Some(_) => writeln!(output, "  charged nothing: it is in the list `exempt`")?,
        None => {}
    }
    limits.iter().try_for_each(|limit| write_limit(output, limit))?;
    write_shared(output, shared, "shown", CounterCommand::Look)?;
    if limits.is_empty() && shared.is_empty() {
        writeln!(output, "  no limit counts by it")?;
    }
    for SharedLimit { limit, per, name, seen } in beside {
        write!(output, "  {limit}: on its routes, but counts by {per}")?;
        match seen.as_slice() {
            [] => writeln!(output, ": {}", CounterCommand::Look.line(name))?,
            names => {
                writeln!(output, ", and had no room for it lately")?;
                write_commands(output, names, CounterCommand::Look)?;
            }
        }
    }
    Ok(())
}

/// Limits that count by more than the name says, and which of their counters were seen lately.
pub(super) fn write_shared(
    output: &mut dyn Write,
    limits: &[SharedLimit],
    done: &str,
    command: CounterCommand,
) -> io::Result<()> {
    for SharedLimit { limit, per, name, seen } in limits {
        write!(output, "  {limit}: not {done}, it counts by {per}: ")?;
        match seen.as_slice() {
            [] => writeln!(output, "this proxy has seen none of these lately, ask for {name}")?,
            names => {
                writeln!(output, "this proxy has seen these lately")?;
                write_commands(output, names, command)?;
            }
        }
    }
    Ok(())
}

/// What to run next.
fn write_commands(
    output: &mut dyn Write,
    names: &[String],
    command: CounterCommand,
) -> io::Result<()> {
    names.iter().try_for_each(|name| writeln!(output, "    {}", command.line(name)))
}

fn write_limit(output: &mut dyn Write, report: &LimitReport) -> io::Result<()> {
    let LimitReport { limit, mode, r#override, windows } = report;
    let mode = if mode == "enforced" { String::new() } else { format!(", {mode}") };
    writeln!(output, "  {limit}{mode}{}", if windows.is_empty() { ": unlimited" } else { "" })?;
    if let Some(own) = r#override {
        let until = own.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
        writeln!(output, "    an override{until}: {}", own.why)?;
    }
    windows.iter().try_for_each(|window| write_window(output, window))
}

fn write_window(output: &mut dyn Write, window: &WindowReport) -> io::Result<()> {
    let WindowReport { tier, rate, is_candidate, used, max, remaining, .. } = window;
    write!(output, "    {rate}")?;
    if let Some(tier) = tier {
        write!(output, " ({tier}{})", if *is_candidate { ", candidate" } else { "" })?;
    }
    write!(output, ": {used} of {max} used, {remaining} left")?;
    if let Some(reset) = &window.reset {
        write!(output, ", reset {reset}")?;
    }
    match window.answered_by {
        AnsweredBy::Memory | AnsweredBy::Disk | AnsweredBy::Redis => writeln!(output),
        AnsweredBy::NextMemory | AnsweredBy::NextDisk | AnsweredBy::NextRedis => {
            writeln!(output, ", by the next store")
        }
        AnsweredBy::Local => {
            writeln!(output, ", by this proxy's share: the store does not answer")
        }
        AnsweredBy::None => writeln!(output, ", as last known: the store does not answer"),
    }
}
