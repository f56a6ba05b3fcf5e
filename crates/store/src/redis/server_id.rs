//! The identity of the server that a connection leads to: another server than before may not have
//! the same counters.
//!
//! The identity combines the process' run ID with its replication ID, which changes when the server
//! follows another server or is promoted (`INFO`, Redis 6.2). Where `INFO` is not permitted, an
//! identity is made up: each connection then counts as one to another server.

use std::hash::{DefaultHasher, Hash, Hasher};

use redis::{Value, aio::MultiplexedConnection};
use tokio::join;

use super::info::{field, info};

/// The bit that marks an identity as made up.
const MADE_UP: u64 = 1 << 63;

/// Whether the identity is made up, because the server has not reported one.
pub(crate) fn is_made_up(server: u64) -> bool {
    server & MADE_UP != 0
}

/// The identity of the server that a connection leads to. It is never zero.
pub(super) async fn server_id(connection: &MultiplexedConnection) -> u64 {
    let run_id = ask(connection.clone(), "server", "run_id");
    let history = ask(connection.clone(), "replication", "master_replid");
    let (run_id, history) = join!(run_id, history);
    match (run_id, history) {
        (Some(run_id), Some(history)) => {
            let mut hasher = DefaultHasher::new();
            (run_id, history).hash(&mut hasher);
            (hasher.finish() & !MADE_UP).max(1)
        }
        _ => {
            let mut bytes = [0; 8];
            // Without randomness, all made-up identities are the same.
            let _ = aws_lc_rs::rand::fill(&mut bytes);
            u64::from_le_bytes(bytes) | MADE_UP
        }
    }
}

/// The value of a field in a section of `INFO`.
async fn ask(mut connection: MultiplexedConnection, section: &str, name: &str) -> Option<String> {
    match connection.send_packed_command(&info(section)).await {
        Ok(Value::BulkString(text)) => find(std::str::from_utf8(&text).ok()?, name),
        Ok(Value::VerbatimString { text, .. }) => find(&text, name),
        _ => None,
    }
}

fn find(text: &str, name: &str) -> Option<String> {
    field(text, name).filter(|value| !value.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_found_in_info() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nempty:\r\n";
        assert_eq!(find(text, "run_id").as_deref(), Some("abc"));
        assert_eq!(find(text, "empty"), None);
        assert_eq!(find(text, "master_replid"), None);
    }
}
