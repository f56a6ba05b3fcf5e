//! Keeps the secret under which keys are hashed, by a thread that lives only as long as that takes:
//! it comes seldom, and must wait neither for other syncs nor for tables.

use std::{sync::Arc, thread};

use parking_lot::Mutex;

use super::OpenFolder;

/// The secret that is to be kept.
#[derive(Default)]
pub(super) struct WantedSecret(Mutex<Wanted>);

#[derive(Default)]
struct Wanted {
    secret: Option<[u8; 16]>,
    /// Whether a thread writes, and looks for a later one before it ends.
    has_writer: bool,
}

impl WantedSecret {
    /// Has a secret kept in this folder. Returns the thread that does so, if there was none.
    pub(super) fn keep(
        wanted: &Arc<WantedSecret>,
        secret: [u8; 16],
        opened: Arc<OpenFolder>,
    ) -> Option<thread::JoinHandle<()>> {
        let mut own = wanted.0.lock();
        own.secret = Some(secret);
        if std::mem::replace(&mut own.has_writer, true) {
            return None;
        }
        let of = Arc::clone(wanted);
        let write = move || {
            while let Some(secret) = of.next() {
                if let Err(error) = opened.folder.keep_secret(secret) {
                    tracing::error!(%error, "the key secret was not written to disk");
                }
            }
        };
        let begun = thread::Builder::new().name("disk-secret".to_owned()).spawn(write);
        own.has_writer = begun.is_ok();
        begun.inspect_err(|error| tracing::error!(%error, "the key secret is not written")).ok()
    }

    /// The next secret to be written; none: the thread ends.
    fn next(&self) -> Option<[u8; 16]> {
        let mut own = self.0.lock();
        let secret = own.secret.take();
        own.has_writer = secret.is_some();
        secret
    }
}
