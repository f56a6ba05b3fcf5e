//! `tollgate run`: read the configuration, listen, serve, drain.

mod signals;
mod upkeep;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use self::{signals::Signals, upkeep::Upkeep};
use super::Failure;
use crate::{
    access_log::AccessLog,
    admin::Phase,
    clock::Clock,
    gate::Shared,
    pipe::Pipe,
    policy::Sources,
    reload::{Origin, announce},
    server::{Server, Stopped},
    settings::Configuration,
    store::Keeper,
};

/// Serve
///
/// Reads the settings and the policies that they name, listens, and forwards until SIGTERM or
/// SIGINT. Then it stops accepting, finishes what is in flight, and exits with 0. Policies and the
/// files that they name are read anew when they change, and on SIGHUP.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The settings file
    #[arg(long, value_name = "FILE", default_value = "config/tollgate.yaml")]
    config: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let events = log_to_stderr();
    let (file, sources) = (arguments.config.clone(), Sources::system());
    let recording = sources.recording();
    let configuration = Configuration::read(&file, &recording)?;
    let (inputs, settings) = (recording.inputs(), configuration.settings.clone());
    let origin = Origin { file, sources, inputs, settings };
    let result = serve(configuration, Some(origin), |_| Ok(()));
    events.flush(LAST_WORDS);
    result
}

/// Serves what `configuration` describes until a signal, and follows the files that it came from if
/// it did; `ready` is called with the addresses once they are bound.
pub(super) fn serve(
    configuration: Configuration,
    origin: Option<Origin>,
    ready: impl FnOnce(&[SocketAddr]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let settings = &configuration.settings;
    let (workers, drain, admin) = (settings.workers, settings.drain, settings.admin);
    let listeners = settings.listeners.iter().map(|address| bind(*address));
    let listeners = listeners.collect::<anyhow::Result<Vec<_>>>()?;
    let addresses =
        listeners.iter().map(|listener| listener.local_addr()).collect::<io::Result<Vec<_>>>()?;
    let admin = admin.map(bind).transpose()?;
    announce(settings, &configuration.policies, Clock::System.now());
    let pipe = Pipe::start(io::stdout(), |lines| {
        tracing::warn!(lines, "access log lines were dropped: nobody reads them fast enough");
    });
    let access_log = settings.access_log.map(|format| AccessLog::new(format, pipe.clone()));
    let snapshot = settings.store.snapshot.clone();
    let shared = Arc::new(Shared::new(configuration, Clock::System).context("cannot start")?);
    let store = Arc::clone(&shared.stores.memory);
    let keeper = snapshot
        .map(|snapshot| Keeper::start(store, snapshot.file, snapshot.every, Clock::System))
        .transpose()?;
    let upkeep = Upkeep::start(&shared, origin, admin)?;
    let server = Server { shared, listeners, workers, access_log, drain };

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Stopped { cut } = runtime.block_on(async {
        // Signals are caught from here on: one that comes at once is not lost.
        let signals = Signals::catch(upkeep.reload())?;
        for address in &addresses {
            tracing::info!(%address, "listening");
        }
        upkeep.announce();
        ready(&addresses)?;
        let shutdown = async {
            signals.wait_for_the_end().await;
            upkeep.phase.set(Phase::Draining);
        };
        Ok::<_, Failure>(server.run(shutdown).await?)
    })?;
    // First what must not be lost: what follows files may take its time to end.
    if let Some(keeper) = keeper {
        keeper.finish();
    }
    drop(upkeep);
    tracing::info!(cut, "stopped");
    // What was logged is written before the process ends, if anybody reads it.
    pipe.flush(LAST_WORDS);
    Ok(())
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    Server::bind(address).with_context(|| format!("cannot listen on {address}"))
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
