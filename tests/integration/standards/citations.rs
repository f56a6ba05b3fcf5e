//! Citations of standards in comments of the source.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::docs::root;

/// Words of a standard, where the code meets them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Citation {
    /// The path of its file, from the root of the repository.
    pub(super) file: String,
    /// The line of its target.
    pub(super) line: usize,
    /// The standard, as its list is called: `rfc9112`.
    pub(super) standard: String,
    pub(super) section: String,
    /// The words, on one line.
    pub(super) quotation: String,
}

const TARGET: &str = "//=";
const QUOTATION: &str = "//#";

/// All citations in the source of the workspace, by file and line.
pub(super) fn citations() -> Vec<Citation> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let folders = crates.map(|entry| entry.unwrap().path().join("src"));
    let mut files = Vec::new();
    for folder in folders.chain([root().join("src")]) {
        collect(&folder, &mut files);
    }
    files.sort();
    files.iter().flat_map(|path| in_file(path)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn in_file(path: &Path) -> Vec<Citation> {
    let shown = path.strip_prefix(root()).unwrap().display().to_string();
    read(&shown, &fs::read_to_string(path).unwrap()).unwrap_or_else(|fault| panic!("{fault}"))
}

/// The citations in a file's text.
///
/// # Errors
/// What is wrong with one, and what to write.
fn read(file: &str, text: &str) -> Result<Vec<Citation>, String> {
    let mut citations: Vec<Citation> = Vec::new();
    let mut lines = text.lines().map(str::trim).enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let place = format!("{file}:{}", index + 1);
        if line.starts_with(QUOTATION) {
            return Err(format!(
                "{place}: no target stands before this quotation: write `//= rfc9112#section-6.3`"
            ));
        }
        let Some(target) = line.strip_prefix(TARGET) else { continue };
        let (standard, section) = target
            .trim()
            .split_once("#section-")
            .ok_or_else(|| format!("{place}: write a target as `//= rfc9112#section-6.3`"))?;
        let mut words = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with(QUOTATION)) {
            words.extend(line.trim_start_matches(QUOTATION).split_whitespace());
        }
        if words.is_empty() {
            return Err(format!("{place}: quote the words that are met in `//#` lines below it"));
        }
        citations.push(Citation {
            file: file.to_owned(),
            line: index + 1,
            standard: standard.to_owned(),
            section: section.to_owned(),
            quotation: words.join(" "),
        });
    }
    Ok(citations)
}

#[test]
fn quotation_may_go_over_lines() {
    let text =
        "fn a() {\n    //= rfc1#section-2.3\n    //# A client MUST\n    //# ask.\n    b();\n}\n";
    let expected = Citation {
        file: "a.rs".to_owned(),
        line: 2,
        standard: "rfc1".to_owned(),
        section: "2.3".to_owned(),
        quotation: "A client MUST ask.".to_owned(),
    };
    assert_eq!(read("a.rs", text), Ok(vec![expected]));
}

#[test]
fn half_a_citation_is_a_fault() {
    for (text, fault) in [
        ("//# A client MUST ask.\n", "a.rs:1: no target"),
        ("//= rfc1#section-2\ncode();\n//# It MUST.\n", "a.rs:1: quote the words"),
        ("\n//= rfc1, section 2\n//# It MUST.\n", "a.rs:2: write a target"),
    ] {
        let said = read("a.rs", text).unwrap_err();
        assert!(said.starts_with(fault), "{text:?}: {said}");
    }
}
