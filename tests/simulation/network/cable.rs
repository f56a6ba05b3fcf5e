//! A connection, and whether all calls on it were answered.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::{io::DuplexStream, sync::Notify};

use super::Link;

/// The server's end of a connection.
pub(crate) struct Accepted {
    pub(crate) stream: DuplexStream,
    pub(crate) cable: Arc<Cable>,
}

/// A connection.
pub(crate) struct Cable {
    link: Link,
    cut: Notify,
    traffic: Mutex<Traffic>,
}

/// Bytes of commands that were sent and executed, and of replies that were made and delivered.
#[derive(Debug, Default)]
struct Traffic {
    sent: usize,
    executed: usize,
    replied: usize,
    delivered: usize,
    /// Whether the next reply is lost, and the connection with it.
    loses_reply: bool,
}

impl Cable {
    pub(super) fn new(link: Link) -> Cable {
        Cable { link, cut: Notify::new(), traffic: Mutex::default() }
    }

    pub(super) fn link(&self) -> Link {
        self.link
    }

    /// The proxy that has it.
    pub(crate) fn proxy(&self) -> usize {
        self.link.0
    }

    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    pub(super) async fn until_cut(&self) {
        self.cut.notified().await;
    }

    /// Lets the next reply be lost.
    pub(super) fn lose_reply(&self) {
        self.traffic().loses_reply = true;
    }

    pub(super) fn loses_reply(&self) -> bool {
        self.traffic().loses_reply
    }

    /// The proxy has sent so many bytes.
    pub(super) fn note_sent(&self, bytes: usize) {
        self.traffic().sent += bytes;
    }

    /// The server has executed so many bytes of commands, and replied with so many.
    pub(crate) fn note_executed(&self, commands: usize, replies: usize) {
        let mut traffic = self.traffic();
        traffic.executed += commands;
        traffic.replied += replies;
    }

    /// So many bytes of replies have arrived.
    pub(super) fn note_delivered(&self, bytes: usize) {
        self.traffic().delivered += bytes;
    }

    /// Whether a call on it has no reply yet.
    pub(super) fn has_open_calls(&self) -> bool {
        let traffic = self.traffic();
        traffic.sent != traffic.executed || traffic.replied != traffic.delivered
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap()
    }
}
