//! Reads counters that are not in memory, by threads of their own: a worker never waits for the
//! disk.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tollgate_clock::Throttle;

use super::{
    Disk, OpenFolder,
    record::{KEY_BYTES, Record},
    tree::TreeError,
};
use crate::Unanswered;

/// Threads that read.
pub(super) const READERS: usize = 4;

/// Counters that wait to be read, of all workers.
const MAX_WAITING: usize = 4096;

/// How often it is logged that counters cannot be read.
const LOG_PAUSE: std::time::Duration = std::time::Duration::from_secs(60);

type Answer = Result<Option<Record>, Unanswered>;

/// A counter that is to be read.
struct ReadRequest {
    key: [u8; KEY_BYTES],
    answer: oneshot::Sender<Answer>,
}

/// Asks the threads that read.
pub(super) struct Reads {
    wanted: Mutex<Option<SyncSender<ReadRequest>>>,
    waiting: Arc<Mutex<Receiver<ReadRequest>>>,
    logged: Throttle,
}

impl Reads {
    pub(super) fn new() -> Reads {
        let (wanted, waiting) = sync_channel(MAX_WAITING);
        Reads {
            wanted: Mutex::new(Some(wanted)),
            waiting: Arc::new(Mutex::new(waiting)),
            logged: Throttle::new(LOG_PAUSE),
        }
    }

    /// Requests the read of a counter.
    ///
    /// # Errors
    /// Too many wait, or the threads have ended.
    pub(super) fn ask(
        &self,
        key: [u8; KEY_BYTES],
    ) -> Result<oneshot::Receiver<Answer>, Unanswered> {
        let (answer, answered) = oneshot::channel();
        let wanted = self.wanted.lock();
        let wanted = wanted.as_ref().ok_or(Unanswered::Away)?;
        match wanted.try_send(ReadRequest { key, answer }) {
            Ok(()) => Ok(answered),
            Err(TrySendError::Full(_)) => Err(Unanswered::Busy),
            Err(TrySendError::Disconnected(_)) => Err(Unanswered::Away),
        }
    }

    /// Ends the threads.
    pub(super) fn end(&self) {
        self.wanted.lock().take();
    }
}

/// Reads until there is nothing more to be asked.
pub(super) fn run(disk: &Disk) {
    loop {
        let next = disk.reads.waiting.lock().recv();
        let Ok(ReadRequest { key, answer }) = next else { return };
        // A request that has ended meanwhile needs no answer.
        if !answer.is_closed() {
            let opened = disk.opened.load_full();
            let _ = answer.send(read(disk, opened.as_deref(), &key));
        }
    }
}

fn read(disk: &Disk, opened: Option<&OpenFolder>, key: &[u8; KEY_BYTES]) -> Answer {
    let opened = opened.ok_or(Unanswered::Away)?;
    opened.tree.get(key).map_err(|error| {
        if disk.reads.logged.take(disk.now()) {
            report(&error, opened);
        }
        Unanswered::DiskRead
    })
}

fn report(error: &TreeError, opened: &OpenFolder) {
    let folder = opened.folder.tables();
    let advice = "`tollgate store check` says which files are damaged";
    tracing::error!(
        folder = %folder.display(), %error, advice,
        "a counter cannot be read from disk: its limit does as `on_store_error` says"
    );
}
