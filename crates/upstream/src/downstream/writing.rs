//! How the writes to a client's socket go: the socket notes each, and the deadlines of the
//! connection and of its response read it.

use std::{cell::Cell, io, sync::Arc, task::Poll};

use super::CutOff;

/// Whether the client takes what is written to it.
#[derive(Debug, Default)]
pub struct Writing {
    is_blocked: Cell<bool>,
    writes: Cell<u64>,
    bytes: Cell<u64>,
    is_lingering: Cell<bool>,
    was_flooded: Cell<bool>,
    cut_off: Arc<CutOff>,
}

impl Writing {
    /// Set while the client takes nothing; another number for each time that it stopped.
    pub fn stalled(&self) -> Option<u64> {
        self.is_blocked.get().then(|| self.writes.get())
    }

    /// Bytes that it has taken so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether everything is written, and the client has a little time left to read it.
    pub fn is_lingering(&self) -> bool {
        self.is_lingering.get()
    }

    /// Set when the client sent too many frames that ask for nothing, or heads that grow too much.
    pub fn was_flooded(&self) -> bool {
        self.was_flooded.get()
    }

    /// A write to the socket came to this.
    pub fn note(&self, written: &Poll<io::Result<usize>>) {
        self.is_blocked.set(written.is_pending());
        if let Poll::Ready(written) = written {
            self.writes.set(self.writes.get().wrapping_add(1));
            let bytes = *written.as_ref().unwrap_or(&0) as u64;
            self.bytes.set(self.bytes.get().wrapping_add(bytes));
        }
    }

    /// Whether the socket takes no more bytes at present.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// How the response that it writes, and the connection with it, is broken off by others.
    pub fn cut_off(&self) -> &Arc<CutOff> {
        &self.cut_off
    }

    /// From here on the last bytes are sent, and the client is given time to read them.
    pub fn linger(&self) {
        self.is_lingering.set(true);
    }

    /// The connection ends because of what the client sent; `is_flood`: it sent too much.
    pub fn set_flooded(&self, is_flood: bool) {
        self.was_flooded.set(is_flood);
    }
}
