//! The directives around a place, and what it inherits of them.

use super::{
    directive::Directive,
    keys::{Piece, pieces},
};

/// The directives around a place, the outermost level first: `http`, `server`, locations.
#[derive(Clone)]
pub(super) struct Levels<'c> {
    pub(super) levels: Vec<&'c [Directive]>,
    pub(super) server: Option<&'c Directive>,
}

impl<'c> Levels<'c> {
    /// The directives of one of these names on the nearest level that has any: as nginx inherits.
    pub(super) fn nearest(&self, names: &[&str]) -> Vec<&'c Directive> {
        let of_level = |level: &&'c [Directive]| -> Vec<&'c Directive> {
            level.iter().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.levels.iter().rev().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
    }

    pub(super) fn one(&self, name: &str) -> Option<&'c Directive> {
        self.nearest(&[name]).pop()
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|directive| directive.arg(0).eq_ignore_ascii_case("on"))
    }

    /// The innermost level.
    pub(super) fn own(&self) -> &'c [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// All directives, the nearest ones first.
    pub(super) fn all(&self) -> impl Iterator<Item = &'c Directive> + '_ {
        self.levels.iter().rev().flat_map(|level| level.iter())
    }

    pub(super) fn is_server(&self) -> bool {
        self.levels.len() == 2
    }

    pub(super) fn within(&self, block: &'c [Directive]) -> Self {
        let mut inner = self.clone();
        inner.levels.push(block);
        inner
    }

    /// The text, with what `set` says in place of variables, if that is no variable itself.
    pub(super) fn filled(&self, text: &str) -> String {
        pieces(text).into_iter().map(|piece| self.filled_piece(piece)).collect()
    }

    fn filled_piece(&self, piece: Piece) -> String {
        let name = match piece {
            Piece::Text(text) => return text,
            Piece::Variable(name) => name,
        };
        let is_set = |directive: &&Directive| {
            directive.name == "set" && directive.arg(0).trim_start_matches('$') == name
        };
        let mut sets = self.all().filter(is_set);
        match (sets.next(), sets.next()) {
            (Some(set), None) if !set.arg(1).contains('$') => set.arg(1).to_owned(),
            _ => format!("${name}"),
        }
    }
}
