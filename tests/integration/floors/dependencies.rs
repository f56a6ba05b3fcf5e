//! A crate depends on no more than it uses: the rest would be compiled and updated for nothing.

use std::{fs, path::Path};

use super::{
    FILES,
    imports::{packages, sources},
};

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    for (package, folder) in packages() {
        let manifest = folder.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let mut report = |section: &str, is_used: &dyn Fn(&str) -> bool| {
            let names = dependencies(&text, section);
            unused.extend(
                names
                    .filter(|name| !is_used(&name.replace('-', "_")))
                    .map(|name| format!("{}: `{name}` of [{section}]", manifest.display())),
            );
        };
        report("dependencies", &|name| {
            FILES.iter().any(|file| file.package() == package && file.crates.contains(name))
        });
        let texts = texts(&folder);
        report("dev-dependencies", &|name| {
            let start = format!("{name}::");
            texts.iter().any(|text| text.contains(&start))
        });
    }
    assert!(
        unused.is_empty(),
        "nothing uses these; remove them, or move what only tests use to [dev-dependencies]:\n{}",
        unused.join("\n")
    );
}

/// The names in a section of a manifest: each is on a line `NAME.workspace = true`.
fn dependencies<'m>(manifest: &'m str, section: &str) -> impl Iterator<Item = &'m str> {
    let head = format!("[{section}]");
    let lines = manifest.lines().skip_while(move |line| *line != head).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.strip_suffix(".workspace = true"))
}

/// The source of a crate, of its tests and of its benchmarks.
fn texts(folder: &Path) -> Vec<String> {
    let folders = ["src", "tests", "benches"].map(|name| folder.join(name));
    let folders = folders.iter().filter(|folder| folder.is_dir());
    folders
        .flat_map(|folder| sources(folder))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}
