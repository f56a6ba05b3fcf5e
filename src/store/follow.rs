//! Follows the settings file while callers are moved to another store: how many, and whether in
//! earnest, changes when the file does.
//!
//! The file is read anew every second. That sees every way of changing a file, on every filesystem,
//! and a second is soon enough for what somebody does by hand.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::Stores;
use crate::{
    policy::Sources,
    settings::{MoveMode, read_moving},
    yaml::Problem,
};

const PAUSE: Duration = Duration::from_secs(1);

/// A thread that follows a settings file, until it is dropped.
pub struct Follow {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follow {
    /// Follows `file`, whose plan `stores` has now.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(stores: Arc<Stores>, file: PathBuf) -> io::Result<Follow> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("follow".into()).spawn(move || {
            let mut last = Ok(stores.moving.plan());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PAUSE) {
                let read = read_moving(&file, &Sources::system());
                if read != last {
                    apply(&stores, &read);
                    last = read;
                }
            }
        })?;
        Ok(Follow { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Does as a file says; if it cannot be read, everything stays as it is.
fn apply(stores: &Stores, read: &Result<Option<(u8, MoveMode)>, Vec<Problem>>) {
    match read {
        Ok(Some((percent, mode))) => {
            stores.moving.set(*percent, *mode);
            tracing::info!(percent, ?mode, "callers move to the next store");
        }
        Ok(None) => tracing::warn!("the next store is gone from the settings: restart to end it"),
        Err(problems) => {
            for problem in problems {
                tracing::warn!(%problem, "settings cannot be read: callers stay where they are");
            }
        }
    }
}
