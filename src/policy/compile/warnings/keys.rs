//! Limits by what clients choose freely: a client with another value has another counter.

use crate::{
    policy::{HostPattern, KeyPart, Limit, Policy, compile::Compiler, file::RawPolicy},
    warning::Rule,
};

impl Compiler<'_> {
    pub(super) fn warn_of_free_keys(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (at, (limit, (_, raw))) in policy.limits.iter().zip(raw.limits.iter()).enumerate() {
            let Some(part) = free_part(limit, at, policy) else { continue };
            let message = format!(
                "clients choose `{part}` freely, and have another counter for each value of it"
            );
            let help = "add what is verified, such as `caller` or `client.ip`";
            self.warn(Rule::UnverifiedKey, raw.per.span, message, help);
        }
    }
}

/// The first part of a limit's key that clients choose freely, unless another part is verified.
fn free_part(limit: &Limit, at: usize, policy: &Policy) -> Option<String> {
    let mut free = None;
    for part in &limit.per.parts {
        let name = match part {
            KeyPart::Caller | KeyPart::ClientIp | KeyPart::Claim(_) => return None,
            KeyPart::Header(name) => format!("header.{name}"),
            KeyPart::Cookie(name) => format!("cookie.{name}"),
            KeyPart::Host if has_open_hosts(at, policy) => "host".to_owned(),
            KeyPart::Path if has_open_path(at, policy) => "path".to_owned(),
            // A parameter is the name of something, which such a limit protects. Methods are few.
            KeyPart::Host | KeyPart::Path | KeyPart::PathParameter(_) | KeyPart::Method => continue,
        };
        free = free.or(Some(name));
    }
    free
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
