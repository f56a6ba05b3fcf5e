//! The section `identity` of a suggested policy, and its tiers.

use std::fmt::Write as _;

use tollgate_yaml::literal;

use super::{
    counts::Counts,
    seen::{Kind, Whose},
    words::{CORE, yaml_name},
};
use crate::Report;

/// The most issuers, kinds of callers, and tiers that a policy gets.
const MOST_ISSUERS: usize = 8;
const MOST_KINDS: usize = 20;
const MOST_TIERS: usize = 20;

/// Who calls, as the policy knows them.
pub(super) struct Callers {
    issuers: Vec<Issuer>,
    /// Callers who are named by tokens.
    named: Vec<Entry>,
    /// Callers who are addresses: at least one.
    addresses: Vec<Entry>,
    /// Those of named callers first; of which the one with most requests is the first.
    pub(super) tiers: Vec<String>,
    /// How many of them are of named callers.
    of_named: usize,
    /// Kinds of callers that are not here, because there are too many.
    left_out: usize,
}

struct Issuer {
    /// What it is called in the names of callers.
    name: String,
    id: String,
}

/// An entry of `callers`.
struct Entry {
    name: String,
    /// Of addresses, theirs.
    tier: Option<String>,
    has_keys: bool,
}

impl Callers {
    pub(super) fn of(kinds: Counts<String, Kind>, issuers: &Counts<Whose, u64>) -> Callers {
        let mut kinds: Vec<(String, Kind)> = kinds.0.into_iter().collect();
        kinds.sort_by_key(|(_, kind)| std::cmp::Reverse(kind.requests));
        let (mut named, mut addresses): (Vec<_>, Vec<_>) =
            kinds.into_iter().partition(|(_, kind)| kind.has_names);
        let left_out =
            named.len().saturating_sub(MOST_KINDS) + addresses.len().saturating_sub(MOST_KINDS);
        named.truncate(MOST_KINDS);
        addresses.truncate(MOST_KINDS);
        let (tiers, of_named) = tiers(&named, &addresses);
        let entry = |(name, kind): (String, Kind), tier: Option<String>| Entry {
            name,
            tier,
            has_keys: kind.has_keys,
        };
        let named: Vec<Entry> = named.into_iter().map(|kind| entry(kind, None)).collect();
        let fixed = |kind: &Kind| {
            let tier = kind.tiers.names().into_iter().next()?;
            tiers.contains(&tier).then_some(tier)
        };
        let mut addresses: Vec<Entry> = addresses
            .into_iter()
            .map(|(name, kind)| {
                let tier = fixed(&kind);
                entry((name, kind), tier)
            })
            .collect();
        if addresses.is_empty() {
            let is_free = |name: &&str| !named.iter().any(|entry| entry.name == **name);
            // One of them is: a log with both as names of users has other users, too.
            let name = ["anonymous", "address", "other-address"].into_iter().find(is_free);
            let name = name.unwrap_or("any-other-address").to_owned();
            addresses.push(Entry { name, tier: None, has_keys: false });
        }
        let issuers = if named.is_empty() { Vec::new() } else { known_issuers(issuers) };
        Callers { issuers, named, addresses, tiers, of_named, left_out }
    }

    /// Whether there are callers who are named by tokens.
    pub(super) const fn has_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// The tier of named callers whose own is not known: the one whose callers use least, so that
    /// nobody gets more by a name that no tier has.
    fn default_tier(&self, measured: Option<&Report>) -> Option<&String> {
        let of_named = self.tiers.get(..self.of_named)?;
        let curves = || measured.into_iter().flat_map(|report| &report.curves);
        let used = |tier: &&String| {
            let of_tier = curves().find(|curve| curve.limit == CORE && curve.tier == **tier);
            of_tier.map_or(u32::MAX, |curve| curve.suggested)
        };
        of_named.iter().min_by_key(used)
    }

    pub(super) fn write(&self, text: &mut String, measured: Option<&Report>) -> std::fmt::Result {
        let default = self.default_tier(measured);
        writeln!(text, "identity:")?;
        if self.has_named() {
            writeln!(text, "  jwt:")?;
        }
        if self.issuers.len() == MOST_ISSUERS {
            writeln!(text, "    # The log may have more issuers: these have the most requests.")?;
        }
        for Issuer { name, id } in &self.issuers {
            writeln!(text, "    - name: {}", yaml_name(name))?;
            writeln!(text, "      issuer: {}   # put your issuer here", literal(id))?;
            writeln!(text, "      jwks_url: https://id.example.com/jwks.json   # and its keys")?;
            writeln!(text, "      audience: [your-api]   # and the `aud` of tokens for you")?;
        }
        writeln!(text, "  callers:")?;
        if self.left_out > 0 {
            let left_out = self.left_out;
            writeln!(
                text,
                "    # The log has {left_out} more kinds of callers, which are not here."
            )?;
        }
        for (position, Entry { name, has_keys, .. }) in self.named.iter().enumerate() {
            let claim = if position == 0 { "sub" } else { name };
            if *has_keys {
                writeln!(
                    text,
                    "    # The log has API keys for this one: it needs `api_keys` in `identity`, and a \
                     key\n    # such as `api_key.id`."
                )?;
            }
            let (tier, note) = match self.tiers.is_empty() {
                true => ("", "   # the claim that names the caller"),
                false => (", tier: jwt.plan", "   # the claim that names the caller, and its tier"),
            };
            let name = yaml_name(name);
            writeln!(text, "    - {{ name: {name}, key: jwt.{claim}{tier} }}{note}")?;
        }
        for Entry { name, tier, .. } in &self.addresses {
            let tier = tier.as_deref().filter(|tier| default.is_none_or(|default| default != tier));
            let tier = tier.map(|tier| format!(", tier: {}", yaml_name(tier)));
            let (name, tier) = (yaml_name(name), tier.unwrap_or_default());
            writeln!(text, "    - {{ name: {name}, key: client.ip{tier} }}")?;
        }
        if let Some(default) = default {
            let names: Vec<String> = self.tiers.iter().map(|tier| yaml_name(tier)).collect();
            let (default, names) = (yaml_name(default), names.join(", "));
            writeln!(text, "\ntiers: {{ default: {default}, names: [{names}] }}")?;
        }
        Ok(())
    }
}

/// The tiers of named callers, and then those of addresses; and how many the former are. None, if
/// all callers are in one: named callers without a tier would get one that is for addresses.
fn tiers(named: &[(String, Kind)], addresses: &[(String, Kind)]) -> (Vec<String>, usize) {
    let counted = |kinds: &[(String, Kind)]| {
        let mut counts = Counts::<String, u64>::default();
        for (tier, count) in kinds.iter().flat_map(|(_, kind)| &kind.tiers.0) {
            *counts.0.entry(tier.clone()).or_default() += count;
        }
        counts.names()
    };
    let mut tiers = counted(named);
    tiers.truncate(MOST_TIERS);
    let of_named = tiers.len();
    if of_named == 0 {
        return (tiers, 0);
    }
    for tier in counted(addresses) {
        if !tiers.contains(&tier) {
            tiers.push(tier);
        }
    }
    tiers.truncate(MOST_TIERS);
    (tiers, of_named)
}

/// The issuers of named callers: at least one, with addresses to be replaced where the log has
/// none.
fn known_issuers(seen: &Counts<Whose, u64>) -> Vec<Issuer> {
    let mut found: Vec<Issuer> = Vec::new();
    for Whose { prefix, id } in seen.names() {
        let id = id.filter(|id| is_url(id)).or_else(|| prefix.clone().filter(|name| is_url(name)));
        if prefix.is_none() && id.is_none() && !found.is_empty() {
            continue;
        }
        let number = found.len() + 1;
        let place = if number == 1 { String::new() } else { format!("-{number}") };
        let id = id.unwrap_or_else(|| format!("https://id{place}.example.com/"));
        let usual = || format!("main{place}");
        let name = prefix.unwrap_or_else(usual);
        if found.len() < MOST_ISSUERS
            && !found.iter().any(|other| other.name == name || other.id == id)
        {
            found.push(Issuer { name, id });
        }
    }
    if found.is_empty() {
        let (name, id) = ("main".to_owned(), "https://id.example.com/".to_owned());
        found.push(Issuer { name, id });
    }
    found
}

/// Whether a text is a URL that can stand in a policy as it is.
fn is_url(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_plain))
}
