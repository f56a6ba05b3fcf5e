//! Tiers, and what differs by them.

use http::HeaderValue;
use tollgate_identity::{Tier, Tiers};
use tollgate_yaml::{Check, Node, Spanned, Value};

use super::{Compiler, words::Names};
use crate::file::RawTiers;

/// What may be different for each tier.
pub(super) struct ByTier<T> {
    /// By the tier's position, what it was given by name.
    named: Vec<Option<T>>,
    /// What all others have.
    rest: Option<T>,
}

impl<T> ByTier<T> {
    /// What a tier has; without a tier, what those have that are not named.
    pub(super) fn of(&self, tier: Option<usize>) -> Option<&T> {
        let named = tier.and_then(|tier| self.named.get(tier)?.as_ref());
        named.or(self.rest.as_ref())
    }
}

impl Compiler<'_> {
    pub(super) fn tiers(&mut self, raw: Option<&RawTiers>) -> Tiers {
        let Some(raw) = raw else { return Tiers::single() };
        for (position, name) in raw.names.iter().enumerate() {
            self.check_name(name, "tier");
            if name.value == "default" {
                self.note(
                    name.span,
                    "`default` is not a name for a tier",
                    "rates use it for tiers without one of their own",
                );
            }
            if raw.names.iter().take(position).any(|earlier| earlier.value == name.value) {
                self.refuse(
                    name.span,
                    format!("tier `{}` is listed twice", name.value),
                    "remove one",
                );
            }
        }
        let names = Names {
            kind: "tier",
            names: raw.names.iter().map(|name| name.value.as_str()).collect(),
            is_complete: self.knows_tiers,
        };
        let default = self.resolve(&raw.default, &names).unwrap_or(0);
        let tier = |name: &Spanned<String>| Tier {
            name: name.value.as_str().into(),
            value: HeaderValue::from_str(&name.value).unwrap_or(HeaderValue::from_static("")),
        };
        Tiers { tiers: raw.names.iter().map(tier).collect(), default }
    }

    pub(super) fn tier_names<'t>(&self, tiers: &'t Tiers) -> Names<'t> {
        let is_complete = self.knows_tiers;
        Names { kind: "tier", names: tiers.names().collect(), is_complete }
    }

    /// Reads one value for all tiers, or a mapping from tiers to values. `what` names them in
    /// the error about a tier without one.
    pub(super) fn by_tier<T>(
        &mut self,
        node: &Node,
        what: &str,
        tiers: &Tiers,
        read: impl Fn(&mut Self, &Node) -> Option<T>,
    ) -> Option<ByTier<T>> {
        let Value::Mapping(entries) = &node.value else {
            return Some(ByTier { named: Vec::new(), rest: Some(read(self, node)?) });
        };
        let names = self.tier_names(tiers);
        let mut by_tier = ByTier { named: tiers.names().map(|_| None).collect(), rest: None };
        let mut complete = true;
        for (tier, node) in entries {
            let value = read(self, node);
            complete &= value.is_some();
            if tier.value == "default" {
                by_tier.rest = value;
            } else if let Some(slot) =
                self.resolve(tier, &names).and_then(|at| by_tier.named.get_mut(at))
            {
                *slot = value;
            } else {
                complete = false;
            }
        }
        let missing: Vec<&str> = tiers
            .names()
            .zip(&by_tier.named)
            .filter(|(_, value)| value.is_none() && by_tier.rest.is_none())
            .map(|(name, _)| name)
            .collect();
        if complete && self.knows_tiers && !missing.is_empty() {
            let message = format!("no {what} for tier {}", missing.join(", "));
            self.refuse(
                node.span,
                message,
                format!("give each tier a {what}, or add `default: …`"),
            );
            return None;
        }
        complete.then_some(by_tier)
    }
}
