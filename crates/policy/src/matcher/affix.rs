//! A segment of which a pattern knows the beginning and the end: `report-*`, `*.php`, `a-*-b`.
//!
//! What two of them have in common is once more a beginning and an end, the longer ones. But in
//! `abc`, which both `ab*` and `*bc` match, beginning and end share a letter, and in no text that
//! `ab*bc` matches do they. So an affix knows how much they may share: nothing, as policies write
//! it.

use std::fmt;

use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form};

use super::{PatternError, written};
use crate::{PathReading, path_reading::is_script};

/// Texts with this beginning and this end, one of which may be empty. Between them is any text, or
/// none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Affix {
    before: Box<str>,
    after: Box<str>,
    /// How many characters beginning and end have in common in the shortest of these texts.
    shared: usize,
}

impl Affix {
    /// Of a segment with one `*`.
    pub(super) fn parse(segment: &str) -> Result<Affix, PatternError> {
        let path = format!("/{segment}");
        let normal = normalize_path(&path, EncodedSlash::Reject).map_err(PatternError::Invalid)?;
        let (before, after) = segment.split_once('*').unwrap_or((segment, ""));
        let [plain_before, plain_after] = [before, after].map(plain_form);
        if normal != path || written(&plain_before) != before || written(&plain_after) != after {
            return Err(PatternError::NotNormal(plain_form(&normal).into_owned()));
        }
        Ok(Affix { before: plain_before.into(), after: plain_after.into(), shared: 0 })
    }

    /// Whether a segment of a form is one of these texts.
    pub(super) fn matches(&self, text: &str, reading: &PathReading) -> bool {
        let between = |(rest, head): (&str, &str)| {
            // Without the beginning, and without the end: what is in neither is there twice.
            rest.len() + head.len() + self.shared >= text.len()
        };
        let rest = reading.after_beginning(text, &self.before);
        rest.zip(reading.before_end(text, &self.after)).is_some_and(between)
    }

    /// Whether a text in its plain form is one of these.
    pub(super) fn has(&self, text: &str) -> bool {
        self.matches(text, &PathReading::default())
    }

    /// What both match, if there is anything.
    pub(super) fn overlap(&self, other: &Affix) -> Option<Affix> {
        let [before, shorter] = by_length(&self.before, &other.before);
        let [after, ending] = by_length(&self.after, &other.after);
        if !before.starts_with(shorter) || !ends_with(after, ending) {
            return None;
        }
        let both = Affix { before: before.into(), after: after.into(), shared: 0 };
        let least = self.shortest().max(other.shortest());
        let most = (before.len() + after.len()).saturating_sub(least);
        let shared = both.shares_up_to(most).max().unwrap_or(0);
        Some(Affix { shared, ..both })
    }

    /// Whether it matches all that `other` matches: texts of any length, of which nothing but
    /// beginning and end is known, and the shortest.
    pub(super) fn covers(&self, other: &Affix) -> bool {
        other.before.starts_with(&*self.before)
            && ends_with(&other.after, &self.after)
            && self.shortest() <= other.shortest()
    }

    /// Texts to try patterns with: one with `between` in it, and those whose beginning and end have
    /// something in common, as there may be patterns that match the first and none of these.
    pub(super) fn samples(&self, between: &str) -> Vec<String> {
        let Affix { before, after, shared } = self;
        let with_shared = |shared: usize| Some(format!("{before}{}", after.get(shared..)?));
        let longest = format!("{before}{between}{after}");
        [longest].into_iter().chain(self.shares_up_to(*shared).filter_map(with_shared)).collect()
    }

    /// Whether its texts are names of scripts.
    pub(super) fn is_of_scripts(&self) -> bool {
        is_script(&self.after)
    }

    fn shortest(&self) -> usize {
        (self.before.len() + self.after.len()).saturating_sub(self.shared)
    }

    /// How many characters, up to `most`, may be the end of the beginning and the beginning of the
    /// end at once.
    fn shares_up_to(&self, most: usize) -> impl Iterator<Item = usize> {
        let may_share = |shared: &usize| {
            let start = self.after.get(..*shared);
            start.is_some_and(|start| ends_with(&self.before, start))
        };
        (1..=most).filter(may_share)
    }
}

impl fmt::Display for Affix {
    /// As policies write it; what two patterns of a policy have in common, as both of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.shared == 0 { "*" } else { "*&*" };
        write!(f, "{}{between}{}", written(&self.before), written(&self.after))
    }
}

/// The longer text, and the other one.
fn by_length<'t>(one: &'t str, other: &'t str) -> [&'t str; 2] {
    if one.len() < other.len() { [other, one] } else { [one, other] }
}

fn ends_with(text: &str, end: &str) -> bool {
    PathReading::default().before_end(text, end).is_some()
}
