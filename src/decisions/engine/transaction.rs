//! `MULTI`, `EXEC` and `DISCARD`, which clients put around a pipeline unless they are told not to.
//!
//! What comes between them is kept, and served at `EXEC` as if it came then: the replies of one
//! command after another are the elements of the array that `EXEC` replies with. If one could not
//! be kept, none is served. Commands of other connections may come between them.

use tollgate_wire::resp::{Arguments, Replies};

use super::{MAX_NAME, Session, described, lower, wrong_number};

/// Commands of a transaction, and their bytes.
const MAX_COMMANDS: usize = 1_000;
const MAX_BYTES: usize = 256 * 1024;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const TOO_LONG: &str = "ERR a transaction has at most 1000 commands and 262144 bytes";
const NO_WATCH: &str = "ERR WATCH is not supported: nothing tells here that a key has changed";

/// Commands that came after `MULTI`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands as they came.
    bytes: Vec<u8>,
    commands: usize,
    /// Whether one of them was refused.
    is_aborted: bool,
}

/// Whether a command is about transactions, or is one to be kept.
pub(super) fn is_for(session: &Session, arguments: &Arguments<'_>) -> bool {
    let mut lowered = [0; MAX_NAME];
    match lower(arguments.at(0).unwrap_or_default(), &mut lowered) {
        b"multi" | b"exec" | b"discard" | b"watch" | b"unwatch" => true,
        b"quit" | b"reset" => false,
        _ => session.transaction.is_some(),
    }
}

/// Replies to such a command, which came as these bytes.
pub(super) fn reply(
    session: &mut Session,
    arguments: &Arguments<'_>,
    bytes: &[u8],
    replies: &mut Replies,
) {
    let mut lowered = [0; MAX_NAME];
    let name = lower(arguments.at(0).unwrap_or_default(), &mut lowered);
    if let (b"multi" | b"exec" | b"discard", 2..) = (name, arguments.len()) {
        if let Some(open) = &mut session.transaction {
            open.is_aborted = true;
        }
        return wrong_number(arguments, replies);
    }
    match (name, &mut session.transaction) {
        (b"multi", None) => {
            session.transaction = Some(Transaction::default());
            replies.simple("OK");
        }
        (b"exec", Some(_)) => execute(session, replies),
        (b"discard", Some(_)) => {
            session.transaction = None;
            replies.simple("OK");
        }
        (b"exec", None) => replies.error("ERR EXEC without MULTI"),
        (b"discard", None) => replies.error("ERR DISCARD without MULTI"),
        (b"unwatch", None) => replies.simple("OK"),
        (b"watch", None) => replies.error(NO_WATCH),
        (_, Some(open)) => open.keep(name, arguments, bytes, replies),
        (_, None) => {}
    }
}

/// Begins the reply to `EXEC`; the commands of the transaction go on with it.
fn execute(session: &mut Session, replies: &mut Replies) {
    let Some(transaction) = session.transaction.take() else { return };
    if transaction.is_aborted {
        return replies.error(ABORTED);
    }
    replies.array(transaction.commands);
    session.begun = transaction.bytes;
}

impl Transaction {
    /// Keeps a command, or refuses it and with it the transaction.
    fn keep(
        &mut self,
        name: &[u8],
        arguments: &Arguments<'_>,
        bytes: &[u8],
        replies: &mut Replies,
    ) {
        let has_room = self.commands < MAX_COMMANDS && self.bytes.len() + bytes.len() <= MAX_BYTES;
        let is_kept = match name {
            b"multi" => refuse("ERR MULTI calls can not be nested", replies),
            b"watch" => refuse("ERR WATCH inside MULTI is not allowed", replies),
            _ if !has_room => refuse(TOO_LONG, replies),
            _ => described::is_well_formed(arguments, replies),
        };
        if !is_kept {
            // Nothing of it will be served.
            *self = Transaction { is_aborted: true, ..Transaction::default() };
        } else {
            replies.simple("QUEUED");
            if !self.is_aborted {
                self.bytes.extend_from_slice(bytes);
                self.commands += 1;
            }
        }
    }
}

/// False, with this reply.
fn refuse(error: &str, replies: &mut Replies) -> bool {
    replies.error(error);
    false
}
