//! Secrets that are published with this program, for the sample to run with one command.

/// What docker-compose.yml sets where its user sets nothing.
const OF_SAMPLE: [&str; 3] =
    ["published-redis-password", "published-key-secret", "published-jwt-secret-of-37-characters"];
/// What to do about one.
const HELP: &str = "set one of your own, for example what `openssl rand -hex 32` prints";

/// What is wrong with a secret that `named` says, a variable or a file, and what to do about it:
/// everybody can read the sample's, so with one of them tokens can be forged.
pub fn published_secret(named: &str, secret: &[u8]) -> Option<(String, &'static str)> {
    let is_published = OF_SAMPLE.iter().any(|known| known.as_bytes() == secret);
    let message = || format!("`{named}` is the sample's secret, which is published");
    is_published.then(|| (message(), HELP))
}
