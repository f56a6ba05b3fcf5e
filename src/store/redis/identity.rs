//! Which server a connection leads to: another one than before may not have what that had.
//!
//! A process is told by its run id, and what it holds by its replication id, which changes when it
//! follows another server or takes its place (`INFO`, Redis 6.2). A server that does not let us ask
//! has no name: each connection to it counts as one to another server.

use std::hash::{DefaultHasher, Hash, Hasher};

use redis::{Value, aio::MultiplexedConnection};
use tokio::join;

/// The part of a name that tells that it was made up.
const UNNAMED: u64 = 1 << 63;

/// Whether a server has not told who it is.
pub(in crate::store) fn is_unnamed(server: u64) -> bool {
    server & UNNAMED != 0
}

/// The name of the server that a connection leads to. It is never zero.
pub(super) async fn name(connection: &MultiplexedConnection) -> u64 {
    let run_id = ask(connection.clone(), "server", "run_id:");
    let history = ask(connection.clone(), "replication", "master_replid:");
    let (run_id, history) = join!(run_id, history);
    match (run_id, history) {
        (Some(run_id), Some(history)) => {
            let mut hasher = DefaultHasher::new();
            (run_id, history).hash(&mut hasher);
            (hasher.finish() & !UNNAMED).max(1)
        }
        _ => {
            let mut bytes = [0; 8];
            // Without randomness, servers without names are one.
            let _ = aws_lc_rs::rand::fill(&mut bytes);
            u64::from_le_bytes(bytes) | UNNAMED
        }
    }
}

/// What a server says of itself under this name.
async fn ask(mut connection: MultiplexedConnection, section: &str, name: &str) -> Option<String> {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    match connection.send_packed_command(&command).await {
        Ok(Value::BulkString(text)) => find(std::str::from_utf8(&text).ok()?, name),
        Ok(Value::VerbatimString { text, .. }) => find(&text, name),
        _ => None,
    }
}

fn find(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_found_among_what_a_server_says() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nempty:\r\n";
        assert_eq!(find(text, "run_id:").as_deref(), Some("abc"));
        assert_eq!(find(text, "empty:"), None);
        assert_eq!(find(text, "master_replid:"), None);
    }
}
