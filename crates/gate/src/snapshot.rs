//! What requests read of the configuration. It is built whole and swapped in whole: no request sees
//! half of a reload.

use tollgate_identity::{KeyRing, PublishedKeys};
use tollgate_policy::{Policies, UpstreamPosition};
use tollgate_upstream::{Destination, Keeper, UpstreamGroups};

/// The policies in force, and what a running proxy keeps for them.
#[derive(Default)]
pub struct Snapshot {
    /// Which installation this is: 1 at the start; 0: nothing was installed yet.
    pub(super) generation: u64,
    /// The policies.
    pub policies: Policies,
    /// The keys that their issuers publish.
    pub keys: PublishedKeys,
    /// The servers of their upstreams.
    pub groups: UpstreamGroups,
}

impl Snapshot {
    /// Has the keys of the policies' issuers fetched, and finds the servers of their upstreams.
    /// Without a keeper nothing is forwarded.
    pub(super) fn new(
        generation: u64,
        policies: Policies,
        ring: &KeyRing,
        keeper: Option<&Keeper>,
    ) -> Snapshot {
        let keys = PublishedKeys::adopt(policies.issuers(), ring);
        let groups = keeper.map(|keeper| keeper.adopt(&policies)).unwrap_or_default();
        Snapshot { generation, policies, keys, groups }
    }

    /// The upstream at this position, and its servers.
    pub(super) fn destination_at(&self, position: UpstreamPosition) -> Option<Destination<'_>> {
        self.groups.destination(self.policies.upstream_at(position)?)
    }
}
