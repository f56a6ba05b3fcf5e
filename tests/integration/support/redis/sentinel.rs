//! Sentinels, which watch a primary and put its replica in its place.

use super::{Options, Redis, eventually};

/// Some sentinels that know each other, the primary and its replica.
pub(crate) struct Sentinels {
    all: Vec<Redis>,
}

impl Sentinels {
    /// What they call the primary.
    pub(crate) const SERVICE: &str = "main";

    /// Starts so many, and waits until each knows the others. The primary must have a replica.
    pub(crate) fn start(primary: &Redis, count: usize) -> Sentinels {
        let name = Sentinels::SERVICE;
        let port = primary.port();
        let quorum = count / 2 + 1;
        let options = Options::sentinel(&format!(
            "sentinel monitor {name} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {name} 1000\n\
             sentinel failover-timeout {name} 5000\n"
        ));
        let sentinels = Sentinels { all: Options::start_all(&vec![options; count]) };
        let knows_all = |one: &Redis| {
            let others = (count - 1).to_string();
            known(one, "num-slaves") == "1" && known(one, "num-other-sentinels") == others
        };
        eventually("the sentinels know each other", || {
            sentinels.all.iter().all(knows_all).then_some(())
        });
        sentinels
    }

    /// One that knows no other, and names this primary, by a configuration of this epoch.
    pub(crate) fn alone(primary: &Redis, epoch: u64) -> Sentinels {
        let name = Sentinels::SERVICE;
        let port = primary.port();
        let options = Options::sentinel(&format!(
            "sentinel monitor {name} 127.0.0.1 {port} 1\nsentinel config-epoch {name} {epoch}\n"
        ));
        Sentinels { all: vec![options.start()] }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.all.iter().map(Redis::url).collect()
    }

    /// The port of the primary that they name.
    pub(crate) fn primary_port(&self) -> u16 {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::SERVICE];
        let (_, port): (String, u16) = self.all[0].ask(&words);
        port
    }

    /// Has them change the primary for its replica, though nothing is wrong.
    pub(crate) fn fail_over(&self) {
        // They refuse until they know enough of the replica.
        let words = ["SENTINEL", "FAILOVER", Sentinels::SERVICE];
        eventually("the sentinels obey", || self.all[0].try_ask::<()>(&words).ok());
    }

    /// Waits until they name another primary than this one, and returns its port.
    pub(crate) fn wait_for_failover(&self, from: u16) -> u16 {
        eventually("the sentinels name another primary", || {
            Some(self.primary_port()).filter(|port| *port != from)
        })
    }
}

/// What a sentinel knows of the primary under this name.
fn known(sentinel: &Redis, field: &str) -> String {
    let fields: Vec<String> = sentinel.ask(&["SENTINEL", "MASTER", Sentinels::SERVICE]);
    let place = fields.iter().position(|name| name == field).expect("a sentinel knows it");
    fields[place + 1].clone()
}
