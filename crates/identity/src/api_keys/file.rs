//! A file of keys: YAML in which each key takes one line.
//!
//! ```yaml
//! keys:
//!   - { id: reporting, tier: pro, owner: acme, scopes: [read], expires: 2027-01-01, digest: "…" }
//!   - { id: tg_old, revoked: true, fields: { region: eu }, digest: "…" }
//! ```
//!
//! Other YAML is refused. So a line can be appended whatever the indentation of the lines before
//! it, can be found and removed by line tools, and is parsed without the others, which keeps memory
//! small for a file of 100,000 keys. Custom fields are under `fields`, so that a misspelt `revoked`
//! or `expires` is an error and not a custom field.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_clock::Timestamp;
use tollgate_yaml::{Document, Entries, Problem, Span, Spanned};

use super::{ApiKey, MAX_ID_BYTES, digest::SecretDigest, is_id};

/// The largest file of keys that is read.
pub const MAX_API_KEYS_BYTES: u64 = 32 << 20;
/// The most keys of one file.
const MAX_KEYS: usize = 100_000;
/// The most problems that are reported.
const MAX_PROBLEMS: usize = 100;
/// How long a text of a key may be: as long as the name of a caller.
const MAX_TEXT_BYTES: usize = 256;
/// The first line of a file of keys.
pub(super) const HEADING: &str = "keys:";

/// A key as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "key")]
struct RawKey {
    /// Finds the key: 1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`.
    id: Spanned<String>,
    /// The tier of its holder, for a caller whose tier is `api_key.tier`.
    tier: Option<Spanned<String>>,
    /// Its holder; several keys may have the same.
    owner: Option<Spanned<String>>,
    /// The scopes of its holder.
    #[serde(default)]
    scopes: Vec<Spanned<String>>,
    /// The last day (in UTC) on which it is valid, or the instant when it expires; left out: it
    /// never expires.
    expires: Option<Spanned<String>>,
    /// Whether it is revoked; false.
    #[serde(default)]
    revoked: bool,
    /// Custom fields: `{ region: eu }` is `api_key.region`.
    #[serde(default)]
    fields: Entries<Spanned<String>>,
    /// The digest of its secret.
    digest: Spanned<String>,
}

/// The first line of a file without keys, in its other form.
const NO_KEYS: &str = "keys: []";

/// Names that a custom field cannot have: the fields of a key, and the claim with its scopes.
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
        // The last key was removed.
        Some((_, line)) if without_comment(line) == NO_KEYS && lines.clone().next().is_none() => {}
        Some((number, _)) => {
            let message = format!("line {number}: the file does not begin with `{HEADING}`");
            return Err(vec![whole_file(message, "write that, and the keys below it")]);
        }
        None => return Err(vec![whole_file("the file is empty".into(), "write `keys:`")]),
    }
    // Checked before the lines are parsed, which is costly.
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

/// The lines that are neither empty nor comments, with their numbers from 1.
fn significant_lines(text: &str) -> impl Iterator<Item = (usize, &str)> + Clone {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
    lines.filter(|(_, line)| !matches!(line.trim_start().as_bytes(), [] | [b'#', ..]))
}

fn without_comment(line: &str) -> &str {
    line.split_once(" #").map_or(line, |(before, _)| before).trim_end()
}

/// Reads the key of one line, whose id no key of the lines before may have.
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
    // Parsed again behind empty lines, a broken line has problems with the right line number. To do
    // so for every line would cost too much.
    parse_mapping(name, &mapping, before)
        .or_else(|_| parse_mapping(name, &("\n".repeat(number - 1) + &mapping), before))
}

/// The mapping of a list item, with spaces before it so that columns stay the same.
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

/// Checks one key and collects its problems.
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
            let message = format!("key `{}` is defined twice", raw.id.value);
            self.refuse(raw.id.span, message, "remove one of the two");
        }
        // The value may be the secret itself, so neither it nor its line is quoted.
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
                let message = format!("a custom field cannot be called `{}`", name.value);
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

    /// Checks a scope (RFC 6749 section 3.3).
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
