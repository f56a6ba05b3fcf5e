//! A limit of which a name finds no counter, and how to ask for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_gate::CountedKey;
use tollgate_policy::{Limit, Policy};

use super::seen::SeenNames;

/// A limit that counts by more than the name says, or by something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedLimit {
    /// Its name.
    pub limit: String,
    /// What it counts by: `caller and path`.
    pub per: String,
    /// How to ask for its counters: `caller=user:42,path=VALUE`.
    pub name: String,
    /// Up to ten names of its counters that this proxy has seen lately, with the values that were
    /// asked for: `caller=user:42,path=/search`. A value that may be a secret is a hash. Of a limit
    /// that does not count by what was asked for, the counters that had no room for it.
    #[serde(default)]
    pub seen: Vec<String>,
}

impl SharedLimit {
    /// A limit of a policy, for who has asked for a key.
    pub(super) fn of(
        key: &CountedKey<'_>,
        policy: &Policy,
        limit: &Limit,
        seen: SeenNames<'_>,
    ) -> SharedLimit {
        let parts: Vec<String> = limit.per.parts.iter().map(ToString::to_string).collect();
        SharedLimit {
            limit: limit.name.to_string(),
            per: parts.join(" and "),
            name: key.name_with_more(limit),
            seen: seen.of(key, policy, limit),
        }
    }
}
