//! README and docs/: what the pages say about files and fields is true, and their links lead
//! somewhere.
//!
//! The commands of the pages are run by the tests of the program (`binary/commands.rs`).

mod examples;
mod links;
mod messages;
mod reference;

use std::{fs, path::Path};

/// A page, with its path from the root of the repository.
pub(crate) struct Page {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A block between two fences.
struct Fence {
    /// What follows the first fence: the language, and what the example is.
    info: String,
    text: String,
}

impl Page {
    /// README and all of docs/.
    pub(crate) fn all() -> Vec<Page> {
        let mut pages = vec![Page::read("README.md")];
        collect("docs", &mut pages);
        assert!(pages.len() > 10, "README and docs/");
        pages
    }

    pub(crate) fn read(path: &str) -> Page {
        let text = fs::read_to_string(root().join(path)).unwrap();
        Page { path: path.to_owned(), text }
    }

    fn fences(&self) -> Vec<Fence> {
        let mut fences = Vec::new();
        let mut open: Option<Fence> = None;
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), open.as_mut()) {
                (Some(info), None) => {
                    open = Some(Fence { info: info.trim().to_owned(), text: String::new() });
                }
                (Some(_), Some(_)) => fences.extend(open.take()),
                (None, Some(fence)) => fence.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.path);
        fences
    }
}

fn collect(folder: &str, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            collect(&path, pages);
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
            pages.push(Page::read(&path));
        }
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
