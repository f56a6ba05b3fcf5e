//! Rows of the table: each is there once, and what many places say alike is one row.

use std::collections::BTreeSet;

use super::{Importer, directive::Directive, lexer::Place};
use crate::Finding;

/// Why routes are closed, and what their reader may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    why: &'static str,
    instead: &'static str,
}

/// Of what rewrites and has no counterpart.
pub(super) const REWRITTEN: Closing = Closing {
    why: "what a rewrite makes of paths has no counterpart",
    instead: "write a route for the paths that it makes, or let the upstream rewrite them; then \
              take the `deny` out",
};

/// Of what nginx answers itself.
pub(super) const ANSWERED: Closing = Closing {
    why: "nothing says where requests go that nginx does not forward",
    instead: "import again with `--upstream URL`, such as an nginx that stays behind, or name an \
              upstream and take the `deny` out by hand",
};

/// Of expressions that no pattern is like.
pub(super) const UNSAID: Closing = Closing {
    why: "any path might be one that is refused by a regular expression that patterns cannot say",
    instead: "write routes with `deny` for the paths that it refuses; then take the `deny` of the \
              others out",
};

impl Closing {
    /// Of what refuses requests; `instead` says what to write for it.
    pub(super) const fn guard(instead: &'static str) -> Self {
        Closing { why: "what refuses requests there has no counterpart", instead }
    }
}

/// How many places are shown.
const MAX_PLACES: usize = 6;

impl Importer<'_> {
    /// A row, unless it is there.
    pub(super) fn row(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    pub(super) fn left_out(&mut self, directive: &Directive, why: &str) {
        self.grouped(directive.left_out(why));
    }

    /// A row for something that closes routes, and what to do instead.
    pub(super) fn close(&mut self, place: &Place, there: impl Into<String>, closing: &Closing) {
        let Closing { why, instead } = closing;
        let here = format!("its routes are closed (403), since {why}. Instead, {instead}");
        let place = place.to_string();
        self.row(Finding::left_out(&place, there, here));
        match self.closed.iter_mut().find(|(known, _)| known == closing) {
            Some((_, places)) if !places.contains(&place) => places.push(place),
            Some(_) => {}
            None => self.closed.push((closing.clone(), vec![place])),
        }
    }

    /// What to do for routes that are closed: once for those with the same reason.
    pub(super) fn ask_for_closed(&mut self) {
        for (Closing { why, instead }, places) in std::mem::take(&mut self.closed) {
            let mut shown = places.get(..MAX_PLACES).unwrap_or(&places).join(", ");
            if places.len() > MAX_PLACES {
                shown = format!("{shown} and {} more", places.len() - MAX_PLACES);
            }
            self.report.ask(format!(
                "some routes are closed (`deny: [0.0.0.0/0, \"::/0\"]`), since {why}.\n\
                 At {shown}: {instead}."
            ));
        }
    }

    /// A row, unless there is one that says the same of another place: that is counted there.
    pub(super) fn grouped(&mut self, finding: Finding) {
        let is_alike = |other: &&mut (Finding, BTreeSet<String>)| {
            other.0.verdict == finding.verdict
                && other.0.here == finding.here
                && other.0.there == finding.there
        };
        match self.repeated.iter_mut().find(is_alike) {
            Some((_, places)) => {
                places.insert(finding.place);
            }
            None => self.repeated.push((finding.clone(), [finding.place].into())),
        }
    }
}
