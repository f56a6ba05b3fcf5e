//! The change of one value.

use std::fmt;

use serde::Serialize;

/// A value that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The name of the value.
    pub what: String,
    /// The value before. None: there was none.
    pub before: Option<String>,
    /// The value after. None: it is removed.
    pub after: Option<String>,
    /// The effect of the change, where it is not obvious.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Change {
    pub(super) fn between(
        what: impl Into<String>,
        before: String,
        after: String,
    ) -> Option<Change> {
        let what = what.into();
        let is_other = before != after;
        is_other.then_some(Change { what, before: Some(before), after: Some(after), effect: None })
    }

    /// The fields that differ; `what` makes their names from those of the fields.
    pub(super) fn between_fields<const N: usize>(
        before: [(&str, String); N],
        after: [(&str, String); N],
        what: impl Fn(&str) -> String,
    ) -> Vec<Change> {
        let pairs = before.into_iter().zip(after);
        let change = |((name, before), (_, after))| Change::between(what(name), before, after);
        pairs.filter_map(change).collect()
    }

    pub(super) fn added(what: &str, after: String) -> Change {
        Change { what: what.into(), before: None, after: Some(after), effect: None }
    }

    pub(super) fn removed(what: &str, before: String) -> Change {
        Change { what: what.into(), before: Some(before), after: None, effect: None }
    }

    pub(super) fn meaning(mut self, effect: &str) -> Change {
        self.effect = Some(effect.into());
        self
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.before.is_some() || self.after.is_some() {
            f.write_str(": ")?;
            write_pair(f, self.before.as_deref(), self.after.as_deref())?;
        }
        match &self.effect {
            None => Ok(()),
            Some(effect) => write!(f, ": {effect}"),
        }
    }
}

pub(super) fn write_pair(
    f: &mut fmt::Formatter<'_>,
    before: Option<&str>,
    after: Option<&str>,
) -> fmt::Result {
    match (before, after) {
        (Some(before), Some(after)) if before != after => write!(f, "{before} -> {after}"),
        (Some(same), Some(_)) => f.write_str(same),
        (Some(before), None) => write!(f, "removed {before}"),
        (None, Some(after)) => write!(f, "added {after}"),
        (None, None) => Ok(()),
    }
}
