//! Which servers there are, and how they share the counters.

use crate::{chance::Chance, proxy::url_of};

/// The servers of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One server.
    Single,
    /// Two shards, each a primary and a replica: 0 and 1, 2 and 3.
    Sharded,
    /// A Redis Cluster of three such pairs.
    Cluster,
    /// Two servers: callers are moved from the first one to the second.
    Moving,
}

impl Layout {
    pub(crate) fn choose(chance: &mut Chance) -> Layout {
        // A cluster takes as long as four others.
        match chance.below(5) {
            0 | 1 => Layout::Single,
            2 | 3 => Layout::Sharded,
            _ => Layout::Cluster,
        }
    }

    pub(crate) fn servers(self) -> usize {
        match self {
            Layout::Single => 1,
            Layout::Moving => 2,
            Layout::Sharded => 4,
            Layout::Cluster => 6,
        }
    }

    /// Replicas at first, with their primaries.
    pub(crate) fn replicas(self) -> impl Iterator<Item = (usize, usize)> {
        let has_pairs = matches!(self, Layout::Sharded | Layout::Cluster);
        let replicas = (0..self.servers()).filter(move |number| has_pairs && number % 2 == 1);
        replicas.map(|number| (number, number - 1))
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Single => "single",
            Layout::Sharded => "sharded",
            Layout::Cluster => "cluster",
            Layout::Moving => "moving",
        }
    }

    /// Where the proxies' settings say that counters are.
    pub(crate) fn settings(self) -> String {
        let shard = |name: &str, primary: usize| {
            let (primary, replica) = (url_of(primary), url_of(primary + 1));
            format!("{{ name: {name}, primary: '{primary}', replicas: ['{replica}'] }}")
        };
        match self {
            Layout::Single => format!("redis: {{ url: '{}' }}", url_of(0)),
            Layout::Cluster => format!("redis: {{ cluster: ['{}', '{}'] }}", url_of(0), url_of(3)),
            Layout::Sharded => {
                format!("redis: {{ shards: [{}, {}] }}", shard("a", 0), shard("b", 2))
            }
            Layout::Moving => {
                let [current, next] =
                    [0, 1].map(|at| format!("{{ redis: {{ url: '{}' }} }}", url_of(at)));
                format!("current: {current}, next: {next}, percent: 0, mode: mirror")
            }
        }
    }
}
