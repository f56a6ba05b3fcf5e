//! Every file of source is compiled: a module that no other file declares is silently left out,
//! with its tests.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use syn::{
    ItemMod,
    visit::{self, Visit},
};

use super::imports::{packages, sources, syntax};

#[test]
fn every_file_is_declared_as_a_module() {
    let mut missing = Vec::new();
    let folders: Vec<PathBuf> = packages()
        .values()
        .flat_map(|folder| [folder.join("src"), folder.join("tests/integration")])
        .filter(|folder| folder.is_dir())
        .collect();
    let roots: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| [folder.join("lib.rs"), folder.join("main.rs")])
        .filter(|root| root.is_file())
        .collect();
    for path in folders.iter().flat_map(|folder| sources(folder)) {
        if roots.contains(&path) {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let parents = parents(&path, &roots);
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
fn parents(path: &Path, roots: &[PathBuf]) -> Vec<PathBuf> {
    let folder = path.parent().unwrap();
    let roots = roots.iter().filter(|root| root.parent() == Some(folder));
    let named = folder.with_extension("rs");
    let mut parents: Vec<PathBuf> = roots.cloned().collect();
    if named.is_file() || parents.is_empty() {
        parents.push(named);
    }
    parents
}

/// The modules that a file declares; none if there is no such file.
fn declared(path: &Path) -> BTreeSet<String> {
    if !path.is_file() {
        return BTreeSet::new();
    }
    let mut declared = Declared::default();
    declared.visit_file(&syntax(path));
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
