//! Waiting in place for threads of a disk: they have the time of the system, and meanwhile nothing
//! else happens in the simulation.

use std::{
    fs,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::task::unconstrained;
use tollgate_store::Disk;
use tollgate_unreliable::Drive;

/// How long threads may take for something. A busy machine may let them wait, and nothing is in a
/// hurry.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// How often a thread is looked at that says nothing.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// Where the file `journals` has the numbers of the first journal and of that behind the last.
const NUMBERS: [usize; 2] = [21, 29];

/// Returns when threads have done what they do after a start, and do nothing more by themselves
/// that changes what is synced.
pub(super) fn settle(drive: &Drive) {
    let begun = Instant::now();
    while !has_settled(drive) {
        assert!(begun.elapsed() < PATIENCE, "{} never settles", drive.folder().display());
        thread::park_timeout(LOOK / 4);
    }
    // Until the keeper has heard of the journal that was made last.
    thread::park_timeout(LOOK);
}

/// Whether there are the journal that is written and the next one, and none before them.
fn has_settled(drive: &Drive) -> bool {
    let file = fs::read(drive.folder().join("journals")).unwrap_or_default();
    let number = |at: usize| Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let [Some(first), Some(next)] = NUMBERS.map(number) else { return false };
    let Ok(entries) = fs::read_dir(drive.folder()) else { return false };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<u64> =
        names.filter_map(|name| name.strip_prefix("journal-")?.parse().ok()).collect();
    ids.sort_unstable();
    next == first + 2 && ids == [first, first + 1]
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits in place for what a thread of the disk does. Only what cannot come before its deadline is
/// waited for in simulated time: that all is written, while nothing can be.
pub(super) async fn wait<T>(future: impl Future<Output = T>, disk: &Disk) -> T {
    let was_failing = disk.is_failing();
    let mut future = pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let begun = Instant::now();
    loop {
        let waits_in_vain = disk.is_failing() && !was_failing;
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        if waits_in_vain {
            return future.await;
        }
        assert!(begun.elapsed() < PATIENCE, "a thread of the disk does not answer");
        thread::park_timeout(LOOK);
    }
}
