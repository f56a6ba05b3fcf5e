//! What each file of the workspace's crates names of others, read from its syntax; tests are left
//! out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Ident, Item, ItemUse, UseTree,
    spanned::Spanned,
    visit::{self, Visit},
};

/// A file of a crate.
pub(super) struct File {
    /// Its path, from the root of the repository.
    pub(super) shown: String,
    /// Its module; the first part is the crate, as its folder in `crates` is called.
    pub(super) module: Vec<String>,
    pub(super) imports: Vec<Import>,
    /// What its paths begin with: the crates that it names are among it.
    pub(super) crates: BTreeSet<String>,
}

/// Something that a file names of the workspace.
pub(super) struct Import {
    pub(super) line: usize,
    /// Where it is; the first part is the crate.
    pub(super) path: Vec<String>,
    /// The file that it is defined in, or of the module that hands it on.
    pub(super) file: String,
}

/// The crate whose sources are in `src`; it needs those in `crates`.
pub(super) const ROOT: &str = "tollgate";

impl File {
    pub(super) fn package(&self) -> &str {
        &self.module[0]
    }

    /// Whether it is the file that declares the modules of its crate.
    pub(super) fn is_head(&self) -> bool {
        self.module.len() == 1
    }

    /// Whether one of the two is in the folder of the other's name; a crate's `lib.rs` has all.
    pub(super) fn is_kin_of(&self, other: &File) -> bool {
        self.module.starts_with(&other.module) || other.module.starts_with(&self.module)
    }
}

/// The crates of the workspace, each with its folder.
pub(super) fn packages() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let name = |folder: &Path| folder.file_name().unwrap().to_str().unwrap().to_owned();
    let mut packages: BTreeMap<String, PathBuf> =
        folders.map(|folder| (name(&folder), folder)).collect();
    packages.insert(ROOT.to_owned(), root.to_owned());
    packages
}

/// Every file of every crate, with what it imports.
pub(super) fn files() -> Vec<File> {
    let mut read: BTreeMap<Vec<String>, Read> = BTreeMap::new();
    for (package, folder) in packages() {
        let folder = folder.join("src");
        read.extend(sources(&folder).iter().filter_map(|path| read_file(&package, &folder, path)));
    }
    read.iter()
        .map(|(module, own)| File {
            shown: own.shown.clone(),
            module: module.clone(),
            crates: own.crates.clone(),
            imports: own
                .named
                .iter()
                .map(|(line, path)| Import {
                    line: *line,
                    path: path.clone(),
                    file: defined_in(&read, path).to_owned(),
                })
                .filter(|import| !import.file.is_empty() && import.file != own.shown)
                .collect(),
        })
        .collect()
}

/// The files of Rust in a folder and those below it.
pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    collect(folder, &mut sources);
    sources.sort();
    sources
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources.push(path);
        }
    }
}

/// What a file says.
struct Read {
    shown: String,
    /// Paths that begin with their crate, with their lines.
    named: Vec<(usize, Vec<String>)>,
    /// Names that the file takes from others, and where those are.
    aliases: BTreeMap<String, Vec<String>>,
    crates: BTreeSet<String>,
}

/// Reads a file; none: it is a test, or only starts the program.
fn read_file(package: &str, folder: &Path, path: &Path) -> Option<(Vec<String>, Read)> {
    let relative = path.strip_prefix(folder).unwrap().with_extension("");
    let parts = relative.components().map(|part| part.as_os_str().to_str().unwrap().to_owned());
    let parts: Vec<String> = parts.filter(|part| part != "lib").collect();
    if parts == ["main"] || parts.iter().any(|part| part == "tests" || part == "arbitrary") {
        return None;
    }
    let module = [&[package.to_owned()], &parts[..]].concat();
    let mut reader = Reader {
        module: module.clone(),
        crates: BTreeSet::new(),
        named: Vec::new(),
        aliases: BTreeMap::new(),
    };
    reader.visit_file(&syntax(path));
    let Reader { crates, named, aliases, .. } = reader;
    let shown = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
    Some((module, Read { shown, named, aliases, crates }))
}

/// The syntax of a file.
pub(super) fn syntax(path: &Path) -> syn::File {
    let text = fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| {
        panic!("{} is not valid Rust: {error}; remove it if no `mod` declares it", path.display())
    })
}

/// The file of the deepest module of a path; names that it hands on are followed.
fn defined_in<'r>(read: &'r BTreeMap<Vec<String>, Read>, path: &[String]) -> &'r str {
    let mut path = path.to_vec();
    // As many times as a name is handed on, at most.
    for _ in 0..8 {
        let depth = (1..=path.len()).rev().find(|depth| read.contains_key(&path[..*depth]));
        let Some(depth) = depth else { return "" };
        let found = &read[&path[..depth]];
        match path.get(depth).and_then(|name| found.aliases.get(name)) {
            Some(handed_on) if *handed_on != path => path = handed_on.clone(),
            _ => return &found.shown,
        }
    }
    ""
}

/// Collects what a file names of the workspace.
struct Reader {
    module: Vec<String>,
    crates: BTreeSet<String>,
    named: Vec<(usize, Vec<String>)>,
    aliases: BTreeMap<String, Vec<String>>,
}

impl Reader {
    /// A path of the file as one that begins with its crate; none: it is of no crate of ours.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some([&self.module[..1], &path[1..]].concat()),
            "self" => Some([&self.module[..], &path[1..]].concat()),
            "super" => {
                let kept = self.module.len().checked_sub(supers)?;
                Some([&self.module[..kept], &path[supers..]].concat())
            }
            first => {
                let package = first.strip_prefix("tollgate_")?.to_owned();
                Some([&[package], &path[1..]].concat())
            }
        }
    }

    fn name(&mut self, line: usize, path: &[String]) {
        if path.len() > 1 {
            self.crates.extend(path.first().cloned());
        }
        if let Some(path) = self.absolute(path) {
            self.named.push((line, path));
        }
    }

    fn name_tree(&mut self, prefix: &[String], tree: &UseTree) {
        let with = |ident: &Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.name_tree(&with(&path.ident), &path.tree),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.name_tree(prefix, tree);
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.take(name.span().start().line, prefix, prefix.last().cloned());
            }
            UseTree::Name(name) => {
                let path = with(&name.ident);
                self.take(name.span().start().line, &path, Some(name.ident.to_string()));
            }
            UseTree::Rename(rename) => {
                let path = with(&rename.ident);
                self.take(rename.span().start().line, &path, Some(rename.rename.to_string()));
            }
            UseTree::Glob(glob) => self.name(glob.span().start().line, prefix),
        }
    }

    fn take(&mut self, line: usize, path: &[String], alias: Option<String>) {
        self.crates.extend(path.first().cloned());
        self.name(line, path);
        if let (Some(alias), Some(path)) = (alias, self.absolute(path)) {
            self.aliases.insert(alias, path);
        }
    }

    /// Paths in the arguments of a macro, which have no syntax of their own.
    fn name_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if path.last().is_some_and(|part| part == "::") {
                        path.pop();
                    } else {
                        path.clear();
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    self.name(line, &path);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    if path.last().is_some_and(|part| part != "::") {
                        path.push("::".into());
                    }
                }
                TokenTree::Group(group) => {
                    path.clear();
                    self.name_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => path.clear(),
            }
        }
    }
}

impl<'s> Visit<'s> for Reader {
    fn visit_item(&mut self, item: &'s Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            Item::Macro(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'s ItemUse) {
        self.name_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.name(path.span().start().line, &parts);
        visit::visit_path(self, path);
    }

    fn visit_meta_list(&mut self, list: &'s syn::MetaList) {
        self.name_tokens(list.tokens.clone());
        visit::visit_meta_list(self, list);
    }

    fn visit_macro(&mut self, own: &'s syn::Macro) {
        self.name_tokens(own.tokens.clone());
        visit::visit_macro(self, own);
    }
}

/// `#[cfg(test)]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<Ident>().is_ok_and(|condition| condition == "test")
}
