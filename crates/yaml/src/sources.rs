//! Where files and environment variables are read from.
//!
//! Policies name key files and variables. Reading them through this one value lets the demo and the
//! tests lay their own over the system's, keeps compiling a policy free of hidden inputs, and lets
//! a reload know what a configuration was made of.

mod inputs;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

pub use self::inputs::{Endings, Inputs};

/// The system's files and environment, with others laid over them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: HashMap<PathBuf, Vec<u8>>,
    variables: HashMap<String, String>,
    /// Whether what keys, certificates and secrets are made of is left alone.
    by_name: bool,
    /// What was read of the system's files, if that is recorded.
    record: Option<Arc<Mutex<Inputs>>>,
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

    /// The same for comparing policies where their key files, secrets and variables may be missing:
    /// a policy is compiled with their names in place of what they hold. It compares well, and must
    /// never be put in force.
    #[must_use]
    pub fn by_name(&self) -> Self {
        Sources { by_name: true, ..self.clone() }
    }

    /// Whether names stand for what they name.
    pub fn are_by_name(&self) -> bool {
        self.by_name
    }

    /// The same, remembering from here on what is read of the system's files. Variables of a
    /// process do not change.
    #[must_use]
    pub fn recording(&self) -> Self {
        Sources { record: Some(Arc::default()), ..self.clone() }
    }

    /// What was read since [`Sources::recording`].
    pub fn inputs(&self) -> Inputs {
        let record = self.record.as_ref();
        record.map(|record| record.lock().clone()).unwrap_or_default()
    }

    /// Content of a file, at most `max_bytes` of it.
    ///
    /// # Errors
    /// What the system says, that the file is larger, or that it is no regular file.
    pub fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
        if let Some(content) = self.files.get(path) {
            return Ok(content.clone());
        }
        let content = inputs::read(path, max_bytes);
        if let Some(record) = &self.record {
            record.lock().note_file(path, max_bytes, &content);
        }
        content
    }

    /// The files of a folder whose names end so, in the order of their names. Those whose names
    /// begin with a dot are left out.
    ///
    /// # Errors
    /// What the system says: there is no such folder, or it is a file.
    pub fn list(&self, folder: &Path, endings: Endings) -> io::Result<Vec<PathBuf>> {
        let files = inputs::list(folder, endings);
        if let Some(record) = &self.record {
            record.lock().note_folder(folder, endings, &files);
        }
        files
    }

    /// Whether everybody on this machine may read the file at `path`.
    pub fn is_open_to_all(&self, path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        const READ_BY_OTHERS: u32 = 0o004;
        let mode = |path| std::fs::metadata(path).map(|file| file.permissions().mode());
        !self.files.contains_key(path) && mode(path).is_ok_and(|mode| mode & READ_BY_OTHERS != 0)
    }

    /// Value of an environment variable, if it is set to something.
    pub fn variable(&self, name: &str) -> Option<String> {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
        let system = || std::env::var(name).ok();
        self.variables.get(name).cloned().or_else(system).filter(|value| !value.is_empty())
    }
}
