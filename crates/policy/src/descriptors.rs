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
    /// What all its values are counted as; none: each is counted apart.
    pub counted_as: Option<Box<str>>,
}

/// What a value is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorValue {
    /// It is this.
    Exactly(Box<str>),
    /// It is made of these pieces in their order, with any text between them: at least two.
    Pattern(Box<[Box<str>]>),
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

    /// The keys and values of a descriptor that it is for, as they are counted.
    pub fn counted<'d>(
        &'d self,
        entries: impl Iterator<Item = (&'d str, &'d str)> + Clone,
    ) -> impl Iterator<Item = (&'d str, &'d str)> + Clone {
        let pairs = self.keys.iter().zip(entries);
        pairs.map(|(own, (name, value))| (name, own.counted_as.as_deref().unwrap_or(value)))
    }
}

impl DescriptorValue {
    /// What a text with `*` for any text stands for; none: any value.
    pub(crate) fn from_pattern(text: &str) -> Option<DescriptorValue> {
        match text.contains('*') {
            _ if text == "*" => None,
            true => Some(DescriptorValue::Pattern(text.split('*').map(Box::from).collect())),
            false => Some(DescriptorValue::Exactly(text.into())),
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            DescriptorValue::Exactly(own) => **own == *value,
            DescriptorValue::Pattern(pieces) => is_made_of(pieces, value),
        }
    }
}

/// Whether a text begins with the first piece, ends with the last one, and has the others between
/// them, in their order.
fn is_made_of(pieces: &[Box<str>], text: &str) -> bool {
    let [first, between @ .., last] = pieces else { return false };
    let inner = text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last));
    let after = |rest: &'_ str, piece: &str| rest.find(piece).map(|at| at + piece.len());
    let mut rest = inner;
    for piece in between {
        rest = rest.and_then(|rest| rest.get(after(rest, piece)?..));
    }
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_for_all_entries_in_their_order() {
        let key = |name: &str, value: &str| DescriptorKey {
            name: name.into(),
            value: DescriptorValue::from_pattern(value),
            counted_as: None,
        };
        let rule = DescriptorRule {
            domain: "edge".into(),
            keys: vec![key("user", "*"), key("path", "/a*"), key("plan", "free")],
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

    /// As envoyproxy/ratelimit does it: each `*` is for zero or more characters.
    #[test]
    fn pattern_has_any_text_for_each_star() {
        for (pattern, text, expected) in [
            ("/v1/*/export", "/v1/42/export", true),
            ("/v1/*/export", "/v1//export", true),
            ("/v1/*/export", "/v1/export", false),
            ("*export", "export", true),
            ("*export", "exports", false),
            ("a*bc*bc*d", "abcbcd", true),
            ("a*bc*bc*d", "abcd", false),
            ("a*b*c", "a-c-b-c", true),
            ("a*b*c", "a-c-c", false),
            ("ab*ba", "aba", false),
            ("**", "", true),
            ("\u{e4}*\u{f6}", "\u{e4}\u{f6}", true),
        ] {
            let value = DescriptorValue::from_pattern(pattern).unwrap();
            assert_eq!(value.matches(text), expected, "{pattern} {text}");
        }
    }
}
