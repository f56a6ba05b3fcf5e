//! Where requests go: an upstream of a policy, and the servers that it has at the moment.
//!
//! A policy says what an upstream is and never changes. What is known about its servers is kept
//! beside the policies, and is found by the upstream's position among them.

use std::sync::Arc;

use tollgate_policy::Upstream;

use super::Group;

/// An upstream, and its servers as all workers see them.
#[derive(Clone, Copy)]
pub struct Destination<'s> {
    /// What the policy says.
    pub upstream: &'s Upstream,
    /// The servers.
    pub group: &'s Arc<Group>,
}

/// The groups of all upstreams of the policies in force. Empty: nothing is forwarded.
#[derive(Debug, Default)]
pub struct UpstreamGroups {
    /// By the positions of the policy and of the upstream.
    groups: Vec<Vec<Arc<Group>>>,
}

impl UpstreamGroups {
    pub(super) fn new(groups: Vec<Vec<Arc<Group>>>) -> UpstreamGroups {
        UpstreamGroups { groups }
    }

    /// Where requests to `upstream` go; none if nothing is forwarded.
    pub fn destination<'s>(&'s self, upstream: &'s Upstream) -> Option<Destination<'s>> {
        let position = upstream.position;
        let group = self.groups.get(position.policy)?.get(position.upstream)?;
        Some(Destination { upstream, group })
    }
}
