//! Tiers, which are classes of callers, and how the tier of a caller is chosen.

use http::HeaderValue;

/// How the tier of a caller is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierSource {
    /// The default tier.
    Default,
    /// One tier for all, by position.
    Fixed(usize),
    /// The tier with the name in a claim of the token or a field of the API key.
    Claim(Box<str>),
    /// The tier that a table assigns to the value of such a claim or field.
    Table(TierTable),
}

/// Tiers by the values of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierTable {
    /// The claim of the token, or the field of the API key: a text or a list of texts.
    pub claim: Box<str>,
    /// Values and the positions of their tiers, in the order of the policy.
    pub entries: Vec<(Box<str>, usize)>,
    /// The tier of callers whose claim has none of the values.
    pub default: usize,
}

impl TierSource {
    /// The claim of the token, or the field of the API key, that decides.
    pub fn claim(&self) -> Option<&str> {
        match self {
            TierSource::Default | TierSource::Fixed(_) => None,
            TierSource::Claim(claim) => Some(claim),
            TierSource::Table(table) => Some(&table.claim),
        }
    }

    /// Whether a claim with these values names a tier, but none that there is.
    pub fn is_unknown<'v>(
        &self,
        mut values: impl Iterator<Item = &'v str> + Clone,
        tiers: &Tiers,
    ) -> bool {
        let TierSource::Claim(_) = self else { return false };
        match (values.next(), values.next()) {
            (None, _) => false,
            (Some(only), None) => tiers.names().all(|name| name != only),
            (Some(_), Some(_)) => true,
        }
    }

    /// The position of the tier for a claim with these values.
    pub fn tier<'v>(&self, values: impl Iterator<Item = &'v str> + Clone, tiers: &Tiers) -> usize {
        match self {
            TierSource::Default => tiers.default,
            TierSource::Fixed(tier) => *tier,
            TierSource::Claim(_) => {
                // Several values name no tier, since their order has no meaning.
                let mut values = values;
                let only = values.next().filter(|_| values.next().is_none());
                let named = only.and_then(|only| tiers.names().position(|name| name == only));
                named.unwrap_or(tiers.default)
            }
            TierSource::Table(table) => {
                table.entry(values).map_or(table.default, |(_, tier)| *tier)
            }
        }
    }
}

impl TierTable {
    /// The first entry whose value is among these.
    pub fn entry<'v>(
        &self,
        values: impl Iterator<Item = &'v str> + Clone,
    ) -> Option<&(Box<str>, usize)> {
        self.entries.iter().find(|(entry, _)| values.clone().any(|value| value == &**entry))
    }
}

/// The texts of a claim, which is one text or a list. Other values in a list become an empty text,
/// which no tier has as its name.
pub fn texts(claim: Option<&serde_json::Value>) -> impl Iterator<Item = &str> + Clone {
    let values = match claim {
        Some(serde_json::Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
        None => &[],
    };
    values.iter().map(|value| value.as_str().unwrap_or_default())
}

/// Classes of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// In the order of the policy; limits refer to them by position.
    pub tiers: Vec<Tier>,
    /// Position of the tier for callers that name none, or one that is not listed.
    pub default: usize,
}

/// A class of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: Box<str>,
    /// Its name as a header value.
    pub value: HeaderValue,
}

impl Tiers {
    /// One tier for all callers: a policy without a `tiers` section.
    pub fn single() -> Self {
        let tier = Tier { name: "default".into(), value: HeaderValue::from_static("default") };
        Tiers { tiers: vec![tier], default: 0 }
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.tiers.len()
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tiers.iter().map(|tier| &*tier.name)
    }

    /// The tier at a position.
    pub fn get(&self, position: usize) -> Option<&Tier> {
        self.tiers.get(position)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tiers() -> Tiers {
        let tier =
            |name: &str| Tier { name: name.into(), value: HeaderValue::from_str(name).unwrap() };
        Tiers { tiers: ["free", "pro", "internal"].map(tier).into(), default: 0 }
    }

    fn tier(source: &TierSource, claim: Option<Value>) -> usize {
        source.tier(texts(claim.as_ref()), &tiers())
    }

    #[test]
    fn first_entry_of_a_table_that_the_claim_has_decides() {
        let entries = vec![("admin".into(), 2), ("staff".into(), 1), ("guest".into(), 0)];
        let table = TierSource::Table(TierTable { claim: "roles".into(), entries, default: 1 });
        for (claim, expected) in [
            (Some(json!("admin")), 2),
            (Some(json!(["staff", "admin"])), 2),
            (Some(json!(["guest", "staff"])), 1),
            (Some(json!(["guest"])), 0),
            // Values are not the names of tiers.
            (Some(json!("internal")), 1),
            (Some(json!([])), 1),
            (Some(json!([["admin"], 7, null])), 1),
            (Some(json!({ "admin": true })), 1),
            (Some(json!("admin staff")), 1),
            (None, 1),
        ] {
            assert_eq!(tier(&table, claim.clone()), expected, "{claim:?}");
        }
    }

    #[test]
    fn list_of_one_names_a_tier_and_a_longer_one_does_not() {
        let source = TierSource::Claim("plan".into());
        for (claim, expected) in [
            (Some(json!("pro")), 1),
            (Some(json!(["pro"])), 1),
            (Some(json!(["pro", "internal"])), 0),
            (Some(json!(["pro", 7])), 0),
            (Some(json!([])), 0),
            (Some(json!("gold")), 0),
            (Some(json!(1)), 0),
            (None, 0),
        ] {
            assert_eq!(tier(&source, claim.clone()), expected, "{claim:?}");
        }
    }

    #[test]
    fn claim_that_names_no_tier_is_told_from_one_that_is_not_there() {
        let source = TierSource::Claim("plan".into());
        for (claim, expected) in [
            (None, false),
            (Some(json!([])), false),
            (Some(json!("pro")), false),
            (Some(json!("platinum")), true),
            (Some(json!(["pro", "internal"])), true),
            (Some(json!(7)), true),
        ] {
            assert_eq!(source.is_unknown(texts(claim.as_ref()), &tiers()), expected, "{claim:?}");
        }
        assert!(!TierSource::Fixed(1).is_unknown(["platinum"].into_iter(), &tiers()));
    }
}
