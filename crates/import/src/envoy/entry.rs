//! Entries of descriptors, and which of them may be for the same descriptor.

/// An entry of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'c> {
    pub(super) key: &'c str,
    /// None: any.
    pub(super) value: Option<&'c str>,
    pub(super) is_shared: bool,
}

impl Entry<'_> {
    /// Its value, with one star where there are several. None: any.
    pub(super) fn pattern(&self) -> Option<String> {
        let mut value = self.value?.to_owned();
        while value.contains("**") {
            value = value.replace("**", "*");
        }
        (value != "*").then_some(value)
    }

    /// Whether it is for the same descriptors.
    pub(super) fn is_like(&self, other: &Entry<'_>) -> bool {
        let has_star = |own: &Entry<'_>| own.value.is_none_or(|value| value.contains('*'));
        let may_be = self.key == other.key && has_star(self) == has_star(other);
        may_be
            && (self.value == other.value || (has_star(self) && self.pattern() == other.pattern()))
    }
}

/// Whether entries are for the same descriptors.
pub(super) fn are_alike(own: &[Entry<'_>], others: &[Entry<'_>]) -> bool {
    own.len() == others.len() && own.iter().zip(others).all(|(own, other)| own.is_like(other))
}

/// Whether a descriptor may be for both nodes, of which `taken` is taken then.
pub(super) fn may_be_both(other: Entry<'_>, taken: Entry<'_>) -> bool {
    let both = |one: &str, another: &str| one.starts_with(another) || another.starts_with(one);
    other.key == taken.key
        && match (other.value, taken.value) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(other), Some(taken)) => match other.split_once('*') {
                None => false,
                // What they have between their stars may be anything.
                Some((begin, _)) => {
                    let start = taken.split('*').next().unwrap_or_default();
                    match taken.contains('*') {
                        true => both(begin, start),
                        false => start.starts_with(begin),
                    }
                }
            },
        }
}
