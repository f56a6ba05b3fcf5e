//! `rls`: which limits the descriptors of Envoy are charged to.

use tollgate_yaml::{Check, Node, Spanned, Value, suggest};

use super::{Compiler, words::Names};
use crate::{
    DescriptorKey, DescriptorRule, DescriptorValue, KeyPart, Limit,
    file::{LATER, RawDescriptor, RawDescriptorEntry, RawDescriptorRule},
};

impl Compiler<'_> {
    pub(super) fn descriptor_rules(
        &mut self,
        raw: &[Spanned<RawDescriptorRule>],
        names: &Names<'_>,
        limits: &[Limit],
    ) -> Vec<DescriptorRule> {
        let mut rules: Vec<DescriptorRule> = Vec::new();
        for own in raw {
            let Some(rule) = self.descriptor_rule(&own.value, names, limits) else { continue };
            let is_hidden = |earlier: &DescriptorRule| {
                earlier.domain == rule.domain && earlier.keys == rule.keys
            };
            if rules.iter().any(is_hidden) {
                let message = "an earlier entry is for the same descriptors";
                self.refuse(own.span, message, "list all their limits there, or remove this one");
            }
            rules.push(rule);
        }
        rules
    }

    fn descriptor_rule(
        &mut self,
        raw: &RawDescriptorRule,
        all: &Names<'_>,
        limits: &[Limit],
    ) -> Option<DescriptorRule> {
        let RawDescriptorRule { domain, when, limits: names, charge } = raw;
        if domain.value.is_empty() {
            self.refuse(domain.span, "an empty domain", "write the `domain` of Envoy's filter");
        }
        let keys = self.descriptor_keys(when)?;
        let mut positions = Vec::new();
        for name in names {
            let Some(limit) = self.descriptor_limit(name, all, limits) else { continue };
            if positions.contains(&limit) {
                self.refuse(name.span, "listed twice", "remove one");
            }
            let parts = limits.get(limit).map_or(&[][..], |limit| &limit.per.parts);
            for part in parts {
                let KeyPart::Descriptor(key) = part else { continue };
                if !keys.iter().any(|own| own.name == *key) {
                    let message =
                        format!("limit `{}` counts by `{key}`, which is no key here", name.value);
                    self.refuse(name.span, message, "add it to `key`, or list another limit");
                }
            }
            positions.push(limit);
        }
        let charge = self.keyword_or_default(charge.as_ref());
        Some(DescriptorRule {
            domain: domain.value.as_str().into(),
            keys,
            limits: positions,
            charge: charge?,
        })
    }

    fn descriptor_keys(&mut self, when: &Node) -> Option<Vec<DescriptorKey>> {
        match &when.value {
            Value::Mapping(_) => {
                let raw: RawDescriptor = self.decode(when, LATER)?;
                Some(self.keys_of_section(&raw))
            }
            Value::Sequence(entries) if !entries.is_empty() => {
                let raw: Vec<RawDescriptorEntry> = self.decode(when, LATER)?;
                Some(raw.into_iter().map(DescriptorKey::from).collect())
            }
            other => {
                let message = format!("expected a mapping or a list, found {}", other.kind());
                self.note(
                    when.span,
                    message,
                    "write those keys that descriptors have: `{ key: [user, path] }`",
                );
                None
            }
        }
    }

    fn keys_of_section(&mut self, raw: &RawDescriptor) -> Vec<DescriptorKey> {
        let RawDescriptor { key, value } = raw;
        if key.value.is_empty() {
            self.refuse(key.span, "no key", "write those of the descriptor, such as [user, path]");
        }
        for (name, _) in value.iter() {
            match key.value.iter().filter(|own| own.value == name.value).count() {
                0 => {
                    let help = match suggest(&name.value, key.value.iter().map(|own| &*own.value)) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => "write one of `key`".to_owned(),
                    };
                    self.refuse(name.span, format!("`{}` is no key here", name.value), help);
                }
                1 => {}
                _ => {
                    let message = format!("`{}` is there more than once", name.value);
                    let help = "write `when` as a list: `[{ key: …, value: … }, …]`";
                    self.refuse(name.span, message, help);
                }
            }
        }
        let keys = key.value.iter().map(|name| DescriptorKey {
            name: name.value.as_str().into(),
            value: value.get(&name.value).and_then(|value| DescriptorValue::from_pattern(value)),
            counted_as: None,
        });
        keys.collect()
    }

    /// The position of a limit that descriptors can be charged to.
    fn descriptor_limit(
        &mut self,
        name: &Spanned<String>,
        names: &Names<'_>,
        limits: &[Limit],
    ) -> Option<usize> {
        self.resolve(name, names)?;
        // One with a mistake is not among them.
        let position = limits.iter().position(|limit| *limit.name == *name.value)?;
        let limit = limits.get(position)?;
        if !limit.is_of_descriptors() {
            let message = format!("limit `{}` does not count by a descriptor", name.value);
            let help = "have it count `per: descriptor.<key>`, or list another";
            self.refuse(name.span, message, help);
        }
        let mut allowances = limit.rates.iter().flatten();
        if allowances.any(|allowance| allowance.quota.holds_leases()) {
            let message = format!("limit `{}` has `concurrent`", name.value);
            let help = "list a limit with `rate`: Envoy does not say when a request ends";
            self.refuse(name.span, message, help);
        }
        Some(position)
    }
}

impl From<RawDescriptorEntry> for DescriptorKey {
    fn from(raw: RawDescriptorEntry) -> DescriptorKey {
        let RawDescriptorEntry { key, value, shared } = raw;
        let text = value.as_deref().map_or("*", |value| &**value);
        DescriptorKey {
            name: key.value.as_str().into(),
            value: DescriptorValue::from_pattern(text),
            counted_as: shared.then(|| text.into()),
        }
    }
}
