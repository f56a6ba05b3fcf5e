//! The tree of the segments of all paths.

use std::collections::BTreeMap;

use super::{
    failures::Failures,
    siblings::{MOST_SIBLINGS, kept},
    template::Template,
};

/// A place in the tree.
#[derive(Default)]
pub(super) struct Node {
    /// Requests whose path ends here, or is cut off here.
    pub(super) ends: u64,
    /// Requests whose path ends here or below.
    pub(super) through: u64,
    /// Those of `ends` whose credentials did not pass.
    pub(super) failures: Failures,
    /// Whether a path goes on that is too deep.
    pub(super) is_cut: bool,
    children: BTreeMap<Box<str>, Node>,
    /// What is below a segment that varies.
    varying: Option<Box<Node>>,
}

impl Node {
    /// What is below a segment, and whether that is a new place.
    pub(super) fn below(&mut self, segment: &str) -> (&mut Node, bool) {
        if varies(segment) {
            let is_new = self.varying.is_none();
            return (self.varying.get_or_insert_default(), is_new);
        }
        let is_new = !self.children.contains_key(segment);
        (self.children.entry(segment.into()).or_default(), is_new)
    }

    /// Makes those segments vary, here and below, that have fewer requests. The places that are
    /// left below this one.
    pub(super) fn fold_rare(&mut self, least: u64) -> usize {
        self.fold(|child| child.through < least);
        let children = self.children.values_mut().map(|child| 1 + child.fold_rare(least));
        let children: usize = children.sum();
        children + self.varying.as_mut().map_or(0, |varying| 1 + varying.fold_rare(least))
    }

    /// Makes siblings that are too many one segment that varies, except those that are frequent.
    /// `all`: the requests of all paths.
    pub(super) fn merge_siblings(&mut self, all: u64) {
        if self.children.len() > MOST_SIBLINGS {
            let mut counts: Vec<u64> = self.children.values().map(|child| child.through).collect();
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let last = kept(&counts, all).checked_sub(1);
            // The next one has fewer.
            let least = last.and_then(|last| counts.get(last)).copied().unwrap_or(u64::MAX);
            self.fold(|child| child.through < least);
        }
        self.children.values_mut().for_each(|child| child.merge_siblings(all));
        if let Some(varying) = &mut self.varying {
            varying.merge_siblings(all);
        }
    }

    /// Makes these segments one that varies.
    fn fold(&mut self, is_folded: impl Fn(&Node) -> bool) {
        for (segment, child) in std::mem::take(&mut self.children) {
            match is_folded(&child) {
                true => self.varying.get_or_insert_default().merge(child),
                false => {
                    self.children.insert(segment, child);
                }
            }
        }
    }

    fn merge(&mut self, other: Node) {
        self.ends += other.ends;
        self.through += other.through;
        self.failures.merge(other.failures);
        self.is_cut |= other.is_cut;
        for (segment, child) in other.children {
            self.children.entry(segment).or_default().merge(child);
        }
        if let Some(varying) = other.varying {
            self.varying.get_or_insert_default().merge(*varying);
        }
    }

    /// The patterns of all places where paths end.
    pub(super) fn collect<'n>(&'n self, above: &mut Vec<Option<&'n str>>, all: &mut Vec<Template>) {
        if self.ends > 0 {
            let own = Template::new(above, self.is_cut, self.ends);
            all.push(own.with_failures(self.failures.clone()));
        }
        for (segment, child) in &self.children {
            above.push(Some(segment));
            child.collect(above, all);
            above.pop();
        }
        if let Some(varying) = &self.varying {
            above.push(None);
            varying.collect(above, all);
            above.pop();
        }
    }
}

/// Whether a segment looks like a name of one thing among many: a number, a hash, an address, or a
/// file that has a hash in its name (`main.08fddce5.css`).
pub(crate) fn varies(segment: &str) -> bool {
    varies_as_whole(segment) || segment.split('.').any(is_hash)
}

fn is_hash(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    part.len() >= 6 && digits >= 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn varies_as_whole(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let is_word =
        segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    // `v1` and `oauth2` are words.
    digits * 2 > segment.len()
        || digits >= 4
        || (is_hex && segment.len() >= 8 && digits > 0)
        || segment.len() > 40
        || !is_word
}
