//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open besides connections: listeners, files, connections to stores.
const OTHERS: u64 = 256;

/// Raises the limit as far as the system lets this process, and warns if that is too little for so
/// many clients: each takes a socket, and its request another one to an upstream.
pub(super) fn raise(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(error) => {
            tracing::warn!(%error, "the limit on open files cannot be raised");
            limit.current
        }
    };
    let needed = needed(connections);
    if let Some(open_files) = current.filter(|current| *current < needed) {
        tracing::warn!(
            open_files,
            needed,
            connections,
            "too few open files for limits.connections: raise the limit (`ulimit -Hn`, \
             LimitNOFILE=, `ulimits: nofile`), or lower limits.connections"
        );
    }
}

fn needed(connections: usize) -> u64 {
    (connections as u64).saturating_mul(2).saturating_add(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_as_high_as_it_may_be() {
        raise(1000);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(needed(20_000), 40_256);
    }
}
