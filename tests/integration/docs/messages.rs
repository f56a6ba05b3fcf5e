//! What README and docs/ quote of the program: its messages, its metrics
//! and its exit codes.

use std::{collections::BTreeSet, fs, path::Path};

use super::{Page, root};
use crate::binary::PROGRAMS;

/// The text of all source files in a folder, one after the other.
fn source(folder: &Path) -> String {
    let mut source = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source += &self::source(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            source += &fs::read_to_string(path).unwrap();
        }
    }
    source
}

/// What a page has in backquotes, outside of its examples.
fn quoted(page: &Page) -> Vec<String> {
    let text: String = page.text.split("```").step_by(2).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether it reads like a message: three words or more, and no command of ours or of Redis.
fn is_message(quoted: &str) -> bool {
    let words: Vec<&str> = quoted.split(' ').collect();
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphabetic() || "',…".contains(c));
    let is_command = PROGRAMS.iter().any(|program| quoted.starts_with(program))
        || words[0].chars().all(|c| c.is_ascii_uppercase());
    words.len() >= 3 && words.iter().all(is_word) && !is_command
}

/// The text of all source files of the workspace.
fn sources() -> String {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let folders = crates.map(|entry| entry.unwrap().path().join("src"));
    folders.chain([root().join("src")]).map(|folder| source(&folder)).collect()
}

/// The names of metrics in a text, without those of crates, which paths begin with.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    text.match_indices("tollgate_")
        .map(|(at, _)| &text[at..])
        .map(|text| text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len())))
        .filter(|(name, rest)| !name.ends_with('_') && !rest.starts_with("::"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn messages_that_pages_quote_are_those_of_the_program() {
    let source = sources();
    // A message may go over several lines of the source.
    let mut lines = source.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let source = lines.fold(first, |source, line| source + line.trim_start());
    let mut found = 0;
    for page in Page::all() {
        for message in quoted(&page).into_iter().filter(|quoted| is_message(quoted)) {
            let beginning = message.trim_end_matches(['…', ' ']);
            assert!(source.contains(beginning), "{}: nothing says `{message}`", page.path);
            found += 1;
        }
    }
    assert!(found >= 10, "{found} messages");
}

#[test]
fn every_metric_is_documented_and_the_other_way_round() {
    let mut exported = metrics(&fs::read_to_string(root().join("src/admin.rs")).unwrap());
    exported.extend(metrics(&source(&root().join("src/admin"))));
    let pages = Page::all();
    let documented: BTreeSet<String> =
        pages.iter().flat_map(quoted).flat_map(|quoted| metrics(&quoted)).collect();
    assert_eq!(exported, documented);
}

/// The first column of a table whose head begins with `code`, on a page.
fn exit_codes(path: &str) -> BTreeSet<u8> {
    let page = Page::read(path).text;
    let (_, table) = page.split_once("\n| code | meaning |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().parse().unwrap()).collect()
}

#[test]
fn tables_of_exit_codes_have_those_of_the_program() {
    let source = fs::read_to_string(root().join("src/cli.rs")).unwrap();
    let (_, codes) = source.split_once("pub fn code(self) -> u8 {").unwrap();
    let (codes, _) = codes.split_once("\n    }\n").unwrap();
    let codes = codes.split("=>").skip(1).map(|arm| arm.split(',').next().unwrap().trim());
    let codes: BTreeSet<u8> = codes.map(|code| code.parse().unwrap()).chain([0]).collect();
    // `simulate` has all of them.
    for page in ["docs/operations.md", "docs/choosing-limits.md"] {
        assert_eq!(exit_codes(page), codes, "{page}");
    }
}
