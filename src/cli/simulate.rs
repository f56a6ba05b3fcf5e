//! `tollgate simulate`: what limits would have done to the requests of an access log.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use tollgate_history::{Format, ReadOptions};
use tollgate_policy::Policies;
use tollgate_simulate::{
    CallerField, PolicySet, Progress, Report, Simulation, SimulationError,
    report::{html, json, markdown, text},
};

use super::{
    Exit, Failure,
    configured::{Configured, sources_of},
    settings_file::find_settings,
};

/// Show what limits would have done to the requests of an access log
///
/// Reads logs of tollgate, nginx, Apache, Caddy, Traefik, Envoy, HAProxy, APISIX, AWS, Cloudflare,
/// Google Cloud, IIS, any JSON, or columns; plain, gzip or zstd; and judges each request by the
/// policies, at the time of the log: by the code that judges real requests, with counters of its
/// own. Says what each limit would have denied, to whom, and what another limit would deny.
///
/// Exits with 0; with 3 if more is denied than --max-denied allows; with 4 if the log is out of
/// order, and cannot be read again to be sorted; with 64 if a policy has problems.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The logs, in any order; `-` is standard input
    #[arg(long = "log", value_name = "FILE", required = true, num_args = 1..)]
    logs: Vec<PathBuf>,
    /// The policies to judge by: a policy file, a folder of them, or a settings file. Left out: the
    /// settings that TOLLGATE_CONFIG names, or that are in the usual places
    #[arg(long, value_name = "PATH")]
    policy: Option<PathBuf>,
    /// Other policies, such as those in force: shows who is better and worse off than by these
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// Write a page of HTML, which opens offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown, for a pull request
    #[arg(long)]
    markdown: bool,
    /// Exit with 3 if enforced limits deny more than this part of the requests
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    max_denied: Option<f64>,
}

/// How logs are read.
#[derive(clap::Args)]
pub(super) struct Reading {
    /// The format of the logs; else it is found out from the first lines of each
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// A column of a CSV or a field of JSON: what it has, such as time, client, path, and its name
    #[arg(long = "column", value_name = "WHAT=NAME", value_parser = parse_pair)]
    columns: Vec<(String, String)>,
    /// Which field of the log names callers of a kind, as in user=remote_user
    #[arg(long = "caller", value_name = "KIND=FIELD", value_parser = parse_pair)]
    callers: Vec<(String, String)>,
    /// The host of requests whose log has none; else that of the policy, if there is one policy
    #[arg(long, value_name = "HOST", value_parser = parse_host)]
    host: Option<String>,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { logs, policy, against, reading, .. } = arguments;
    let policy = &find_settings(policy.as_deref())?;
    let paths: Vec<&std::path::Path> =
        std::iter::once(policy).chain(against).map(PathBuf::as_path).collect();
    let sources = sources_of(&paths)?;
    let name = policy.display().to_string();
    let other_name = against.as_ref().map(|against| against.display().to_string());
    let configured = Configured::read(policy, &sources)?;
    let other = against.as_ref().map(|against| Configured::read(against, &sources)).transpose()?;
    let other = other.as_ref().zip(other_name.as_deref());
    check_kinds(&reading.callers, &configured.policies)?;
    // What cannot be written is reported before the logs are read, which may take long.
    let page = arguments.html.as_deref().map(|file| open_page(file, logs)).transpose()?;
    let simulation = Simulation {
        read: reading.options(logs),
        callers: reading.callers(),
        host: reading.host.clone(),
        candidate: policy_set(&configured, &name),
        against: other.map(|(other, name)| policy_set(other, name)),
    };
    let mut bar = ProgressBar::new();
    let report = simulation.run(&mut |progress| bar.show(progress)).map_err(failure);
    bar.clear();
    let report = report?;
    if let Some((file, place)) = page {
        let write = || -> std::io::Result<()> {
            file.set_len(0)?;
            let mut page = BufWriter::new(file);
            html::write(&report, &mut page)?;
            page.flush()
        };
        write().context(place)?;
    }
    match (arguments.json, arguments.markdown) {
        (true, _) => json::write(&report, output)?,
        (_, true) => markdown::write(&report, output)?,
        _ => text::write(&report, output)?,
    }
    if exceeds(&report, arguments.max_denied) {
        return Err(Failure::Reported(Exit::TooManyDenied));
    }
    if arguments.max_denied.is_some() && report.outcome.requests == 0 && report.read.lines > 0 {
        let text =
            "--max-denied: no line of the logs is a request, so nothing is known of the limits";
        return Err(anyhow!(text).into());
    }
    Ok(())
}

/// Why there are no answers, with the code to exit with.
pub(super) fn failure(error: SimulationError) -> Failure {
    match error {
        SimulationError::OutOfOrder { .. } => Failure::WithExit(Exit::OutOfOrder, error.into()),
        error => Failure::Other(error.into()),
    }
}

/// Opens the page that is to be written, and leaves what is there: the run may fail.
fn open_page(file: &Path, logs: &[PathBuf]) -> Result<(File, String), Failure> {
    let real = std::fs::canonicalize(file).ok();
    let is_page = |log: &PathBuf| real.is_some() && std::fs::canonicalize(log).ok() == real;
    if let Some(log) = logs.iter().find(|log| is_page(log)) {
        let text = format!("--html {}: this is a log that is read\n", log.display());
        return Err(Failure::Usage(text));
    }
    let place = format!("cannot write {}", file.display());
    let page = File::options().write(true).create(true).truncate(false).open(file);
    Ok((page.with_context(|| place.clone())?, place))
}

/// Checks that policies have callers of the kinds that fields of the log name: else no limit would
/// count one of them.
fn check_kinds(callers: &[(String, String)], policies: &Policies) -> Result<(), Failure> {
    let known = policies.iter().flat_map(|policy| &policy.identity.callers);
    let known: BTreeSet<&str> = known.map(|caller| &*caller.name).collect();
    match callers.iter().find(|(kind, _)| !known.contains(kind.as_str())) {
        None => Ok(()),
        Some((kind, field)) => {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(Failure::Usage(format!(
                "--caller {kind}={field}: no entry of `callers` in the policies is called `{kind}`: \
                 there are {}\n",
                if known.is_empty() { "none" } else { &known }
            )))
        }
    }
}

fn policy_set<'c>(configured: &'c Configured, name: &'c str) -> PolicySet<'c> {
    let settings = configured.settings.as_ref().map(|(_, settings)| settings);
    PolicySet { policies: &configured.policies, settings, name }
}

fn exceeds(report: &Report, max_denied: Option<f64>) -> bool {
    max_denied.is_some_and(|most| report.outcome.denied_share > most)
}

impl Reading {
    pub(super) fn options(&self, logs: &[PathBuf]) -> ReadOptions {
        ReadOptions {
            files: logs.to_vec(),
            format: self.format,
            columns: self.columns.clone(),
            wanted: self.callers.iter().map(|(_, field)| field.clone()).collect(),
            sort: false,
        }
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(super) fn callers(&self) -> Vec<CallerField> {
        let callers = self.callers.iter().cloned();
        callers.map(|(kind, field)| CallerField { kind, field }).collect()
    }
}

/// How far it is, on a terminal.
pub(super) struct ProgressBar {
    begun: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

/// How often it is shown.
const SHOW_PAUSE: Duration = Duration::from_millis(200);

impl ProgressBar {
    pub(super) fn new() -> ProgressBar {
        let is_terminal = std::io::stderr().is_terminal();
        ProgressBar { begun: Instant::now(), shown: None, is_terminal }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < SHOW_PAUSE) {
            return;
        }
        self.shown = Some(Instant::now());
        let seconds = self.begun.elapsed().as_secs_f64();
        let Progress { requests, bytes, all_bytes } = progress;
        let rate = requests as f64 / seconds.max(0.001);
        let left = all_bytes.filter(|all| *all > 0 && bytes > 0).map(|all| {
            let part = (bytes as f64 / all as f64).min(1.0);
            let left = seconds / part.max(1e-9) - seconds;
            format!(", {:.0} %, {left:.0} s left", part * 100.0)
        });
        let left = left.unwrap_or_default();
        // Nobody reads what cannot be written to a terminal.
        let _ = write!(std::io::stderr(), "\r{requests} requests, {rate:.0} a second{left}\x1b[K");
    }

    pub(super) fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write two names with = between them".to_owned()),
    }
}

/// A host, perhaps with a port.
fn parse_host(text: &str) -> Result<String, String> {
    match text.parse::<http::uri::Authority>() {
        Ok(host) if !host.as_str().contains('@') => Ok(text.to_owned()),
        _ => Err("write a host, such as api.example.com".to_owned()),
    }
}

/// `0.1%`, or `0.001`.
fn parse_share(text: &str) -> Result<f64, String> {
    let advice = || "write a percentage, such as 0.1%".to_owned();
    let (digits, scale) = match text.strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text, 1.0),
    };
    let number: f64 = digits.trim().parse().map_err(|_| advice())?;
    if scale == 1.0 && number == 1.0 {
        return Err("write 1%, or 100% for all requests".to_owned());
    }
    let share = number / scale;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(advice()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_hosts() {
        for good in ["api.example.com", "api.example.com:8443", "[2001:db8::1]", "192.0.2.1"] {
            assert_eq!(parse_host(good).as_deref(), Ok(good));
        }
        for bad in ["", "exa mple", "http://api.example.com", "me@api.example.com", "a/b"] {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_percentages_or_parts() {
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share("0.25"), Ok(0.25));
        assert_eq!(parse_share("100 %"), Ok(1.0));
        for bad in ["", "1", "%", "-1%", "101%", "NaN", "much"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }
}
