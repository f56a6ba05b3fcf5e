//! Where something would have to happen for a path to lead to another content.
//!
//! That is the file itself, the folder that it is in, and the folder of each symbolic link on the
//! way: a mounted ConfigMap has `policy.yaml -> ..data/policy.yaml` and `..data -> ..2026_11_21`, and
//! changes by a new `..data`. The file by itself is not enough, as most editors put a new one in its
//! place; its folder is not either, as a file that is mounted alone changes somewhere else.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

/// As many links on the way to one file are followed: more than the system itself follows.
const MAX_LINKS: usize = 64;

/// The files and folders to watch for `paths`. None of them is reached over a link, and all are
/// there: of what is missing, the last folder on the way.
pub(super) fn places<'p>(paths: impl Iterator<Item = &'p Path>) -> BTreeSet<PathBuf> {
    let mut places = BTreeSet::new();
    for path in paths {
        if let Ok(path) = std::path::absolute(path) {
            add_places(&path, &mut places);
        }
    }
    places
}

fn add_places(path: &Path, places: &mut BTreeSet<PathBuf>) {
    let mut at = PathBuf::from("/");
    // What is left of the way, the next step last.
    let mut ahead = steps(path);
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
                    return;
                }
                places.insert(at.clone());
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                ahead.extend(steps(&target));
            }
            Err(_) if next.symlink_metadata().is_err() => {
                places.insert(at);
                return;
            }
            Err(_) => at = next,
        }
    }
    places.extend(at.parent().map(Path::to_owned));
    places.insert(at);
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

    use super::*;

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

        fn places(&self, path: &str) -> Vec<String> {
            let places = places(std::iter::once(self.path.join(path).as_path()));
            let inside = places.iter().filter_map(|place| place.strip_prefix(&self.path).ok());
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
}
