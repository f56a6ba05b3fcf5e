//! Which credentials a route takes.

use crate::flow::Flow;

/// As `auth` of a route says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Auth {
    /// The sources; empty: it looks at none.
    pub(super) names: Vec<String>,
    /// The consumer that requests without credentials are, by position. None: they are refused.
    pub(super) anonymous: Option<usize>,
}

impl Auth {
    pub(super) fn is_some(&self) -> bool {
        !self.names.is_empty()
    }

    pub(super) fn is_optional(&self) -> bool {
        self.is_some() && self.anonymous.is_some()
    }

    pub(super) fn flow(&self) -> Flow {
        let field = if self.anonymous.is_some() { "optional" } else { "required" };
        match self.is_some() {
            true => Flow::fields([(field, Flow::list(self.names.iter().cloned()))]),
            false => "none".into(),
        }
    }
}
