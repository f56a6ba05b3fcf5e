//! What is open about the routes of a limit.

use crate::{HostPattern, OpenParts, Policy};

/// What is open about the routes that list the limit at this position.
pub(super) fn open_parts(limit: usize, policy: &Policy) -> OpenParts {
    OpenParts { hosts: has_open_hosts(limit, policy), paths: has_open_path(limit, policy) }
}

/// Whether requests for any host, or any below a name, are charged.
fn has_open_hosts(limit: usize, policy: &Policy) -> bool {
    let mut charging = policy.routes.iter().zip(policy.router.matchers());
    charging.any(|(route, matcher)| {
        let hosts = if matcher.hosts.is_empty() { &policy.hosts } else { &matcher.hosts };
        let is_open = |host: &HostPattern| matches!(host, HostPattern::Below(_));
        route.limits.contains(&limit) && (hosts.is_empty() || hosts.iter().any(is_open))
    })
}

/// Whether a route takes more than one path.
fn has_open_path(limit: usize, policy: &Policy) -> bool {
    policy.routes.iter().any(|route| route.limits.contains(&limit) && !route.path.is_one_path())
}
