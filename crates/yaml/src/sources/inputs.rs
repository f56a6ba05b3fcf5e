//! What a configuration was made of: each file and folder that was read, and what was in it.
//!
//! Reading is a function of its inputs, so as long as they look the same, reading again has the
//! same result, good or bad. What could not be read is an input too: that it is there now is a
//! change.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest;

/// Files and folders that were read, each with what was in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs(BTreeMap<(PathBuf, InputKind), State>);

/// How something was read. One path may be read in more than one way: what was asked for its files
/// may be a file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InputKind {
    File { max_bytes: u64 },
    Folder { endings: Endings },
}

/// How the names of the files end that are wanted of a folder. Names that begin with a dot are
/// never wanted, as `ls` does not show them: they are locks, swap files and metadata of other
/// programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endings(pub &'static [&'static str]);

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Content([u8; 32]),
    Files(Vec<PathBuf>),
    Unreadable(io::ErrorKind),
    /// Two reads found two things: whatever is there now is something else.
    Torn,
}

/// The properties of a new file that show whether it is still being written.
const MAX_NEW_FILE_BYTES: u64 = 1 << 20;

impl Inputs {
    /// The same files and folders as they are now, with the files that have appeared in the
    /// folders.
    #[must_use]
    pub fn read_again(&self) -> Inputs {
        let mut now = Inputs::default();
        for (path, how) in self.0.keys() {
            match *how {
                InputKind::File { max_bytes } => {
                    now.note_file(path, max_bytes, &read(path, max_bytes))
                }
                InputKind::Folder { endings } => {
                    let files = list(path, endings);
                    now.note_folder(path, endings, &files);
                    let is_new = |file: &PathBuf| self.paths().all(|known| known != file);
                    for file in files.unwrap_or_default().into_iter().filter(is_new) {
                        now.note_file(&file, MAX_NEW_FILE_BYTES, &read(&file, MAX_NEW_FILE_BYTES));
                    }
                }
            }
        }
        now
    }

    /// The same files and folders with nothing known of what is in them, so that they look
    /// otherwise now whatever there is.
    #[must_use]
    pub fn torn(mut self) -> Inputs {
        self.0.values_mut().for_each(|state| *state = State::Torn);
        self
    }

    /// The folders that were listed, or were to be, and which files of them are wanted.
    pub fn folders(&self) -> impl Iterator<Item = (&Path, Endings)> {
        self.0.keys().filter_map(|(path, how)| match how {
            InputKind::File { .. } => None,
            InputKind::Folder { endings } => Some((path.as_path(), *endings)),
        })
    }

    /// The paths of all of them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(|(path, _)| path.as_path())
    }

    /// A short name of the policies, the same at every proxy that has the same: 16 hexadecimal
    /// digits. Other files are not in it, as some hold secrets that could be guessed by it.
    pub fn policies_digest(&self) -> String {
        let mut policies = Vec::new();
        for ((path, how), state) in &self.0 {
            match (how, state) {
                (InputKind::File { .. }, _) => {}
                (InputKind::Folder { .. }, State::Files(files)) => policies.extend(files),
                (InputKind::Folder { .. }, _) => policies.push(path),
            }
        }
        let mut all = digest::Context::new(&digest::SHA256);
        for ((path, _), state) in &self.0 {
            if let (State::Content(content), true) = (state, policies.contains(&path)) {
                let name = path.file_name().unwrap_or_default();
                all.update(&hash(name.as_encoded_bytes()));
                all.update(content);
            }
        }
        all.finish().as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn note_file(&mut self, path: &Path, max_bytes: u64, content: &io::Result<Vec<u8>>) {
        let state = match content {
            Ok(content) => State::Content(hash(content)),
            Err(error) => State::Unreadable(error.kind()),
        };
        self.note(path, InputKind::File { max_bytes }, state);
    }

    pub(super) fn note_folder(
        &mut self,
        path: &Path,
        endings: Endings,
        files: &io::Result<Vec<PathBuf>>,
    ) {
        let state = match files {
            Ok(files) => State::Files(files.clone()),
            Err(error) => State::Unreadable(error.kind()),
        };
        self.note(path, InputKind::Folder { endings }, state);
    }

    fn note(&mut self, path: &Path, how: InputKind, state: State) {
        match self.0.get_mut(&(path.to_owned(), how)) {
            Some(known) if *known == state => {}
            Some(known) => *known = State::Torn,
            None => drop(self.0.insert((path.to_owned(), how), state)),
        }
    }
}

impl Endings {
    /// Whether the file at this path is wanted, by its name.
    pub fn fit(self, path: &Path) -> bool {
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().and_then(|ending| ending.to_str());
        !is_hidden && ending.is_some_and(|ending| self.0.contains(&ending))
    }
}

/// Content of a file, at most `max_bytes` of it.
pub(super) fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // To open a pipe is to wait for somebody to write to it, who may never come.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(max_bytes + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("larger than {max_bytes} bytes")));
    }
    Ok(content)
}

/// Paths of the files in a folder whose names are as wanted, sorted.
pub(super) fn list(folder: &Path, endings: Endings) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if endings.fit(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn hash(content: &[u8]) -> [u8; 32] {
    let hash = digest::digest(&digest::SHA256, content);
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::Sources;

    const YAML: Endings = Endings(&["yaml"]);

    #[test]
    fn inputs_look_the_same_until_one_of_them_changes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.yaml"), "a").unwrap();
        let sources = Sources::system().recording();
        sources.list(folder.path(), YAML).unwrap();
        sources.read(&at("a.yaml"), 100).unwrap();
        sources.read(&at("gone"), 100).unwrap_err();
        let inputs = sources.inputs();
        assert_eq!(inputs.read_again(), inputs);
        assert_eq!(inputs.paths().count(), 3);

        type Change = fn(&Path);
        let changes: [(&str, Change, Change); 4] = [
            (
                "content",
                |f| fs::write(f.join("a.yaml"), "b").unwrap(),
                |f| {
                    fs::write(f.join("a.yaml"), "a").unwrap();
                },
            ),
            (
                "new file",
                |f| fs::write(f.join("b.yaml"), "b").unwrap(),
                |f| {
                    fs::remove_file(f.join("b.yaml")).unwrap();
                },
            ),
            (
                "file is there",
                |f| fs::write(f.join("gone"), "").unwrap(),
                |f| {
                    fs::remove_file(f.join("gone")).unwrap();
                },
            ),
            (
                "file is gone",
                |f| fs::remove_file(f.join("a.yaml")).unwrap(),
                |f| {
                    fs::write(f.join("a.yaml"), "a").unwrap();
                },
            ),
        ];
        for (name, change, undo) in changes {
            change(folder.path());
            assert_ne!(inputs.read_again(), inputs, "{name}");
            undo(folder.path());
            assert_eq!(inputs.read_again(), inputs, "{name} undone");
        }
        fs::write(at("c.swp"), "other names are not read").unwrap();
        assert_eq!(inputs.read_again(), inputs);
    }

    #[test]
    fn policies_have_the_same_short_name_wherever_they_are() {
        let name = |policy: &str, key: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("a.yaml"), policy).unwrap();
            fs::write(folder.path().join("key"), key).unwrap();
            let sources = Sources::system().recording();
            sources.list(folder.path(), YAML).unwrap();
            sources.read(&folder.path().join("a.yaml"), 100).unwrap();
            sources.read(&folder.path().join("key"), 100).unwrap();
            sources.inputs().policies_digest()
        };
        assert_eq!(name("a", "secret"), name("a", "another"));
        assert_ne!(name("a", "secret"), name("b", "secret"));
        assert_eq!(name("a", "secret").len(), 16);
    }

    #[test]
    fn single_file_is_a_policy_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let name = |policy: &str| {
            fs::write(&file, policy).unwrap();
            let sources = Sources::system().recording();
            sources.list(&file, YAML).unwrap_err();
            sources.read(&file, 100).unwrap();
            assert_eq!(sources.inputs().read_again(), sources.inputs());
            sources.inputs().policies_digest()
        };
        assert_ne!(name("a"), name("b"));
    }

    #[test]
    fn new_file_that_is_still_written_looks_different_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources::system().recording();
        sources.list(folder.path(), YAML).unwrap();
        let inputs = sources.inputs();
        fs::write(folder.path().join("new.yaml"), "versi").unwrap();
        let half = inputs.read_again();
        fs::write(folder.path().join("new.yaml"), "version: 1").unwrap();
        assert_ne!(inputs.read_again(), half);
    }

    #[test]
    fn file_that_changes_between_two_reads_is_torn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let sources = Sources::system().recording();
        for content in ["old", "new"] {
            fs::write(&file, content).unwrap();
            sources.read(&file, 100).unwrap();
        }
        assert_ne!(sources.inputs().read_again(), sources.inputs());
    }

    #[test]
    fn what_is_laid_over_the_system_is_no_input() {
        let sources = Sources::system().with_file("key", "k").recording();
        sources.read(Path::new("key"), 10).unwrap();
        assert_eq!(sources.inputs(), Inputs::default());
    }

    #[test]
    fn hidden_files_are_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.yaml"), "").unwrap();
        fs::write(at("._a.yaml"), "what another system keeps about a file").unwrap();
        std::os::unix::fs::symlink("user@host.1234", at(".#a.yaml")).unwrap();
        let sources = Sources::system().recording();
        assert_eq!(sources.list(folder.path(), YAML).unwrap(), [at("a.yaml")]);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            let error = Sources::system().read(path, 100).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn torn_inputs_look_otherwise_whatever_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources::system().recording();
        sources.list(folder.path(), YAML).unwrap();
        sources.read(&folder.path().join("gone"), 100).unwrap_err();
        let torn = sources.inputs().torn();
        assert_ne!(torn.read_again(), torn);
        assert_eq!(
            torn.read_again(),
            sources.inputs(),
            "nothing is forgotten but what was in them"
        );
    }
}
