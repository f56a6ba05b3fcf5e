//! Reads the configuration anew while traffic flows: when a file of it has changed, or when a
//! signal or the admin listener asks for it. It is put in force as a whole or not at all.
//!
//! One thread does it all. It takes a hint from anywhere that something may have changed, looks at
//! every file that the configuration was made of, and waits until they stay as they are. Then all
//! of them are read, checked together, tested by the tests inside the policies, and put in force as
//! one; or nothing changes, and every problem is reported.

mod news;
mod orders;
mod places;
mod quiet;
mod state;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tollgate_clock::Timestamp;
use tollgate_gate::{Shared, Snapshot};
use tollgate_preview::{cases::verify, diff::diff};
use tollgate_settings::{Configuration, Settings};
use tollgate_yaml::{Inputs, Problem, Sources};

use self::{
    orders::{Order, PendingOrders, ReloadResult},
    quiet::{NextStep, Quiet},
    watch::Watch,
};

pub use self::{
    news::announce,
    state::{MAX_PROBLEMS, Refused, ReloadState, Report},
};

/// Where a running configuration came from.
pub struct Origin {
    /// The settings file.
    pub file: PathBuf,
    /// Where it, and all that it names, was read from.
    pub sources: Sources,
    /// What was read.
    pub inputs: Inputs,
    /// The settings that the process was started with.
    pub settings: Settings,
}

/// The thread that follows the configuration's files, until this is dropped.
pub struct Reload {
    handle: ReloadHandle,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// Asks for a reload.
#[derive(Clone)]
pub struct ReloadHandle {
    orders: Sender<Order>,
}

/// How long the thread may take to end. It may be stuck in a file system that does not answer, and
/// must not keep the process from ending.
const END_TIMEOUT: Duration = Duration::from_secs(2);

impl Reload {
    /// Follows the files that `shared` came from, and keeps `state` up to date.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        origin: Origin,
        shared: Arc<Shared>,
        state: Arc<ReloadState>,
    ) -> io::Result<Reload> {
        let (orders, inbox) = channel();
        let handle = ReloadHandle { orders: orders.clone() };
        let hint = Arc::new(AtomicBool::new(false));
        let watch = match origin.settings.reload.events {
            true => Watch::start(hint_once(orders, Arc::clone(&hint))),
            false => Watch::nothing(),
        };
        let mut reloader = Reloader { origin, shared, state, watch, hint, quiet: Quiet::default() };
        let (ending, ended) = channel();
        let thread = std::thread::Builder::new().name("reload".into()).spawn(move || {
            // Dropped however this ends.
            let _ending = ending;
            reloader.follow(&inbox);
        })?;
        Ok(Reload { handle, thread: Some(thread), ended })
    }

    /// Asks for reloads.
    pub fn handle(&self) -> ReloadHandle {
        self.handle.clone()
    }

    /// Ends the thread, and returns whether it ended within `timeout`. If not, it is left running.
    fn end(&mut self, timeout: Duration) -> bool {
        let _ = self.handle.orders.send(Order::Stop);
        let thread = self.thread.take();
        let has_ended = self.ended.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout);
        if let (Some(thread), true) = (thread, has_ended) {
            let _ = thread.join();
        }
        has_ended
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        if !self.end(END_TIMEOUT) {
            tracing::warn!("a file of the configuration cannot be read to its end");
        }
    }
}

impl ReloadHandle {
    /// Has everything read now, changed or not. The outcome is logged.
    pub fn order(&self) {
        let _ = self.orders.send(Order::Read);
    }

    /// Has everything read now, changed or not, if the answer is still awaited then. It is the
    /// generation that is in force, or why the old one still is; there is none if the process is
    /// about to end. All who ask before the reading begins get the same answer.
    pub fn read(&self) -> oneshot::Receiver<Result<u64, Refused>> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.orders.send(Order::Answer(answer));
        receiver
    }
}

/// Sends one hint until it is taken, however often it is called.
fn hint_once(orders: Sender<Order>, hint: Arc<AtomicBool>) -> impl Fn() + Send + 'static {
    move || {
        if !hint.swap(true, Ordering::AcqRel) {
            let _ = orders.send(Order::Check);
        }
    }
}

struct Reloader {
    /// With the inputs of the latest attempt, good or bad.
    origin: Origin,
    shared: Arc<Shared>,
    state: Arc<ReloadState>,
    watch: Watch,
    /// Whether a hint is on its way.
    hint: Arc<AtomicBool>,
    quiet: Quiet,
}

/// A configuration that was put in force.
struct Installed {
    generation: u64,
    now: Timestamp,
    settings: Settings,
    /// What was in force before.
    replaced: Arc<Snapshot>,
}

/// How long after a hint the files are checked at: changes come in bunches.
const HINT_PAUSE: Duration = Duration::from_millis(10);

/// How often all is read again because it changed while it was read.
const MAX_READS: usize = 5;

impl Reloader {
    fn follow(&mut self, inbox: &Receiver<Order>) {
        let poll = self.origin.settings.reload.poll;
        let quiet = self.origin.settings.reload.quiet;
        self.watch.follow(&self.origin.inputs);
        // Something may have changed between reading and watching.
        let mut next = Instant::now();
        let mut checked = next;
        loop {
            let due = next.saturating_duration_since(Instant::now());
            let orders = match inbox.recv_timeout(due) {
                Ok(order) => PendingOrders::take(order, inbox),
                Err(RecvTimeoutError::Timeout) => {
                    self.check();
                    checked = Instant::now();
                    next = checked + if self.quiet.is_waiting() { quiet } else { poll };
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if orders.to_stop {
                return;
            }
            if orders.to_check {
                self.hint.store(false, Ordering::Release);
                // Checks are a quiet period apart, whatever else goes on in these folders.
                next = next.min((checked + quiet).max(Instant::now() + HINT_PAUSE));
            }
            if orders.to_read() {
                self.quiet.reset();
                orders.answer(&self.reload());
            }
        }
    }

    /// Checks all files, and reads them if they have changed and stay so.
    fn check(&mut self) {
        self.watch.follow(&self.origin.inputs);
        let now = self.origin.inputs.read_again();
        if self.quiet.next_step(&self.origin.inputs, now) == NextStep::Read {
            let _ = self.reload();
        }
    }

    /// Reads everything, and puts it in force if all of it is good and the tests of policies pass.
    fn reload(&mut self) -> ReloadResult {
        // A panic is a mistake of ours, and no reason never to reload again.
        let installed = catch_unwind(AssertUnwindSafe(|| {
            let configuration = self.read()?;
            verify(&self.origin.file, &configuration)?;
            Ok(self.install(configuration))
        }));
        let installed = installed.unwrap_or_else(|_| {
            self.origin.inputs = self.origin.inputs.read_again();
            Err(vec![self.problem("internal error while reading or testing the configuration", "")])
        });
        match installed {
            Ok(installed) => {
                // It is in force, even if logging the changes panics.
                let logged = catch_unwind(AssertUnwindSafe(|| self.log_changes(&installed)));
                if logged.is_err() {
                    tracing::error!("the changes of a reload could not be logged");
                }
                Ok(installed.generation)
            }
            Err(problems) => Err(self.refuse(&problems)),
        }
    }

    /// Reads until what was read is still there: a set of files that is replaced by another must
    /// not be read half and half.
    fn read(&mut self) -> Result<Configuration, Vec<Problem>> {
        for _ in 0..MAX_READS {
            let sources = self.origin.sources.recording();
            let read = Configuration::read(&self.origin.file, &sources);
            self.origin.inputs = sources.inputs();
            self.watch.follow(&self.origin.inputs);
            if self.origin.inputs.read_again() == self.origin.inputs {
                return read;
            }
        }
        // The next check sees a change, even if the files are then what they were just now.
        self.origin.inputs = std::mem::take(&mut self.origin.inputs).torn();
        Err(vec![self.problem("the files keep changing while they are read", "let them rest")])
    }

    fn install(&self, configuration: Configuration) -> Installed {
        let Configuration { settings, policies } = configuration;
        self.move_callers(&settings);
        if self.origin.settings.store.renew_access(&settings.store) {
            tracing::info!("new connections to redis use other credentials from now on");
        }
        for listener in settings.renew_tokens(&self.origin.settings) {
            tracing::info!(%listener, "other tokens are good from now on");
        }
        for (listener, renewed) in settings.renew_certificates(&self.origin.settings) {
            if renewed.certificates {
                tracing::info!(%listener, "new connections get other certificates from now on");
            }
            if renewed.clients {
                tracing::info!(%listener, "certificates of clients are checked anew from now on");
            }
        }
        let needs_restart = settings.needing_restart(&self.origin.settings);
        if !needs_restart.is_empty() && needs_restart != self.state.report().needs_restart {
            tracing::warn!(sections = needs_restart.join(", "), "needs a restart");
        }
        let digest = self.origin.inputs.policies_digest();
        let now = self.shared.clock.now();
        let replaced = self.shared.install(policies);
        let generation = self.state.note_done(now, digest, needs_restart);
        Installed { generation, now, settings, replaced }
    }

    /// Logs what has changed, with the warnings and overrides of the new configuration.
    fn log_changes(&self, installed: &Installed) {
        let Installed { generation, now, settings, replaced } = installed;
        let snapshot = self.shared.snapshot();
        diff(&replaced.policies, &snapshot.policies).log();
        announce(settings, &snapshot.policies, *now);
        tracing::info!(generation, "configuration reloaded");
    }

    /// A problem of the configuration as a whole.
    fn problem(&self, message: &str, help: &str) -> Problem {
        Problem::whole_file(&self.origin.file.display().to_string(), message, help)
    }

    fn refuse(&self, problems: &[Problem]) -> Refused {
        for problem in problems.iter().take(MAX_PROBLEMS) {
            let place = problem.place();
            tracing::error!(%place, problem = problem.message(), help = problem.help(), "bad configuration");
        }
        let refused = self.state.note_refused(self.shared.clock.now(), problems);
        tracing::error!(
            problems = problems.len(),
            generation = self.state.report().generation,
            "configuration not reloaded: what was in force stays"
        );
        refused
    }

    /// Changes how many callers move to the next store, and how; the store itself stays the same.
    fn move_callers(&self, settings: &Settings) {
        let running = &self.origin.settings.store.next;
        let wanted = &settings.store.next;
        let (Some(running), Some(wanted)) = (running, wanted) else { return };
        let plan = (wanted.percent, wanted.mode);
        let moving = &self.shared.stores.moving;
        if running.to == wanted.to
            && moving.plan() != Some(plan)
            && moving.set(wanted.percent, wanted.mode)
        {
            tracing::info!(
                percent = wanted.percent,
                mode = ?wanted.mode,
                "callers move to the next store"
            );
        }
    }
}
