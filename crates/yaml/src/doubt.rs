//! What is no longer said because of a problem before it: one mistake gives one message.
//!
//! What cannot be decoded is left out, and then seems not to be written at all: a list without its
//! only item is empty, `burst` lacks the `algorithm` beside it. So nothing more is said about a
//! section from which something was left out, until that is mended, but for what single values in
//! it have in themselves. A field that is missing or unknown leaves nothing out: what stands beside
//! it is judged, but not what the section lacks.

use std::collections::HashSet;

use super::Document;
use super::node::{Node, Span, Value};
use super::problem::Problem;

/// Places about which nothing more is said.
#[derive(Debug, Default)]
pub struct Doubts {
    places: HashSet<Span>,
    /// The sections of the file that something was left out of.
    sections: HashSet<String>,
    /// Those that are no sections at all.
    lost: HashSet<String>,
}

/// Where a problem is, as seen from a section or a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    Elsewhere,
    Below,
    Here,
}

impl Doubts {
    /// Whether what is found at `place` may only be found because of an earlier problem.
    pub fn cover(&self, place: Span) -> bool {
        place.is_stand_in() || self.places.contains(&place)
    }

    /// Whether something was left out of the section that is called `name` in the file, or all of
    /// it.
    pub fn is_in_section(&self, name: &str) -> bool {
        self.sections.contains(name)
    }

    /// Whether something else is written in place of the section that is called `name`.
    pub fn have_lost(&self, name: &str) -> bool {
        self.lost.contains(name)
    }

    /// Adds those of another part of the document.
    pub(super) fn extend(&mut self, other: Doubts) {
        self.places.extend(other.places);
        self.sections.extend(other.sections);
        self.lost.extend(other.lost);
    }

    /// Adds what is around `start` in `container`, whose key is at `name`, and says how near it is.
    /// What lacks a part that it needs is left out of what is around it, too.
    fn add(&mut self, container: &Node, name: Option<Span>, start: usize) -> Near {
        let is_at = |span: Span| span.start == start;
        let inner: Vec<(Option<Span>, &Node)> = match &container.value {
            Value::Mapping(entries) => {
                entries.iter().map(|(key, value)| (Some(key.span), value)).collect()
            }
            Value::Sequence(items) => items.iter().map(|item| (None, item)).collect(),
            _ => return Near::Elsewhere,
        };
        let is_here = inner.iter().any(|(key, node)| is_at(node.span) || key.is_some_and(is_at));
        let mut near = if is_here { Near::Here } else { Near::Elsewhere };
        for (key, node) in inner {
            let inner = self.add(node, key, start);
            // A list that lacks an item is a field that is not as written.
            let is_item = matches!(node.value, Value::Sequence(_)) && inner == Near::Here;
            near = near.max(if is_item { Near::Here } else { inner.min(Near::Below) });
        }
        if near > Near::Elsewhere {
            self.places.extend(name);
            self.places.insert(container.span);
        }
        if near == Near::Here {
            self.add_fields(container);
        }
        near
    }

    /// The fields of a section, and single values in them: what is by tier, lists of words. Items
    /// of a list stand for themselves.
    fn add_fields(&mut self, section: &Node) {
        let Value::Mapping(entries) = &section.value else { return };
        for (key, value) in entries {
            self.places.extend([key.span, value.span]);
            let inner: Vec<&Node> = match &value.value {
                Value::Mapping(entries) => entries.iter().map(|(_, value)| value).collect(),
                Value::Sequence(items) => items.iter().collect(),
                _ => Vec::new(),
            };
            let is_single =
                |node: &&Node| !matches!(node.value, Value::Mapping(_) | Value::Sequence(_));
            self.places.extend(inner.into_iter().filter(is_single).map(|node| node.span));
        }
    }
}

impl Document {
    /// What is in doubt after `problems`, which decoding found.
    pub fn doubts(&self, problems: &[Problem]) -> Doubts {
        let mut doubts = Doubts::default();
        let Value::Mapping(sections) = &self.root.value else { return doubts };
        for problem in problems {
            let Some(start) = self.source.position(problem) else { continue };
            let start = self.unfilled.start_around(start);
            let before = sections.iter().rev();
            let section = before.into_iter().find(|(key, _)| key.span.start <= start);
            if let Some((key, node)) = section {
                if let Some(doubtful) = &problem.doubtful {
                    doubts.places.extend(doubtful);
                    if !doubtful.is_empty() {
                        doubts.sections.insert(key.value.clone());
                    }
                    continue;
                }
                doubts.sections.insert(key.value.clone());
                if node.span.start == start && !matches!(node.value, Value::Mapping(_)) {
                    doubts.lost.insert(key.value.clone());
                }
                doubts.add(node, Some(key.span), start);
            }
        }
        doubts
    }
}
