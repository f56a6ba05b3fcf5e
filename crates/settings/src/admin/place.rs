//! Where an admin listener is, for commands that ask it.

use std::path::{Path, PathBuf};

use tollgate_yaml::{Document, Node, Problem, Sources, Value};

use crate::{
    ListenAddress, beside,
    configuration::{entry, read_text},
    listener::parse_address,
};

/// Where an admin listener is, and the files with its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlace {
    /// Its address.
    pub address: ListenAddress,
    /// The file with the token to read, if there is one.
    pub read_token_file: Option<PathBuf>,
    /// The file with the token to act, if there is one.
    pub write_token_file: Option<PathBuf>,
}

/// The place of the admin listener from a settings file, which may have other mistakes: a command
/// that queries a running proxy about its settings must work without valid settings.
///
/// # Errors
/// The file cannot be read, or is no YAML.
pub fn admin_place(file: &Path, sources: &Sources) -> Result<Option<AdminPlace>, Vec<Problem>> {
    let text = read_text(file, sources)?;
    let document = Document::parse_with(&file.display().to_string(), &text, sources)
        .map_err(|problem| vec![problem])?;
    let admin = entry(&document.root().value, "admin");
    let auth = admin.and_then(|admin| entry(&admin.value, "auth"));
    let address = admin.and_then(|admin| text_of(admin, "address"));
    let token_file =
        |name| auth.and_then(|auth| text_of(auth, name)).map(|path| beside(file, path));
    Ok(address.and_then(|text| parse_address(text, file)).map(|address| AdminPlace {
        address,
        read_token_file: token_file("read_token_file"),
        write_token_file: token_file("write_token_file"),
    }))
}

fn text_of<'n>(section: &'n Node, name: &str) -> Option<&'n str> {
    match entry(&section.value, name).map(|node| &node.value) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}
