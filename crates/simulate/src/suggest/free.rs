//! Routes that need no limit: what programs ask to see whether a server is well, and files that
//! never change.

use crate::paths::Template;

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

/// Whether a route needs no limit.
pub(super) fn is_free(template: &Template) -> bool {
    let Some(last) = template.pattern.rsplit('/').next() else { return false };
    let first = template.pattern.split('/').nth(1).unwrap_or_default();
    FIRST.contains(&first) || LAST.contains(&last) || ENDS.iter().any(|end| last.ends_with(end))
}
