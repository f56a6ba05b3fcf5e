//! Reads the configuration anew while traffic flows: when a file of it has changed, when a signal or
//! the admin listener asks, and never by halves.
//!
//! One thread does it all. It takes a hint from anywhere that something may have changed, looks at
//! every file that the configuration was made of, and waits until they stay as they are. Then all of
//! them are read, checked together, and put in force as one; or nothing changes, and every problem
//! is told.

mod places;
mod quiet;
mod state;
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

use self::{
    quiet::{Quiet, Verdict},
    watch::Watch,
};
use crate::{
    gate::Shared,
    policy::{Inputs, Sources},
    settings::{Configuration, Settings},
    yaml::Problem,
};

pub use self::state::{MAX_PROBLEMS, Refused, ReloadState, Report};

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
}

/// Asks for a reload.
#[derive(Clone)]
pub struct ReloadHandle {
    orders: Sender<Order>,
}

enum Order {
    /// Something may have changed.
    Look,
    /// Read, whether or not anything has changed, and tell what came of it.
    Read(oneshot::Sender<Result<u64, Refused>>),
    Stop,
}

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
        let thread = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || reloader.follow(&inbox))?;
        Ok(Reload { handle, thread: Some(thread) })
    }

    /// Asks for reloads.
    pub fn handle(&self) -> ReloadHandle {
        self.handle.clone()
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        let _ = self.handle.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ReloadHandle {
    /// Has everything read now, changed or not. The answer is the generation that is in force then,
    /// or why the old one still is; there is none if the process is about to end.
    pub fn read(&self) -> oneshot::Receiver<Result<u64, Refused>> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.orders.send(Order::Read(answer));
        receiver
    }
}

/// Sends one hint until it is taken, however often it is called.
fn hint_once(orders: Sender<Order>, hint: Arc<AtomicBool>) -> impl Fn() + Send + 'static {
    move || {
        if !hint.swap(true, Ordering::AcqRel) {
            let _ = orders.send(Order::Look);
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

/// How long after a hint there is a look: changes come in bunches.
const HINT_PAUSE: Duration = Duration::from_millis(10);

/// How often all is read again because it changed while it was read.
const MAX_READS: usize = 5;

impl Reloader {
    fn follow(&mut self, inbox: &Receiver<Order>) {
        let (poll, quiet) = (self.origin.settings.reload.poll, self.origin.settings.reload.quiet);
        self.watch.follow(self.origin.inputs.paths());
        // Something may have changed between reading and watching.
        let mut next = Instant::now();
        let mut looked = next;
        loop {
            let due = next.saturating_duration_since(Instant::now());
            match inbox.recv_timeout(due) {
                Ok(Order::Read(answer)) => {
                    self.quiet.reset();
                    let _ = answer.send(self.reload());
                }
                Ok(Order::Look) => {
                    self.hint.store(false, Ordering::Release);
                    // Looks are a quiet period apart, whatever else goes on in these folders.
                    next = next.min((looked + quiet).max(Instant::now() + HINT_PAUSE));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    looked = Instant::now();
                    next = looked + if self.quiet.is_waiting() { quiet } else { poll };
                }
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at all files, and reads them if they have changed and stay so.
    fn look(&mut self) {
        self.watch.follow(self.origin.inputs.paths());
        let now = self.origin.inputs.look();
        if self.quiet.look(&self.origin.inputs, now) == Verdict::Read {
            let _ = self.reload();
        }
    }

    /// Reads everything, and puts it in force if all of it is good.
    fn reload(&mut self) -> Result<u64, Refused> {
        // A panic is a mistake of ours, and no reason never to reload again.
        let read = catch_unwind(AssertUnwindSafe(|| self.read())).unwrap_or_else(|_| {
            self.origin.inputs = self.origin.inputs.look();
            let file = self.origin.file.display().to_string();
            Err(vec![Problem::whole_file(&file, "reading it failed in a way that it must not", "")])
        });
        match read {
            Ok(configuration) => Ok(self.install(configuration)),
            Err(problems) => Err(self.refuse(&problems)),
        }
    }

    /// Reads until what was read is still there: a set of files that is replaced by another must not
    /// be read half and half.
    fn read(&mut self) -> Result<Configuration, Vec<Problem>> {
        let mut reads = 1;
        loop {
            let sources = self.origin.sources.recording();
            let read = Configuration::read(&self.origin.file, &sources);
            self.origin.inputs = sources.inputs();
            self.watch.follow(self.origin.inputs.paths());
            if reads == MAX_READS || self.origin.inputs.look() == self.origin.inputs {
                return read;
            }
            reads += 1;
        }
    }

    fn install(&self, configuration: Configuration) -> u64 {
        let Configuration { settings, policies } = configuration;
        self.move_callers(&settings);
        if self.origin.settings.store.renew_access(&settings.store) {
            tracing::info!("new connections to redis use other credentials from now on");
        }
        let needs_restart = settings.needing_restart(&self.origin.settings);
        if !needs_restart.is_empty() && needs_restart != self.state.report().needs_restart {
            tracing::warn!(sections = needs_restart.join(", "), "needs a restart");
        }
        self.shared.install(policies);
        let digest = self.origin.inputs.policies_digest();
        let now = self.shared.clock.now();
        let generation = self.state.note_done(now, digest, needs_restart);
        tracing::info!(generation, "configuration reloaded");
        generation
    }

    fn refuse(&self, problems: &[Problem]) -> Refused {
        for problem in problems.iter().take(MAX_PROBLEMS) {
            let place = match problem.line() {
                0 => problem.file().to_owned(),
                line => format!("{}:{line}:{}", problem.file(), problem.column()),
            };
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

    /// How many callers move to the next store, and how, changes at once; where that is does not.
    fn move_callers(&self, settings: &Settings) {
        let (running, wanted) = (&self.origin.settings.store.next, &settings.store.next);
        let (Some(running), Some(wanted)) = (running, wanted) else { return };
        let plan = (wanted.percent, wanted.mode);
        let moving = &self.shared.stores.moving;
        if running.to == wanted.to && moving.plan() != Some(plan) {
            moving.set(wanted.percent, wanted.mode);
            tracing::info!(
                percent = wanted.percent,
                mode = ?wanted.mode,
                "callers move to the next store"
            );
        }
    }
}
