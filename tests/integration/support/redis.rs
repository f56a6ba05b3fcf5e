//! Real Redis servers on ports of their own. They end with their handles, and with the tests'
//! process if a handle is never dropped.

mod certificates;
mod cluster;
mod gremlin;
mod process;
mod reshard;
mod sentinel;
mod server;
mod shards;

use std::{
    thread,
    time::{Duration, Instant},
};

use self::server::Options;
pub(crate) use self::{
    certificates::Certificates, cluster::Cluster, gremlin::Gremlin, sentinel::Sentinels,
    server::Redis, shards::Shards,
};

/// How long servers may take for what is bound to happen. Many of them share a small machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until there is an answer, and fails the test when there is none in good time. For what
/// other processes do: they send no notice when they have done it.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    const PAUSE: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "it did not happen: {what}");
        #[expect(clippy::disallowed_methods, reason = "the one place that waits by asking again")]
        thread::sleep(PAUSE);
    }
}
