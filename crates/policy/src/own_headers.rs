//! Header fields that mean what this proxy says in them: claims, and credentials.

use http::HeaderName;
use tollgate_identity::IdentityRules;

/// Names of header fields that clients may not send on: upstreams trust them as this proxy's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnHeaders {
    /// Of claims, under all policies: their upstreams may be the same servers.
    claims: Names,
    /// Of credentials, under one policy.
    credentials: Names,
}

impl OwnHeaders {
    /// Those of a policy with these rules, beside `all` policies that are in force.
    pub(super) fn new<'p>(
        rules: &IdentityRules,
        all: impl Iterator<Item = &'p IdentityRules>,
    ) -> OwnHeaders {
        let claims = all.flat_map(|rules| rules.forwarded.names());
        OwnHeaders { claims: Names::of(claims), credentials: Names::of(rules.sources.headers()) }
    }

    /// The fields that carry claims.
    pub fn claims(&self) -> impl Iterator<Item = &HeaderName> {
        self.claims.names.iter()
    }

    /// Whether fields of this name, which is in lower case, carry claims.
    pub fn carry_claims(&self, name: &str) -> bool {
        self.claims.contains(name)
    }

    /// Whether fields of this name, which is in lower case, carry claims or credentials.
    pub fn carry_claims_or_credentials(&self, name: &str) -> bool {
        self.claims.contains(name) || self.credentials.contains(name)
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
