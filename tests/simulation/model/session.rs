//! A client's connection, as a server knows it.

use super::{
    command_reader::{BadCommand, CommandReader},
    reply::{Protocol, Reply},
};

/// A connection. It ends with the process of its server: who restarts that drops its sessions.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) id: i64,
    pub(super) protocol: Protocol,
    /// Whether the next command may be on a slot that is being moved here.
    pub(super) is_asking: bool,
    /// Whether a replica of a cluster answers reads.
    pub(super) reads_replica: bool,
    input: CommandReader,
}

impl Session {
    pub(super) fn new(id: i64) -> Session {
        Session {
            id,
            protocol: Protocol::Resp2,
            is_asking: false,
            reads_replica: false,
            input: CommandReader::default(),
        }
    }

    /// Takes bytes of the client, and returns the commands that are whole now.
    ///
    /// # Errors
    /// The client must be disconnected.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, BadCommand> {
        self.input.feed(bytes)
    }

    /// The bytes of a reply.
    pub(crate) fn encode(&self, reply: &Reply) -> Vec<u8> {
        reply.encode(self.protocol)
    }
}
