//! The routes of a log: paths whose segments vary become patterns.

use std::collections::BTreeMap;

/// Of more segments at one place, all count as one that varies.
const MOST_SIBLINGS: usize = 24;

/// Segments of a path that are distinguished; what is deeper is cut off.
const MOST_DEPTH: usize = 8;

/// Places of all paths: beyond, new ones count as segments that vary.
const MOST_NODES: usize = 100_000;

/// The paths that were seen, as a tree of their segments.
#[derive(Default)]
pub(super) struct Paths {
    root: Node,
    nodes: usize,
    requests: u64,
}

#[derive(Default)]
struct Node {
    /// Requests whose path ends here.
    requests: u64,
    children: BTreeMap<Box<str>, Node>,
    /// What is below a segment that varies.
    varying: Option<Box<Node>>,
}

/// A pattern of paths, as policies write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// Such as `/repos/{a}/issues`.
    pub(super) pattern: String,
    /// Words for a name: the segments that do not vary.
    pub(super) words: Vec<String>,
    pub(super) requests: u64,
    /// How many segments vary.
    varying: usize,
}

impl Paths {
    /// Adds the path of a request, with or without a query.
    pub(super) fn add(&mut self, target: &str) {
        self.requests += 1;
        let path = target.split(['?', '#']).next().unwrap_or_default();
        let mut node = &mut self.root;
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        for segment in segments.take(MOST_DEPTH) {
            let is_full = self.nodes >= MOST_NODES && !node.children.contains_key(segment);
            node = match varies(segment) || is_full {
                true => node.varying.get_or_insert_default(),
                false => {
                    if !node.children.contains_key(segment) {
                        self.nodes += 1;
                    }
                    node.children.entry(segment.into()).or_default()
                }
            };
        }
        node.requests += 1;
    }

    /// The patterns that at least this part of all requests takes, at most so many: in an order in
    /// which each request takes its own.
    pub(super) fn templates(mut self, part: f64, most: usize) -> Vec<Template> {
        self.root.merge_siblings();
        let mut all = Vec::new();
        self.root.collect(&mut Vec::new(), &mut all);
        let least = (self.requests as f64 * part).ceil() as u64;
        all.retain(|template: &Template| template.requests >= least.max(1));
        all.sort_by_key(|template| std::cmp::Reverse(template.requests));
        all.truncate(most);
        all.sort_by(|one, other| {
            one.varying.cmp(&other.varying).then_with(|| one.pattern.cmp(&other.pattern))
        });
        all
    }
}

impl Node {
    /// Makes siblings that are too many one segment that varies.
    fn merge_siblings(&mut self) {
        if self.children.len() > MOST_SIBLINGS {
            let varying = self.varying.get_or_insert_default();
            for (_, child) in std::mem::take(&mut self.children) {
                varying.merge(child);
            }
        }
        self.children.values_mut().for_each(Node::merge_siblings);
        if let Some(varying) = &mut self.varying {
            varying.merge_siblings();
        }
    }

    fn merge(&mut self, other: Node) {
        self.requests += other.requests;
        for (segment, child) in other.children {
            self.children.entry(segment).or_default().merge(child);
        }
        if let Some(varying) = other.varying {
            self.varying.get_or_insert_default().merge(*varying);
        }
    }

    fn collect<'n>(&'n self, above: &mut Vec<Option<&'n str>>, all: &mut Vec<Template>) {
        if self.requests > 0 {
            all.push(template(above, self.requests));
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

fn template(segments: &[Option<&str>], requests: u64) -> Template {
    let mut pattern = String::new();
    let mut names = 'a'..='z';
    for segment in segments {
        pattern.push('/');
        match (segment, names.clone().next()) {
            (Some(segment), _) => pattern.push_str(segment),
            (None, Some(name)) => {
                names.next();
                pattern += &format!("{{{name}}}");
            }
            (None, None) => pattern.push('*'),
        }
    }
    if pattern.is_empty() {
        pattern.push('/');
    }
    let words = segments.iter().flatten().map(|word| word.to_string()).collect();
    let varying = segments.iter().filter(|segment| segment.is_none()).count();
    Template { pattern, words, requests, varying }
}

/// Whether a segment looks like a name of one thing among many: a number, a hash, an address.
fn varies(segment: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(paths: &[&str]) -> Vec<String> {
        let mut all = Paths::default();
        paths.iter().for_each(|path| all.add(path));
        all.templates(0.0, 100).into_iter().map(|template| template.pattern).collect()
    }

    #[test]
    fn segments_that_vary_become_parameters() {
        let found = patterns(&[
            "/",
            "/v1/users/42/posts?page=2",
            "/v1/users/7f3a-99/posts",
            "/v1/users",
            "/files/550e8400-e29b-41d4-a716-446655440000",
            "/mail/a@b.c",
            "/api/oauth2/token",
        ]);
        assert_eq!(
            found,
            [
                "/",
                "/api/oauth2/token",
                "/v1/users",
                "/files/{a}",
                "/mail/{a}",
                "/v1/users/{a}/posts"
            ]
        );
    }

    #[test]
    fn many_names_at_one_place_are_one_that_varies() {
        let name =
            |at: usize| format!("/repos/{}{}/issues", "a".repeat(at % 20), "b".repeat(at / 20));
        let names: Vec<String> = (1..60).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(patterns(&names), ["/repos/{a}/issues"]);
    }

    #[test]
    fn rare_paths_are_left_out() {
        let mut all = Paths::default();
        (0..99).for_each(|_| all.add("/often"));
        all.add("/seldom");
        let found = all.templates(0.02, 10);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pattern.as_str(), found[0].requests), ("/often", 99));
    }
}
