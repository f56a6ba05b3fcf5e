//! Secrets: settings name a variable or a file that holds one, and it is shown nowhere.

use std::fmt;

use super::{Checker, beside};
use crate::yaml::Spanned;

/// Largest file with a secret that is read.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Box<str>);

impl Secret {
    /// Hides `text` from here on.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text, for whom it is meant.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl Checker<'_> {
    /// The secret in the variable or the file that was named, if one of them was.
    pub(super) fn secret(
        &mut self,
        variable: Option<&Spanned<String>>,
        file: Option<&Spanned<String>>,
    ) -> Option<Secret> {
        match (variable, file) {
            (None, None) => None,
            (Some(variable), None) => self.secret_in_variable(variable),
            (None, Some(file)) => self.secret_in_file(file),
            (Some(variable), Some(file)) => {
                let second = if variable.span.start > file.span.start { variable } else { file };
                self.refuse(second, "a secret from two sources", "keep the variable or the file");
                None
            }
        }
    }

    fn secret_in_variable(&mut self, name: &Spanned<String>) -> Option<Secret> {
        let secret = self.sources.variable(&name.value);
        if secret.is_none() {
            let message = format!("environment variable `{}` is not set", name.value);
            self.refuse(name, message, "set it to the secret");
        }
        secret.as_deref().map(Secret::new)
    }

    fn secret_in_file(&mut self, path: &Spanned<String>) -> Option<Secret> {
        let content = self.file(path, MAX_SECRET_FILE_BYTES)?;
        // Editors end files with a line break that is no part of the secret.
        let secret = std::str::from_utf8(content.trim_ascii_end()).ok();
        if secret.is_none_or(str::is_empty) {
            let message = format!("`{}` holds no secret", path.value);
            self.refuse(path, message, "write the secret into it, as text");
            return None;
        }
        secret.map(Secret::new)
    }

    /// Content of a file that the settings name.
    pub(super) fn file(&mut self, path: &Spanned<String>, max_bytes: u64) -> Option<Vec<u8>> {
        match self.sources.read(&beside(self.file, &path.value), max_bytes) {
            Ok(content) => Some(content),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.value);
                self.refuse(path, message, "write a path from this file's folder");
                None
            }
        }
    }
}
