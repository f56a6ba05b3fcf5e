//! What each file of `src` names of others, read from its syntax; tests are left out.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Ident, Item, ItemUse, UseTree,
    spanned::Spanned,
    visit::{self, Visit},
};

/// A file of `src` that belongs to a room.
pub(super) struct File {
    /// Its path, from the root of the repository.
    pub(super) shown: String,
    /// Its module, from the crate's root.
    pub(super) module: Vec<String>,
    pub(super) imports: Vec<Import>,
}

/// Something that a file names of the crate.
pub(super) struct Import {
    pub(super) line: usize,
    /// Where it is, from the crate's root.
    pub(super) path: Vec<String>,
    /// The file that it is defined in, or of the module that hands it on.
    pub(super) file: String,
}

impl File {
    pub(super) fn room(&self) -> &str {
        &self.module[0]
    }

    /// Whether one of the two is in the folder of the other's name.
    pub(super) fn is_kin_of(&self, other: &File) -> bool {
        self.module.starts_with(&other.module) || other.module.starts_with(&self.module)
    }
}

/// Every file of every room, with what it imports.
pub(super) fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    collect(&root, &mut sources);
    sources.sort();
    let read: BTreeMap<Vec<String>, Read> =
        sources.iter().filter_map(|path| read(&root, path)).collect();
    read.iter()
        .map(|(module, own)| File {
            shown: own.shown.clone(),
            module: module.clone(),
            imports: own
                .named
                .iter()
                .map(|(line, path)| Import {
                    line: *line,
                    path: path.clone(),
                    file: defined_in(&read, path).to_owned(),
                })
                .filter(|import| import.file != own.shown)
                .collect(),
        })
        .collect()
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
    /// Paths from the crate's root, with their lines.
    named: Vec<(usize, Vec<String>)>,
    /// Names that the file takes from others, and where those are.
    aliases: BTreeMap<String, Vec<String>>,
}

/// Reads a file; none: it is of no room, or a test.
fn read(root: &Path, path: &Path) -> Option<(Vec<String>, Read)> {
    let relative = path.strip_prefix(root).unwrap();
    let module: Vec<String> = relative
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_str().unwrap().to_owned())
        .collect();
    let is_root = module == ["lib"] || module == ["main"];
    if is_root || module.iter().any(|part| part == "tests" || part == "arbitrary") {
        return None;
    }
    let text = fs::read_to_string(path).unwrap();
    let syntax = syn::parse_file(&text).unwrap_or_else(|error| {
        panic!("{} is not valid Rust: {error}; remove it if no `mod` declares it", path.display())
    });
    let mut reader = Reader { module: module.clone(), named: Vec::new(), aliases: BTreeMap::new() };
    reader.visit_file(&syntax);
    let shown = format!("src/{}", relative.display());
    Some((module, Read { shown, named: reader.named, aliases: reader.aliases }))
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

/// Collects what a file names of the crate.
struct Reader {
    module: Vec<String>,
    named: Vec<(usize, Vec<String>)>,
    aliases: BTreeMap<String, Vec<String>>,
}

impl Reader {
    /// A path of the file as one from the crate's root; none: it is not of the crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([&self.module[..], &path[1..]].concat()),
            "super" => {
                let kept = self.module.len().checked_sub(supers)?;
                Some([&self.module[..kept], &path[supers..]].concat())
            }
            _ => None,
        }
    }

    fn name(&mut self, line: usize, path: &[String]) {
        if let Some(path) = self.absolute(path).filter(|path| !path.is_empty()) {
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
