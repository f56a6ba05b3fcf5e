//! Header fields that mean what this proxy says in them: claims, credentials, and those that
//! override the method.

use http::HeaderName;
use tollgate_identity::IdentityRules;
use tollgate_wire::method_override::{self, MethodOverride};

use crate::{KeyPart, Limit};

/// Names of header fields that clients may not send on: upstreams trust them as this proxy's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnHeaders {
    /// Of fields that end here: those of claims, under all policies, since their upstreams may be
    /// the same servers; and those that override the method, where they are dropped.
    closed: Names,
    /// Of fields that go on under their own name only, and not in trailers: those of credentials,
    /// under one policy, and those that override the method, where it is judged.
    exact: Names,
    /// Of fields that go on, and by which limits count.
    counted: Names,
}

impl OwnHeaders {
    /// Those of a policy with these rules and limits, beside `all` policies that are in force.
    pub(super) fn new<'p>(
        rules: &IdentityRules,
        limits: &[Limit],
        method_override: MethodOverride,
        all: impl Iterator<Item = &'p IdentityRules>,
    ) -> OwnHeaders {
        let (dropped, judged): (&[HeaderName], &[HeaderName]) = match method_override {
            MethodOverride::Drop => (&method_override::FIELDS, &[]),
            MethodOverride::Match => (&[], &method_override::FIELDS),
            MethodOverride::Ignore => (&[], &[]),
        };
        let claims = all.flat_map(|rules| rules.forwarded.names());
        let parts = limits.iter().flat_map(|limit| &limit.per.parts);
        let counted: Vec<HeaderName> = parts.filter_map(KeyPart::field).collect();
        OwnHeaders {
            counted: Names::of(counted.iter()),
            closed: Names::of(claims.chain(dropped)),
            exact: Names::of(rules.sources.headers().chain(judged)),
        }
    }

    /// The fields that end here.
    pub fn closed(&self) -> impl Iterator<Item = &HeaderName> {
        self.closed.names.iter()
    }

    /// Whether fields of this name, which is in lower case, end here.
    pub fn are_closed(&self, name: &str) -> bool {
        self.closed.contains(name)
    }

    /// Whether fields of this name, which is in lower case, end here, or go on under this name only
    /// and not in trailers.
    pub fn are_guarded(&self, name: &str) -> bool {
        self.closed.contains(name) || self.exact.contains(name)
    }

    /// Whether a request that goes on is judged by fields of this name, which is in lower case.
    pub fn are_judged(&self, name: &str) -> bool {
        self.exact.contains(name) || self.counted.contains(name)
    }
}

/// A few names. Each field of each request is looked for among them, mostly in vain: its length
/// alone says so.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    names: Vec<HeaderName>,
    /// A bit for each length, by its remainder of 64.
    lengths: u64,
}

impl Names {
    fn of<'n>(names: impl Iterator<Item = &'n HeaderName>) -> Names {
        let mut all = Names::default();
        for name in names {
            if !all.names.contains(name) {
                all.lengths |= bit(name.as_str());
                all.names.push(name.clone());
            }
        }
        all
    }

    fn contains(&self, name: &str) -> bool {
        self.lengths & bit(name) != 0 && self.names.iter().any(|own| own.as_str() == name)
    }
}

fn bit(name: &str) -> u64 {
    1 << (name.len() % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whatever_their_length() {
        let long = format!("x-{}", "a".repeat(70));
        let all = ["x-user", "x-mail", "x-claims", &long];
        let all: Vec<HeaderName> = all.iter().map(|name| name.parse().unwrap()).collect();
        let names = Names::of(all.iter().chain(&all));
        assert_eq!(names.names.len(), 4);
        for name in &all {
            assert!(names.contains(name.as_str()), "{name}");
        }
        for name in ["", "x-uses", "x-use", "x-claim", "accept-la", &"a".repeat(72)] {
            assert!(!names.contains(name), "{name}");
        }
        assert!(!Names::default().contains("x-user"));
    }
}
