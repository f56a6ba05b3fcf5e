//! Where something would have to happen for a path to lead to another content.
//!
//! That is the file itself, the folder that it is in, and the folder of each symbolic link on the
//! way: a mounted ConfigMap has `policy.yaml -> ..data/policy.yaml` and `..data -> ..2026_11_21`,
//! and changes by a new `..data`. The file by itself is not enough, as most editors put a new one
//! in its place; its folder is not either, as a file that is mounted alone changes somewhere else.
//!
//! In these folders other things happen too: a log grows, counters are saved, an editor swaps. Only
//! some names in them matter.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use tollgate_yaml::{Endings, Inputs};

/// As many links on the way to one file are followed: more than the system itself follows.
const MAX_LINKS: usize = 64;

/// What leads to the inputs of a configuration. No path here is reached over a link.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Files and folders to watch. All are there: of what is missing, the last folder on the way.
    watched: BTreeSet<PathBuf>,
    /// What matters in these folders by its name: a file, a link on the way, what is missing.
    names: BTreeSet<PathBuf>,
    /// Folders in which each file matters whose name ends so.
    listed: Vec<(PathBuf, Endings)>,
}

impl Places {
    /// What leads to `inputs` now.
    pub(super) fn of(inputs: &Inputs) -> Places {
        let mut places = Places::default();
        for path in inputs.paths() {
            places.add(path);
        }
        for (folder, endings) in inputs.folders() {
            if let Some(folder) = places.add(folder) {
                places.listed.push((folder, endings));
            }
        }
        places
    }

    /// Files and folders to watch.
    pub(super) fn watched(&self) -> impl Iterator<Item = &Path> {
        self.watched.iter().map(PathBuf::as_path)
    }

    /// Whether the inputs may be others when something has happened to `path`.
    pub(super) fn concern(&self, path: &Path) -> bool {
        let is_listed = |(folder, endings): &(PathBuf, Endings)| {
            path.parent() == Some(folder) && endings.fit(path)
        };
        self.watched.contains(path)
            || self.names.contains(path)
            || self.listed.iter().any(is_listed)
    }

    /// Adds what leads to `path`, and returns its final location, if it exists.
    fn add(&mut self, path: &Path) -> Option<PathBuf> {
        let path = std::path::absolute(path).ok()?;
        let mut at = PathBuf::from("/");
        // What is left of the way, the next step last.
        let mut ahead = steps(&path);
        let mut links = 0;
        while let Some(step) = ahead.pop() {
            if step == ".." {
                at.pop();
                continue;
            }
            let next = at.join(step);
            match std::fs::read_link(&next) {
                Ok(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    self.watched.insert(at.clone());
                    self.names.insert(next);
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    ahead.extend(steps(&target));
                }
                Err(_) if next.symlink_metadata().is_err() => {
                    self.watched.insert(at);
                    self.names.insert(next);
                    return None;
                }
                Err(_) => at = next,
            }
        }
        self.watched.extend(at.parent().map(Path::to_owned));
        self.watched.insert(at.clone());
        Some(at)
    }
}

/// The steps of a path, the first last.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let mut steps: Vec<OsString> = steps.collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tempfile::TempDir;
    use tollgate_yaml::Sources;

    use super::*;

    const YAML: Endings = Endings(&["yaml"]);

    struct Folder {
        path: PathBuf,
        _removed_at_the_end: TempDir,
    }

    impl Folder {
        fn new() -> Folder {
            let folder = TempDir::new().unwrap();
            // The way to the folder itself may lead over links.
            let path = folder.path().canonicalize().unwrap();
            Folder { path, _removed_at_the_end: folder }
        }

        /// What is watched for a file.
        fn places(&self, path: &str) -> Vec<String> {
            let sources = Sources::system().recording();
            let _ = sources.read(&self.path.join(path), 100);
            let places = Places::of(&sources.inputs());
            let inside = places.watched().filter_map(|place| place.strip_prefix(&self.path).ok());
            inside.map(|place| place.display().to_string()).collect()
        }
    }

    #[test]
    fn file_is_watched_with_its_folder() {
        let folder = Folder::new();
        fs::create_dir_all(folder.path.join("a/b")).unwrap();
        fs::write(folder.path.join("a/b/file"), "").unwrap();
        assert_eq!(folder.places("a/b/file"), ["a/b", "a/b/file"]);
        assert_eq!(folder.places("a/b"), ["a", "a/b"]);
        assert_eq!(folder.places("a/b/../b/file"), ["a/b", "a/b/file"]);
    }

    #[test]
    fn folder_of_each_link_is_watched() {
        let folder = Folder::new();
        fs::create_dir_all(folder.path.join("mount/..2026")).unwrap();
        fs::write(folder.path.join("mount/..2026/file"), "").unwrap();
        symlink("..2026", folder.path.join("mount/..data")).unwrap();
        symlink("..data/file", folder.path.join("mount/file")).unwrap();
        fs::create_dir(folder.path.join("etc")).unwrap();
        symlink(folder.path.join("mount/file"), folder.path.join("etc/link")).unwrap();
        let expected = ["mount", "mount/..2026", "mount/..2026/file"];
        assert_eq!(folder.places("mount/file"), expected);
        assert_eq!(folder.places("etc/link"), [&["etc"], &expected[..]].concat());
    }

    #[test]
    fn what_is_missing_is_awaited_where_it_would_appear() {
        let folder = Folder::new();
        fs::create_dir(folder.path.join("a")).unwrap();
        assert_eq!(folder.places("a/missing/file"), ["a"]);
        symlink("nowhere", folder.path.join("dangling")).unwrap();
        assert_eq!(folder.places("dangling"), [""]);
    }

    #[test]
    fn links_in_a_circle_come_to_an_end() {
        let folder = Folder::new();
        symlink("b", folder.path.join("a")).unwrap();
        symlink("a", folder.path.join("b")).unwrap();
        assert_eq!(folder.places("a"), [""]);
    }

    #[test]
    fn only_what_leads_to_an_input_is_of_concern() {
        let folder = Folder::new();
        let at = |path: &str| folder.path.join(path);
        fs::create_dir_all(at("config/policies/..1")).unwrap();
        fs::write(at("config/settings"), "").unwrap();
        fs::write(at("config/policies/..1/a.yaml"), "").unwrap();
        symlink("..1", at("config/policies/..data")).unwrap();
        symlink("..data/a.yaml", at("config/policies/a.yaml")).unwrap();
        let sources = Sources::system().recording();
        sources.read(&at("config/settings"), 100).unwrap();
        sources.read(&at("config/missing"), 100).unwrap_err();
        sources.read(&at("config/policies/a.yaml"), 100).unwrap();
        sources.list(&at("config/policies"), YAML).unwrap();
        let places = Places::of(&sources.inputs());
        for (path, expected) in [
            ("config/settings", true),
            ("config/missing", true),
            ("config/policies", true),
            ("config/policies/a.yaml", true),
            ("config/policies/..data", true),
            ("config/policies/..1", true),
            ("config/policies/..1/a.yaml", true),
            ("config/policies/new.yaml", true),
            ("config/access.log", false),
            ("config/counters.snapshot", false),
            ("config/other.yaml", false),
            ("config/policies/.a.yaml.swp", false),
            ("config/policies/.a.yaml", false),
            ("config/policies/a.yaml~", false),
            ("config/policies/..data_tmp", false),
            ("config/policies/..1/b.yaml", false),
        ] {
            assert_eq!(places.concern(&at(path)), expected, "{path}");
        }
    }
}
