//! Which servers there are, and how they share the counters.

use std::ops::Range;

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
    /// A primary and two replicas, and three Sentinels that name the primary.
    Sentinels,
}

/// The name by which Sentinels know the primary.
pub(crate) const SERVICE: &str = "main";

/// Of so many seeds, this one has Sentinels. It is a rule, so that what other seeds draw stays.
const SENTINELS: (u64, u64) = (7, 1);

impl Layout {
    pub(crate) const ALL: [Layout; 5] =
        [Layout::Single, Layout::Sharded, Layout::Cluster, Layout::Moving, Layout::Sentinels];

    /// By the seed. What it draws from `chance` is the same for all layouts.
    pub(crate) fn choose(seed: u64, chance: &mut Chance, later_chance: &mut Chance) -> Layout {
        let is_moving = later_chance.is_one_in(10);
        // A cluster takes as long as four others.
        match chance.below(5) {
            _ if seed % SENTINELS.0 == SENTINELS.1 => Layout::Sentinels,
            _ if is_moving => Layout::Moving,
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
            Layout::Sentinels => 3,
        }
    }

    /// The numbers of the machines with Sentinels.
    pub(crate) fn sentinels(self) -> Range<usize> {
        match self {
            Layout::Sentinels => self.servers()..self.servers() + 3,
            _ => 0..0,
        }
    }

    /// Replicas at first, with their primaries.
    pub(crate) fn replicas(self) -> impl Iterator<Item = (usize, usize)> {
        let primary_of = move |number: usize| match self {
            Layout::Sentinels => 0,
            Layout::Sharded | Layout::Cluster => number - number % 2,
            Layout::Single | Layout::Moving => number,
        };
        (0..self.servers())
            .map(move |number| (number, primary_of(number)))
            .filter(|(it, of)| it != of)
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Single => "single",
            Layout::Sharded => "sharded",
            Layout::Cluster => "cluster",
            Layout::Moving => "moving",
            Layout::Sentinels => "sentinels",
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
            Layout::Sentinels => {
                let sentinels: Vec<_> =
                    self.sentinels().map(|number| format!("'{}'", url_of(number))).collect();
                let sentinels = sentinels.join(", ");
                format!("redis: {{ service: {SERVICE}, sentinels: [{sentinels}] }}")
            }
        }
    }
}
