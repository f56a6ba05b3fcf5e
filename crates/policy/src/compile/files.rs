//! Files that a policy names: keys, certificates, secrets. They are found from the policy's folder.

use tollgate_yaml::{Spanned, warning::Rule};

use super::Compiler;
use crate::published_secret;

impl Compiler<'_> {
    /// Content of a file.
    pub(super) fn read(&mut self, path: &Spanned<String>, max_bytes: u64) -> Option<Vec<u8>> {
        match self.sources.read(&self.folder.join(&path.value), max_bytes) {
            Ok(content) => Some(content),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.value);
                self.refuse(path.span, message, "write a path from this file's folder");
                None
            }
        }
    }

    /// Whether names stand for what files and variables hold; then this one is noted.
    pub(super) fn is_by_name(&mut self, name: &Spanned<String>) -> bool {
        if self.sources.are_by_name() {
            self.fingerprint.add(name.value.as_bytes());
        }
        self.sources.are_by_name()
    }

    /// Content of a file that says who callers are.
    pub(super) fn read_for_identity(
        &mut self,
        path: &Spanned<String>,
        max_bytes: u64,
    ) -> Option<Vec<u8>> {
        let content = self.read(path, max_bytes)?;
        self.fingerprint.add(&content);
        Some(content)
    }

    /// The same, of a file that no other user should be able to read.
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

    pub(super) fn warn_if_open_to_all(&mut self, path: &Spanned<String>) {
        if self.sources.is_open_to_all(&self.folder.join(&path.value)) {
            let message = format!("everybody on this machine can read `{}`", path.value);
            let help = "it contains a secret: run `chmod o-r` on it";
            self.warn(Rule::ReadableSecret, path.span, message, help);
        }
    }
}
