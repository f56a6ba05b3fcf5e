//! Paths that need no limit: what programs ask to see whether a server is well, and files that
//! never change.

use http::Method;
use tollgate_history::Record;

use super::counts::Counts;
use crate::paths::{plain, varies};

/// The first words of such routes.
const FIRST: [&str; 3] = ["static", "assets", ".well-known"];

/// What a route of one word is called, or of several the last one.
const LAST: [&str; 12] = [
    "health",
    "healthz",
    "healthcheck",
    "livez",
    "readyz",
    "ready",
    "alive",
    "ping",
    "metrics",
    "favicon.ico",
    "robots.txt",
    "sitemap.xml",
];

/// The ends of files that browsers load with a page.
const ENDS: [&str; 14] = [
    ".css", ".js", ".mjs", ".map", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".ico",
    ".woff", ".woff2", ".ttf",
];

/// Where the proxy says how limits stand.
pub(super) const RATE_LIMIT: &str = "/rate_limit";

/// Requests that make a route: fewer may be those of one who tries.
const LEAST_REQUESTS: u64 = 10;

/// The most routes without a limit.
const MOST_ROUTES: usize = 20;

/// Bytes of the longest pattern. A client can write longer ones, each of which would be kept.
const LONGEST: usize = 1024;

/// What there is of such paths, by the patterns of their routes.
#[derive(Default)]
pub(super) struct Free(Counts<String, u64>);

impl Free {
    /// Adds so many requests, if their path needs no limit: then they belong to no other route.
    /// What was not found, or not read, makes no route.
    pub(super) fn add(&mut self, record: &Record, path: &str, times: u64) -> bool {
        let Some(pattern) = plain(path).and_then(|path| pattern_of(&path)) else { return false };
        if !matches!(record.method, Method::GET | Method::HEAD) {
            return false;
        }
        if record.status.is_none_or(|status| (200..400).contains(&status)) {
            self.0.of(pattern).into_iter().for_each(|count| *count += times);
        }
        true
    }

    /// The patterns of their routes, the most frequent ones.
    pub(super) fn patterns(mut self) -> Vec<String> {
        self.0.0.retain(|_, count| *count >= LEAST_REQUESTS);
        let mut patterns = self.0.names();
        patterns.truncate(MOST_ROUTES);
        patterns.sort();
        patterns
    }
}

/// The pattern of the route that a path belongs to, if it needs no limit: one for a folder of
/// files, or for all files of one kind in a folder.
fn pattern_of(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (last, folders) = segments.split_last()?;
    if let Some(first) = folders.first().filter(|first| FIRST.contains(*first)) {
        return Some(format!("/{first}/**"));
    }
    let last = match ENDS.iter().find(|end| last.ends_with(**end)) {
        _ if LAST.contains(last) => (*last).to_owned(),
        Some(end) => format!("*{end}"),
        None => return None,
    };
    let folders = folders.iter().map(|folder| if varies(folder) { "*" } else { folder });
    let pattern = format!("/{}", folders.chain([last.as_str()]).collect::<Vec<&str>>().join("/"));
    Some(pattern).filter(|pattern| pattern.len() <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_folder_are_one_route() {
        for (path, expected) in [
            ("/static/a/chunk-1.js", Some("/static/**")),
            ("/.well-known/jwks.json", Some("/.well-known/**")),
            ("/chunk-17.js", Some("/*.js")),
            ("/img/4711/logo.png", Some("/img/*/*.png")),
            ("/favicon.ico", Some("/favicon.ico")),
            ("/v1/health", Some("/v1/health")),
            ("/static", None),
            (&*("/a".repeat(600) + "/health"), None),
            ("/v1/items", None),
            ("/", None),
        ] {
            assert_eq!(pattern_of(path).as_deref(), expected, "{path}");
        }
    }
}
