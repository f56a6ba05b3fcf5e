//! Which limits the descriptors are charged to that Envoy's rate limit filter sends.

use tollgate_keyword::keywords;

/// An entry of `rls`. The first of a policy that is for a descriptor applies to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorRule {
    /// What Envoy calls the set of limits.
    pub domain: Box<str>,
    /// What a descriptor has, in this order and nothing else.
    pub keys: Vec<DescriptorKey>,
    /// Positions of limits.
    pub limits: Vec<usize>,
    /// What is charged if there is no room.
    pub charge: DescriptorCharge,
}

/// An entry that a descriptor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorKey {
    /// Its key.
    pub name: Box<str>,
    /// Its value; none: any.
    pub value: Option<DescriptorValue>,
}

/// What a value is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorValue {
    /// It is this.
    Exactly(Box<str>),
    /// It begins so.
    Prefix(Box<str>),
}

/// What is charged if there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DescriptorCharge {
    /// Nothing: the request is denied.
    #[default]
    Admitted,
    /// All of it: what it was for has happened already.
    Always,
}

keywords! { DescriptorCharge { Admitted = "admitted", Always = "always" } }

impl DescriptorRule {
    /// Whether it is for a descriptor of these keys and values.
    pub fn matches<'d>(&self, entries: impl ExactSizeIterator<Item = (&'d str, &'d str)>) -> bool {
        entries.len() == self.keys.len()
            && self.keys.iter().zip(entries).all(|(own, (name, value))| {
                *own.name == *name && own.value.as_ref().is_none_or(|own| own.matches(value))
            })
    }
}

impl DescriptorValue {
    fn matches(&self, value: &str) -> bool {
        match self {
            DescriptorValue::Exactly(own) => **own == *value,
            DescriptorValue::Prefix(own) => value.starts_with(&**own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_for_all_entries_in_their_order() {
        let key =
            |name: &str, value: Option<DescriptorValue>| DescriptorKey { name: name.into(), value };
        let rule = DescriptorRule {
            domain: "edge".into(),
            keys: vec![
                key("user", None),
                key("path", Some(DescriptorValue::Prefix("/a".into()))),
                key("plan", Some(DescriptorValue::Exactly("free".into()))),
            ],
            limits: vec![],
            charge: DescriptorCharge::default(),
        };
        let whole = [("user", "7"), ("path", "/ab"), ("plan", "free")];
        let matches =
            |entries: &[(&'static str, &'static str)]| rule.matches(entries.iter().copied());
        assert!(matches(&whole));
        assert!(!matches(&whole[..2]) && !matches(&[]));
        assert!(!matches(&[whole[1], whole[0], whole[2]]));
        assert!(!matches(&[whole[0], ("path", "/b"), whole[2]]));
        assert!(!matches(&[whole[0], whole[1], ("plan", "freer")]));
        assert!(!matches(&[whole[0], whole[1], whole[2], whole[2]]));
    }
}
