//! Where files and environment variables are read from.
//!
//! Policies name key files and variables. Reading them through this one value lets the demo and the
//! tests lay their own over the system's, and keeps compiling a policy free of hidden inputs.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

/// The system's files and environment, with others laid over them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: HashMap<PathBuf, Vec<u8>>,
    variables: HashMap<String, String>,
}

impl Sources {
    /// The system as it is.
    pub fn system() -> Self {
        Sources::default()
    }

    /// With `content` in place of the file at `path`.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    /// With `value` in place of the environment variable `name`.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Content of a file, at most `max_bytes` of it.
    ///
    /// # Errors
    /// What the system says, or that the file is larger.
    pub fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        use io::Read;
        if let Some(content) = self.files.get(path) {
            return Ok(content.clone());
        }
        let mut content = Vec::new();
        std::fs::File::open(path)?.take(max_bytes + 1).read_to_end(&mut content)?;
        if content.len() as u64 > max_bytes {
            return Err(io::Error::other(format!("larger than {max_bytes} bytes")));
        }
        Ok(content)
    }

    /// Value of an environment variable, if it is set to something.
    pub fn variable(&self, name: &str) -> Option<String> {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
        let system = || std::env::var(name).ok();
        self.variables.get(name).cloned().or_else(system).filter(|value| !value.is_empty())
    }
}
