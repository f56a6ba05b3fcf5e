//! What is configured at a path that a command was given: a settings file, a policy file, or a
//! folder with either.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use tollgate_policy::{Policies, load};
use tollgate_settings::{Configuration, Settings, read_policies, read_policies_of, read_text};
use tollgate_yaml::{Document, Problem, Sources, Value};

/// What was found at a path.
pub(super) struct Configured {
    /// The settings and their file, unless only policies were asked for, or all is read by name.
    pub(super) settings: Option<(PathBuf, Settings)>,
    /// The policies.
    pub(super) policies: Policies,
    /// Whether it is one policy file.
    pub(super) is_one_policy: bool,
}

impl Configured {
    /// Reads what is at `path`.
    ///
    /// # Errors
    /// Every problem of every file.
    pub(super) fn read(path: &Path, sources: &Sources) -> Result<Configured, Vec<Problem>> {
        let settings_inside = path.join("tollgate.yaml");
        if path.is_dir() && settings_inside.is_file() {
            Self::read_settings(&settings_inside, sources)
        } else if path.is_dir() {
            Ok(Self::without_settings(read_policies(path, sources)?))
        } else if is_policy(path, sources)? {
            Self::read_as(path, path, sources)
        } else {
            Self::read_settings(path, sources)
        }
    }

    /// Reads the policy file at `path` as if it were called as `name` is: the name is a part of
    /// every counter's key.
    ///
    /// # Errors
    /// Every problem of the file.
    pub(super) fn read_as(
        path: &Path,
        name: &Path,
        sources: &Sources,
    ) -> Result<Configured, Vec<Problem>> {
        let text = read_text(path, sources)?;
        // A pipe has no folder with key files beside it; what it is called as may have.
        let called = match is_pipe(path) {
            true => name.to_owned(),
            false => path.with_file_name(name.file_name().unwrap_or_default()),
        };
        let policies = Policies::new(vec![load(&called, &text, sources)?]);
        Ok(Configured { is_one_policy: true, ..Self::without_settings(policies) })
    }

    fn read_settings(file: &Path, sources: &Sources) -> Result<Configured, Vec<Problem>> {
        if sources.are_by_name() {
            return Ok(Self::without_settings(read_policies_of(file, sources)?));
        }
        let Configuration { settings, policies } = Configuration::read(file, sources)?;
        Ok(Configured {
            settings: Some((file.to_owned(), settings)),
            ..Self::without_settings(policies)
        })
    }

    fn without_settings(policies: Policies) -> Configured {
        Configured { settings: None, policies, is_one_policy: false }
    }
}

/// The system's files, with what is read from those of `paths` that are pipes in place of them: a
/// pipe, such as `<(git show main:policy.yaml)`, can be read only once.
///
/// # Errors
/// A pipe that cannot be read.
pub(super) fn sources_of(paths: &[&Path]) -> Result<Sources, Vec<Problem>> {
    let mut sources = Sources::system();
    for path in paths.iter().filter(|path| is_pipe(path)) {
        let mut content = Vec::new();
        let pipe = File::open(path).map(|pipe| pipe.take(MAX_PIPE_BYTES));
        if let Err(error) = pipe.and_then(|mut pipe| pipe.read_to_end(&mut content)) {
            let file = path.display().to_string();
            return Err(vec![Problem::whole_file(&file, format!("cannot read: {error}"), "")]);
        }
        sources = sources.with_file(*path, content);
    }
    Ok(sources)
}

pub(super) fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| !file.is_file() && !file.is_dir())
}

/// Larger than any configuration file may be, so that a longer file is reported as too long.
const MAX_PIPE_BYTES: u64 = 2 << 20;

/// Settings and policies are distinguished by their content, not by their names.
fn is_policy(file: &Path, sources: &Sources) -> Result<bool, Vec<Problem>> {
    let text = read_text(file, sources)?;
    let document =
        Document::parse(&file.display().to_string(), &text).map_err(|problem| vec![problem])?;
    let Value::Mapping(entries) = &document.root().value else { return Ok(false) };
    let has = |names: &[&str]| entries.iter().any(|(name, _)| names.contains(&name.as_str()));
    Ok(has(&["routes", "upstreams", "identity", "tiers"])
        || !has(&["listeners", "policies", "store"]))
}
