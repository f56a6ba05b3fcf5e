//! `tollgate run`: read the configuration, listen, serve, drain.

mod descriptors;
mod notify;
mod reports;
mod signals;
mod sockets;
mod upkeep;

use std::{
    cell::Cell,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use tollgate_clock::Clock;
use tollgate_gate::Shared;
use tollgate_observe::{
    access_log::AccessLog,
    events::{Events, log_to_stderr},
    pipe::Pipe,
};
use tollgate_preview::cases::verify;
use tollgate_settings::{
    Configuration, DecisionSettings, ListenAddress, SnapshotSettings, events_format,
};
use tollgate_store::{Disk, SaveHandle, SnapshotSaver, Stores};
use tollgate_yaml::Sources;

use self::{
    signals::{SignalStreams, Signals},
    sockets::{Sockets, Succession},
    upkeep::Upkeep,
};
use super::{Failure, settings_file::SettingsFile};
use crate::{
    admin::Phase,
    decisions::{Accounting, DecisionListener},
    reload::{Origin, announce},
    server::{
        Listener, Server, Stopped,
        handover::{Inherited, Predecessor},
    },
};

/// Serve
///
/// Reads the settings and the policies that they name, listens, and forwards until SIGTERM or
/// SIGINT. Then it stops accepting, finishes what is in flight, and exits with 0; a second signal
/// cuts that short. Policies and the files that they name are read anew when they change, and on
/// SIGHUP. Policies whose own tests fail are not served, unless the settings say
/// `reload: { tests: ignored }`.
///
/// With `handover` in the settings, a process that is started while another serves takes over its
/// sockets, and no request is lost. Sockets of a service manager (LISTEN_FDS) are used where the
/// settings name their addresses, and NOTIFY_SOCKET is notified when the proxy is ready.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: SettingsFile,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = arguments.settings.find()?;
    let sources = Sources::system();
    // Before everything else, which may have something to say.
    let events = log_to_stderr(events_format(&file, &sources));
    let inherited = Inherited::from_service_manager();
    let recording = sources.recording();
    let configuration = Configuration::read(&file, &recording)?;
    // A configuration that was in force passes again, because the tests depend on the files only.
    // So a proxy can always restart, and a policy that a reload has refused stays refused.
    verify(&file, &configuration)?;
    let inputs = recording.inputs();
    let settings = configuration.settings.clone();
    let origin = Origin { file, sources, inputs, settings };
    let result = serve(configuration, Some(origin), inherited, &events, |_| Ok(()));
    events.finish(FLUSH_TIMEOUT);
    result
}

/// The addresses that are served.
pub(super) struct Bound<'a> {
    pub(super) listeners: &'a [ListenAddress],
    pub(super) admin: Option<&'a ListenAddress>,
}

/// Serves what `configuration` describes until a signal, and follows the files that it came from if
/// it did, at sockets that were inherited or at its own; `ready` is called with the addresses once
/// they are bound.
pub(super) fn serve(
    configuration: Configuration,
    origin: Option<Origin>,
    inherited: Inherited,
    events: &Events,
    ready: impl FnOnce(Bound<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let settings = &configuration.settings;
    let workers = settings.workers;
    let drain = settings.drain;
    let delay = settings.drain_delay;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before the process can be noticed from outside, so that a signal that comes at once is not
    // lost.
    let caught = {
        let _inside = runtime.enter();
        SignalStreams::catch(origin.as_ref())?
    };
    descriptors::raise(settings.limits.connections);
    // Before the counters are read: the process that serves writes them when it is asked.
    let Sockets { listeners, admin, decisions, predecessor, succession } =
        Sockets::open(settings, inherited)?;
    let addresses = listeners.iter().map(Listener::address).collect::<io::Result<Vec<_>>>()?;
    announce(settings, &configuration.policies, Clock::System.now());
    let pipe = Pipe::start(io::stdout(), warn_of_dropped);
    let access_log = settings.access_log.map(|own| AccessLog::new(own, pipe.clone()));
    let snapshot = settings.store.snapshot.clone();
    let admin = admin.zip(settings.admin.clone());
    let askable = settings.decisions.redis.clone();
    let shared = Arc::new(Shared::new(configuration, Clock::System).context("cannot start")?);
    let keeper = snapshot.map(|snapshot| start_saving(&shared.stores, snapshot)).transpose()?;
    let mut upkeep = Upkeep::start(&shared, origin, admin, access_log.clone())?;
    let reported = Arc::clone(&shared);
    let describer = Arc::clone(&upkeep.describer);
    let commands_log = access_log.clone();
    let server = Server { shared, listeners, workers, access_log, drain };

    let draining = Cell::new(Instant::now());
    let mut asked = Vec::new();
    let Stopped { cut } = runtime.block_on(async {
        let signals = Signals::of(caught, upkeep.reload());
        let mut hurrying = signals.clone();
        for address in &addresses {
            tracing::info!(%address, "listening");
        }
        for (number, (listener, settings)) in decisions.into_iter().zip(&askable).enumerate() {
            let (shared, log) = (Arc::clone(&reported), commands_log.clone());
            let accounting = Accounting { worker: workers + number, shared, log };
            asked.push(open_for_programs(listener, settings, accounting)?);
        }
        upkeep.announce();
        ready(Bound { listeners: &addresses, admin: upkeep.admin_address() })?;
        let saving = Saving {
            snapshot: keeper.as_ref().map(SnapshotSaver::handle),
            disk: reported.stores.disk().cloned(),
        };
        let ending = Ending { signals, predecessor, succession, saving, delay };
        let shutdown = async {
            ending.begin(keeper.as_ref(), &mut upkeep).await;
            draining.set(Instant::now());
            asked.iter().for_each(DecisionListener::drain);
        };
        tokio::select! {
            stopped = server.run_until(shutdown, hurrying.hurry()) => Ok::<_, Failure>(stopped?),
            never = reports::keep_reporting(&reported, events, &describer) => match never {},
        }
    })?;
    let left = || drain.saturating_sub(draining.get().elapsed());
    let cut = cut + finish(asked, left());
    reports::report(&reported);
    // First the counters, which must not be lost: the thread that follows files may end slowly.
    keeper.into_iter().for_each(SnapshotSaver::finish);
    reported.stores.disk().into_iter().for_each(|disk| disk.finish());
    drop(upkeep);
    reported.tracer.iter().for_each(|tracer| tracer.finish(left().max(FLUSH_TIMEOUT)));
    tracing::info!(cut, "stopped");
    // What was logged is written before the process ends, if it is read in time.
    pipe.flush(FLUSH_TIMEOUT);
    Ok(())
}

/// Has the counters in memory written to a file from time to time.
fn start_saving(stores: &Stores, snapshot: SnapshotSettings) -> Result<SnapshotSaver, Failure> {
    let SnapshotSettings { file, every } = snapshot;
    let saver = SnapshotSaver::start(Arc::clone(&stores.memory), file, every, Clock::System)?;
    stores.save_by(saver.handle());
    Ok(saver)
}

fn warn_of_dropped(lines: u64) {
    // A target of its own: clients can cause this event again and again, unlike those of
    // `tollgate::cli`, which are all logged.
    const TARGET: &str = "tollgate::access_log";
    tracing::warn!(target: TARGET, lines, "lines were dropped: standard output is read too slowly");
}

/// Lets programs ask by Redis' protocol.
fn open_for_programs(
    listener: Listener,
    settings: &DecisionSettings,
    accounting: Accounting,
) -> Result<DecisionListener, Failure> {
    let listener = DecisionListener::start(listener.into_tcp()?, settings, accounting)?;
    let address = listener.address();
    tracing::info!(%address, protocol = "redis", "decisions listener is open");
    Ok(listener)
}

/// Ends the listeners at which others ask. Returns how many connections were cut.
fn finish(asked: Vec<DecisionListener>, time: Duration) -> usize {
    let end = Instant::now() + time;
    let left = || end.saturating_duration_since(Instant::now());
    asked.into_iter().map(|listener| listener.finish(left()).cut).sum()
}

/// What ends the service of this process.
struct Ending {
    signals: Signals,
    /// The process that serves so far, if this one takes over from it.
    predecessor: Option<Predecessor>,
    succession: Option<Succession>,
    saving: Saving,
    /// How long new requests are still taken after a signal.
    delay: Duration,
}

impl Ending {
    /// Takes over from the predecessor, and returns when this process is to drain: another one
    /// serves, or a signal came.
    async fn begin(self, keeper: Option<&SnapshotSaver>, upkeep: &mut Upkeep) {
        let Ending { mut signals, predecessor, succession, saving, delay } = self;
        // Workers are there by now.
        predecessor.into_iter().for_each(Predecessor::relieve);
        notify::ready();
        let is_relieved = tokio::select! {
            () = wait_for_successor(succession, &saving) => true,
            () = signals.end() => false,
        };
        if is_relieved {
            // The successor owns the snapshot file and the admin address by now: no admin client is
            // to get the status of this process, which drains.
            keeper.into_iter().for_each(SnapshotSaver::abandon);
            upkeep.hand_over();
        }
        upkeep.phase.set(Phase::Draining);
        if !is_relieved {
            notify::stopping();
            let _ = tokio::time::timeout(delay, signals.hurry()).await;
        }
    }
}

/// What another process needs before it can take over: the counters.
#[derive(Clone)]
struct Saving {
    snapshot: Option<SaveHandle>,
    disk: Option<Arc<Disk>>,
}

impl Saving {
    /// Writes the counters where the other process reads them. The folder of counters on disk is
    /// for one process at a time, so it is given up.
    fn hand_over(&self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.save();
        }
        if let Some(disk) = &self.disk {
            disk.release();
        }
    }

    /// Takes the folder back, if the other process has not started.
    fn resume(&self) {
        if let Some(disk) = &self.disk {
            disk.resume();
        }
    }
}

/// Returns when another process serves; never, if none can.
async fn wait_for_successor(succession: Option<Succession>, saving: &Saving) {
    let save = async || {
        let saving = saving.clone();
        let _ = tokio::task::spawn_blocking(move || saving.hand_over()).await;
    };
    let resume = async || {
        let saving = saving.clone();
        let _ = tokio::task::spawn_blocking(move || saving.resume()).await;
    };
    if let Some(succession) = succession {
        match succession.wait(save, resume).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%error, "no other process can take over"),
        }
    }
    std::future::pending().await
}

/// How long the process waits at its end for what was logged to be written.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
