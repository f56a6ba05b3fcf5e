//! The routes of a log: paths whose segments vary become patterns.
//!
//! Paths are taken in their plain form, as routes match them. What a client can write is bounded:
//! when there are too many places, those that are rarely asked for are counted together.

mod failures;
mod siblings;
mod template;
#[cfg(test)]
mod tests;
mod tree;

use std::net::IpAddr;

pub(super) use self::template::Template;
use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form};

pub(super) use self::tree::varies;
use self::{template::in_order, tree::Node};

/// Segments of a path that are distinguished; what is deeper is one `/**`.
const MOST_DEPTH: usize = 8;

/// Places of all paths: beyond, the rare ones count as segments that vary.
const MOST_NODES: usize = 100_000;

/// A path in its plain form, without a query. None: no server takes it.
pub(super) fn plain(target: &str) -> Option<String> {
    let raw = target.split(['?', '#']).next().unwrap_or_default();
    let path = normalize_path(raw, EncodedSlash::Reject).ok()?;
    Some(plain_form(&path).into_owned())
}

/// The paths that were seen, as a tree of their segments.
#[derive(Default)]
pub(super) struct Paths {
    root: Node,
    nodes: usize,
    requests: u64,
}

impl Paths {
    /// Adds the path of so many requests, with or without a query. `failed`: whose they were, if
    /// their credentials did not pass. A path that no server takes is counted, and belongs to no
    /// route.
    pub(super) fn add(&mut self, target: &str, times: u64, failed: Option<IpAddr>) {
        self.requests += times;
        let Some(path) = plain(target) else { return };
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let mut node = &mut self.root;
        node.through += times;
        for segment in segments.by_ref().take(MOST_DEPTH) {
            let (next, is_new) = node.below(segment);
            self.nodes += usize::from(is_new);
            node = next;
            node.through += times;
        }
        node.ends += times;
        if let Some(client) = failed {
            node.failures.add(times, client);
        }
        node.is_cut |= segments.next().is_some();
        if self.nodes > MOST_NODES {
            self.shrink();
        }
    }

    /// Makes rare segments vary, the rarest first, until half of the room is free: so this is done
    /// once for many new places.
    fn shrink(&mut self) {
        let mut least = 2_u64;
        while self.nodes > MOST_NODES / 2 {
            self.nodes = self.root.fold_rare(least);
            least = least.saturating_mul(4);
        }
    }

    /// The patterns that at least this part of all requests takes, at most so many: in an order in
    /// which each request takes its own.
    pub(super) fn templates(mut self, part: f64, most: usize) -> Vec<Template> {
        self.root.merge_siblings(self.requests);
        let mut all = Vec::new();
        self.root.collect(&mut Vec::new(), &mut all);
        let least = (self.requests as f64 * part).ceil() as u64;
        all.retain(|template: &Template| template.requests >= least.max(1));
        all.sort_by_key(|template| std::cmp::Reverse(template.requests));
        all.truncate(most);
        all.sort_by(in_order);
        all
    }
}
