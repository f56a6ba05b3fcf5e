//! Routes at which clients prove who they are: their failures are counted, not their requests.

use crate::{Curve, paths::Template};

/// What such routes are called.
const WORDS: [&str; 14] = [
    "login", "log-in", "signin", "sign-in", "session", "sessions", "auth", "token", "password",
    "otp", "verify", "2fa", "mfa", "oauth",
];

/// Failures in a minute and in an hour that a limit allows at least: people mistype.
const LEAST: [(u64, u32); 2] = [(60, 10), (3600, 30)];

/// Whether most requests of a route had credentials that did not pass, and either its name says
/// that it is a login, or they are of a few clients.
pub(super) fn is_login(template: &Template) -> bool {
    let Template { failures, words, requests, .. } = template;
    let is_word = |word: &String| WORDS.contains(&word.to_ascii_lowercase().as_str());
    failures.are_most_of(*requests) && (words.iter().any(is_word) || failures.are_of_few())
}

/// The failures that are allowed in the windows of these curves, of whatever tier.
pub(super) fn rates<'c>(curves: impl Iterator<Item = &'c Curve> + Clone) -> String {
    let of = |(seconds, least): (u64, u32)| {
        let of_window = curves.clone().filter(|curve| curve.window_seconds == seconds);
        of_window.map(|curve| curve.suggested).fold(least, u32::max)
    };
    let [minute, hour] = LEAST.map(of);
    format!("[{minute}/minute, {hour}/hour]")
}
