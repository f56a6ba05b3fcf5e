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
            Layout::Sharded => 4,
            Layout::Cluster => 6,
        }
    }

    /// Replicas at first, with their primaries.
    pub(crate) fn replicas(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.servers()).filter(|number| number % 2 == 1).map(|number| (number, number - 1))
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Single => "single",
            Layout::Sharded => "sharded",
            Layout::Cluster => "cluster",
        }
    }

    /// The `redis` section of the proxies' settings.
    pub(crate) fn settings(self) -> String {
        let shard = |name: &str, primary: usize| {
            let (primary, replica) = (url_of(primary), url_of(primary + 1));
            format!("{{ name: {name}, primary: '{primary}', replicas: ['{replica}'] }}")
        };
        match self {
            Layout::Single => format!("{{ url: '{}' }}", url_of(0)),
            Layout::Cluster => format!("{{ cluster: ['{}', '{}'] }}", url_of(0), url_of(3)),
            Layout::Sharded => format!("{{ shards: [{}, {}] }}", shard("a", 0), shard("b", 2)),
        }
    }
}
