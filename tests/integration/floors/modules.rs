//! Every file of source is compiled: a module that no other file declares is silently left out,
//! with its tests.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use syn::{
    ItemMod,
    visit::{self, Visit},
};

/// Files that are the root of a crate.
const ROOTS: &[&str] = &["src/lib.rs", "src/main.rs", "tests/integration/main.rs"];

#[test]
fn every_file_is_declared_as_a_module() {
    let mut missing = Vec::new();
    for path in ["src", "tests/integration"].iter().flat_map(|folder| sources(Path::new(folder))) {
        if ROOTS.iter().any(|root| path == Path::new(root)) {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let parents = parents(&path);
        let is_declared = parents.iter().any(|parent| declared(parent).contains(name));
        if !is_declared {
            let parents: Vec<String> =
                parents.iter().map(|parent| parent.display().to_string()).collect();
            missing.push(format!(
                "{}: no file declares it, so it is not compiled; add `mod {name};` to {}",
                path.display(),
                parents.join(" or "),
            ));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The files that may declare the module of a file: that of its folder, or the crate's root.
fn parents(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().unwrap();
    let roots = ROOTS.iter().map(Path::new).filter(|root| root.parent() == Some(folder));
    let named = folder.with_extension("rs");
    let mut parents: Vec<PathBuf> = roots.map(Path::to_owned).collect();
    if named.is_file() || parents.is_empty() {
        parents.push(named);
    }
    parents
}

/// The modules that a file declares; none if there is no such file.
fn declared(path: &Path) -> BTreeSet<String> {
    let Ok(text) = fs::read_to_string(path) else { return BTreeSet::new() };
    let syntax = syn::parse_file(&text)
        .unwrap_or_else(|error| panic!("{} is not valid Rust: {error}", path.display()));
    let mut declared = Declared::default();
    declared.visit_file(&syntax);
    declared.0
}

#[derive(Default)]
struct Declared(BTreeSet<String>);

impl Visit<'_> for Declared {
    fn visit_item_mod(&mut self, item: &ItemMod) {
        if item.content.is_none() {
            self.0.insert(item.ident.to_string());
        }
        visit::visit_item_mod(self, item);
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
