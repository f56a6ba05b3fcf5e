//! `tollgate run`: read the configuration, listen, serve, drain.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::Failure;
use crate::{
    access_log::AccessLog,
    clock::{Clock, Timestamp},
    gate::Shared,
    pipe::Pipe,
    policy::{Override, Policies, Sources},
    server::{Server, Stopped},
    settings::Configuration,
    store::{Follow, Keeper},
};

/// Serve
///
/// Reads the settings and the policies that they name, listens, and forwards until SIGTERM or
/// SIGINT. Then it stops accepting, finishes what is in flight, and exits with 0.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The settings file
    #[arg(long, value_name = "FILE", default_value = "config/tollgate.yaml")]
    config: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let events = log_to_stderr();
    let configuration = Configuration::read(&arguments.config, &Sources::system())?;
    let result = serve(configuration, Some(&arguments.config), |_| Ok(()));
    events.flush(LAST_WORDS);
    result
}

/// Serves what `configuration` describes, which was read from `file` if it was, until a signal;
/// `ready` is called with the addresses once they are bound.
pub(super) fn serve(
    configuration: Configuration,
    file: Option<&Path>,
    ready: impl FnOnce(&[std::net::SocketAddr]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let settings = &configuration.settings;
    let (workers, drain) = (settings.workers, settings.drain);
    let mut listeners = Vec::new();
    for address in &settings.listeners {
        let listener =
            Server::bind(*address).with_context(|| format!("cannot listen on {address}"))?;
        listeners.push(listener);
    }
    let addresses =
        listeners.iter().map(|listener| listener.local_addr()).collect::<io::Result<Vec<_>>>()?;
    log_overrides(&configuration.policies, Clock::System.now());
    let pipe = Pipe::start(io::stdout(), |lines| {
        tracing::warn!(lines, "access log lines were dropped: nobody reads them fast enough");
    });
    let access_log = settings.access_log.map(|format| AccessLog::new(format, pipe.clone()));
    let snapshot = settings.store.snapshot.clone();
    let is_moving = settings.store.next.is_some();
    let shared = Arc::new(Shared::new(configuration, Clock::System).context("cannot start")?);
    let store = Arc::clone(&shared.stores.memory);
    let keeper = snapshot
        .map(|snapshot| Keeper::start(store, snapshot.file, snapshot.every, Clock::System))
        .transpose()?;
    // Stops when it is dropped.
    let _follow = match file.filter(|_| is_moving) {
        Some(file) => Some(Follow::start(Arc::clone(&shared.stores), file.to_owned())?),
        None => None,
    };
    let server = Server { shared, listeners, workers, access_log, drain };

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Stopped { cut } = runtime.block_on(async {
        // Signals are caught from here on: one that comes at once is not lost.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        for address in &addresses {
            tracing::info!(%address, "listening");
        }
        ready(&addresses)?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        Ok::<_, Failure>(server.run(shutdown).await?)
    })?;
    if let Some(keeper) = keeper {
        keeper.finish();
    }
    tracing::info!(cut, "stopped");
    // What was logged is written before the process ends, if anybody reads it.
    pipe.flush(LAST_WORDS);
    Ok(())
}

/// Who has another rate than everybody, and why: exceptions that nobody hears of stay for ever.
fn log_overrides(policies: &Policies, now: Timestamp) {
    for policy in policies.iter() {
        for limit in &policy.limits {
            for Override { caller, until, why, .. } in &limit.overrides.0 {
                let (policy, limit) = (&*policy.name, &*limit.name);
                match now < *until {
                    true => tracing::info!(policy, limit, %caller, %until, %why, "override"),
                    false => tracing::warn!(policy, limit, %caller, %until, %why, "override ended"),
                }
            }
        }
    }
}

/// How long the process waits at its end for what was logged to be written.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Events go to standard error, the access log to standard output; a full pipe holds up neither.
pub(super) fn log_to_stderr() -> Pipe {
    let filter = EnvFilter::try_from_env("TOLLGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let pipe = Pipe::start(io::stderr(), |_| {});
    let lines = pipe.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(move || lines.line());
    // Only the first caller in a process sets it.
    let _ = subscriber.try_init();
    pipe
}
