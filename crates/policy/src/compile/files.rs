//! Files that a policy names: keys, certificates, secrets. They are found from the policy's folder.

use tollgate_yaml::{Check, Spanned, warning::Rule};

use super::Compiler;
use crate::published_secret;

impl Compiler<'_> {
    /// Whether names stand for what files and variables hold; then this one is noted.
    pub(super) fn is_by_name(&mut self, name: &Spanned<String>) -> bool {
        if self.inspection.sources.are_by_name() {
            self.fingerprint.add(name.value.as_bytes());
        }
        self.inspection.sources.are_by_name()
    }

    /// Content of a file that says who callers are.
    pub(super) fn read_for_identity(
        &mut self,
        path: &Spanned<String>,
        max_bytes: u64,
    ) -> Option<Vec<u8>> {
        let content = self.file(path, max_bytes)?;
        self.fingerprint.add(&content);
        Some(content)
    }

    /// A secret in an environment variable; `help` says what that is set to.
    pub(super) fn secret_variable(&mut self, name: &Spanned<String>, help: &str) -> Option<String> {
        let secret = self.variable(name, help)?;
        self.fingerprint.add(secret.as_bytes());
        self.warn_if_published(name, secret.as_bytes());
        Some(secret)
    }

    /// The content, of a file that no other user should be able to read.
    pub(super) fn read_secret(
        &mut self,
        path: &Spanned<String>,
        max_bytes: u64,
    ) -> Option<Vec<u8>> {
        let content = self.read_for_identity(path, max_bytes)?;
        self.warn_if_published(path, content.trim_ascii_end());
        self.warn_if_open_to_all(path);
        Some(content)
    }

    /// A secret that everybody knows is no reason to stop: the sample is there to be tried.
    pub(super) fn warn_if_published(&mut self, named: &Spanned<String>, secret: &[u8]) {
        if let Some((message, help)) = published_secret(&named.value, secret) {
            self.warn(Rule::PublishedSecret, named.span, message, help);
        }
    }
}
