//! A file of keys: YAML in which each key takes one line.
//!
//! ```yaml
//! keys:
//!   - { id: reporting, tier: pro, owner: acme, scopes: [read], expires: 2027-01-01, digest: "…" }
//!   - { id: tg_old, revoked: true, fields: { region: eu }, digest: "…" }
//! ```
//!
//! Other YAML is refused. So a line can be appended without a look at how the lines before it are
//! indented, found and taken out by line tools, and read without the lines around it: a document of
//! 100,000 keys is more than a tree should hold. Fields of the user's own have a place of their
//! own, as a misspelt `revoked` or `expires` must not pass for one.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ApiKey, MAX_ID_BYTES, digest::SecretDigest, is_id};
use crate::{
    clock::Timestamp,
    yaml::{Document, Entries, Problem, Span, Spanned},
};

/// The largest file of keys that is read.
pub const MAX_API_KEYS_BYTES: u64 = 32 << 20;
/// The most keys of one file.
const MAX_KEYS: usize = 100_000;
/// More problems than anyone reads in one go.
const MAX_PROBLEMS: usize = 100;
/// How long a text of a key may be. A caller's name can be no longer.
const MAX_TEXT_BYTES: usize = 256;
/// What the list of keys begins with.
pub(super) const HEADING: &str = "keys:";

/// A key as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "key")]
struct RawKey {
    /// What finds it: 1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`.
    id: Spanned<String>,
    /// The tier of its holder, for a caller whose tier is `api_key.tier`.
    tier: Option<Spanned<String>>,
    /// Its holder; several keys may have the same.
    owner: Option<Spanned<String>>,
    /// What its holder may do.
    #[serde(default)]
    scopes: Vec<Spanned<String>>,
    /// The last day (in UTC) that it is good, or the instant from which on it is not; left out:
    /// good for ever.
    expires: Option<Spanned<String>>,
    /// Whether it is refused from now on; false.
    #[serde(default)]
    revoked: bool,
    /// Texts of the user's own: `{ region: eu }` is `api_key.region`.
    #[serde(default)]
    fields: Entries<Spanned<String>>,
    /// The digest of its secret.
    digest: Spanned<String>,
}

/// What a file without keys may say too.
const NO_KEYS: &str = "keys: []";

/// Names that a field of the user's own cannot have: those of a key, and the claim of its scopes.
const RESERVED: [&str; 9] =
    ["id", "tier", "owner", "scopes", "scope", "expires", "revoked", "fields", "digest"];

/// Reads all keys of a file.
pub(super) fn parse(name: &str, text: &str) -> Result<HashMap<Box<str>, ApiKey>, Vec<Problem>> {
    let whole_file = |message: String, help: &str| Problem::whole_file(name, message, help);
    if text.len() as u64 > MAX_API_KEYS_BYTES {
        let message = format!("the file has more than {MAX_API_KEYS_BYTES} bytes");
        return Err(vec![whole_file(message, "remove keys that have expired")]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = significant_lines(text);
    match lines.next() {
        Some((_, line)) if without_comment(line) == HEADING => {}
        // The last key was taken out.
        Some((_, line)) if without_comment(line) == NO_KEYS && lines.clone().next().is_none() => {}
        Some((number, _)) => {
            let message = format!("line {number}: the file does not begin with `{HEADING}`");
            return Err(vec![whole_file(message, "write that, and the keys below it")]);
        }
        None => return Err(vec![whole_file("the file is empty".into(), "write `keys:`")]),
    }
    // Before the costly part.
    let count = lines.clone().count();
    if count > MAX_KEYS {
        let message = format!("the file has {count} keys; at most {MAX_KEYS} are read");
        return Err(vec![whole_file(message, "remove keys that have expired")]);
    }

    let mut keys = HashMap::with_capacity(count);
    let mut problems = Vec::new();
    for (number, line) in lines {
        match parse_line(name, number, line, &keys) {
            Ok(key) => {
                keys.insert(key.id.clone(), key);
            }
            Err(found) => problems.extend(found),
        }
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
    }
    if problems.is_empty() { Ok(keys) } else { Err(problems) }
}

/// The lines that say something, with their numbers from 1.
fn significant_lines(text: &str) -> impl Iterator<Item = (usize, &str)> + Clone {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
    lines.filter(|(_, line)| !matches!(line.trim_start().as_bytes(), [] | [b'#', ..]))
}

fn without_comment(line: &str) -> &str {
    line.split_once(" #").map_or(line, |(before, _)| before).trim_end()
}

/// Reads the key of one line, which no key of the lines before may be like.
fn parse_line(
    name: &str,
    number: usize,
    line: &str,
    before: &HashMap<Box<str>, ApiKey>,
) -> Result<ApiKey, Vec<Problem>> {
    let Some(mapping) = flow_mapping(line) else {
        let message = format!("line {number}: a key takes one line");
        let help = "write it as `- { id: …, digest: … }`, as `tollgate key` does";
        return Err(vec![Problem::whole_file(name, message, help)]);
    };
    // With empty lines for all before it, problems have the right place. They would cost too much
    // for each line of a file that is in order.
    parse_mapping(name, &mapping, before)
        .or_else(|_| parse_mapping(name, &("\n".repeat(number - 1) + &mapping), before))
}

/// The mapping of an item of a list, with every character at its place.
fn flow_mapping(line: &str) -> Option<String> {
    let item = line.trim_start().strip_prefix("- ")?.trim_start();
    item.starts_with('{').then(|| " ".repeat(line.len() - item.len()) + item)
}

fn parse_mapping(
    name: &str,
    text: &str,
    before: &HashMap<Box<str>, ApiKey>,
) -> Result<ApiKey, Vec<Problem>> {
    let document = Document::parse(name, text).map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    let raw = document.decode::<RawKey>(&[], &mut problems);
    let mut checker = Checker { document: &document, problems };
    let key = raw.and_then(|raw| checker.key(&raw, before));
    match key {
        Some(key) if checker.problems.is_empty() => Ok(key),
        _ => Err(checker.problems),
    }
}

/// One key and what is wrong with it.
struct Checker<'d> {
    document: &'d Document,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn key(&mut self, raw: &RawKey, before: &HashMap<Box<str>, ApiKey>) -> Option<ApiKey> {
        if !is_id(&raw.id) {
            let help = format!("write 1 to {MAX_ID_BYTES} of A-Z, a-z, 0-9, _ and -");
            self.refuse(raw.id.span, "not a valid key id", help);
        }
        if before.contains_key(raw.id.as_str()) {
            let message = format!("key `{}` is there twice", raw.id.value);
            self.refuse(raw.id.span, message, "remove one of the two");
        }
        // What stands there may be the secret itself: it is not quoted, nor shown with its line.
        let digest = SecretDigest::parse(&raw.digest);
        if digest.is_none() {
            let help = "write the line that `tollgate key` prints";
            self.refuse(raw.digest.span, "not a valid digest of a secret", help);
        }
        let expires = raw.expires.as_ref().map(|expires| self.expires(expires));
        Some(ApiKey {
            id: raw.id.as_str().into(),
            claims: self.claims(raw).into(),
            expires: expires.flatten(),
            is_revoked: raw.revoked,
            digest: digest?,
        })
    }

    fn claims(&mut self, raw: &RawKey) -> Map<String, Value> {
        let mut claims = Map::new();
        claims.insert("id".to_owned(), raw.id.as_str().into());
        for (name, text) in [("tier", &raw.tier), ("owner", &raw.owner)] {
            if let Some(text) = text {
                self.text(text);
                claims.insert(name.to_owned(), text.as_str().into());
            }
        }
        if !raw.scopes.is_empty() {
            raw.scopes.iter().for_each(|scope| self.scope(scope));
            let scopes: Vec<&str> = raw.scopes.iter().map(|scope| scope.as_str()).collect();
            claims.insert("scope".to_owned(), scopes.join(" ").into());
        }
        for (name, text) in &raw.fields {
            if RESERVED.contains(&name.as_str()) {
                let message = format!("a field of your own cannot be called `{}`", name.value);
                self.refuse(name.span, message, "move it out of `fields`, or rename it");
            }
            self.text(name);
            self.text(text);
            claims.insert(name.value.clone(), text.as_str().into());
        }
        claims
    }

    fn text(&mut self, raw: &Spanned<String>) {
        let length = raw.value.len();
        if length == 0 || length > MAX_TEXT_BYTES || raw.value.chars().any(char::is_control) {
            let help = format!("write 1 to {MAX_TEXT_BYTES} bytes without control characters");
            self.refuse(raw.span, "this text cannot be used", help);
        }
    }

    /// RFC 6749 section 3.3.
    fn scope(&mut self, raw: &Spanned<String>) {
        self.text(raw);
        if !raw.value.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')) {
            let help = "write ASCII without spaces, quotes and backslashes";
            self.refuse(raw.span, "not a valid scope", help);
        }
    }

    fn expires(&mut self, raw: &Spanned<String>) -> Option<Timestamp> {
        let expires = Timestamp::parse_end(&raw.value);
        if expires.is_none() {
            let message = format!("`{}` is not a date", raw.value);
            self.refuse(raw.span, message, "write 2027-01-01 or 2027-01-01T18:00:00Z");
        }
        expires
    }

    fn refuse(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(self.document.problem(span, message, help));
    }
}
