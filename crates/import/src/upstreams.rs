//! Upstreams by what they are made of: those that are alike are one.

use crate::{flow::Flow, names::Names};

/// The upstreams of a policy.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    names: Names,
    known: Vec<(String, Flow)>,
}

impl Upstreams {
    /// The name of the upstream that is like this one, or of a new one with a name like `written`.
    pub(crate) fn name(&mut self, written: &str, upstream: Flow) -> String {
        if let Some((name, _)) = self.known.iter().find(|(_, known)| *known == upstream) {
            return name.clone();
        }
        let name = self.names.take(written);
        self.known.push((name.clone(), upstream));
        name
    }

    pub(crate) fn first(&self) -> Option<&str> {
        self.known.first().map(|(name, _)| name.as_str())
    }

    /// The section of the policy.
    pub(crate) fn section(self) -> Vec<(String, Flow)> {
        self.known
    }
}
