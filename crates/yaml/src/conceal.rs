//! Values of a document that are shown nowhere: what a policy puts into the header fields of
//! requests, for that is where credentials for upstreams stand, and other fields that are called
//! like a credential.
//!
//! It goes by the names of keys wherever they stand, since a document with problems may have them
//! in the wrong place. Where the file is no YAML, it is not certain where a value ends, so rather
//! too much is concealed.

use std::ops::Range;

use super::node::{Node, Span, Value};

/// What has values in a section that edits fields.
const WITH_VALUES: [&str; 2] = ["set", "add"];

/// Fields that hold a credential, also where they stand alone.
const CREDENTIALS: [&str; 4] = ["authorization", "proxy-authorization", "set-cookie", "x-api-key"];

/// A field whose name holds one of these holds a credential, for all we know.
const PARTS: [&str; 8] =
    ["auth", "cookie", "credential", "key", "pass", "secret", "session", "token"];

/// Whether the value of a header field of this name, in lower case, may be a credential.
pub fn names_credential(name: &str) -> bool {
    PARTS.iter().any(|part| name.contains(part))
}

/// Where such values are written.
pub(super) fn concealed(root: &Node) -> Vec<Span> {
    let mut spans = Vec::new();
    walk(root, Context::Elsewhere, &mut spans);
    spans
}

/// What a node is a value of.
#[derive(Clone, Copy, PartialEq)]
enum Context {
    Elsewhere,
    /// Where no value is a secret: `forward_claims` names fields and claims, `remove` fields.
    Plain,
    /// `request_headers`.
    Edits,
    /// `response_headers`, and the `headers` of a test: clients see the most of it.
    Seen,
    /// `set` or `add`.
    Fields,
    /// A field.
    Field,
}

fn walk(node: &Node, context: Context, spans: &mut Vec<Span>) {
    match &node.value {
        Value::Mapping(entries) => {
            for (key, value) in entries {
                let inner = context.of(key);
                // Where a colon is missing, the key is all there is.
                if inner == Context::Field && value.value == Value::Null && key.contains(' ') {
                    spans.push(key.span);
                }
                walk(value, inner, spans);
            }
        }
        Value::Sequence(items) => items.iter().for_each(|item| walk(item, context, spans)),
        _ if matches!(context, Context::Edits | Context::Fields | Context::Field) => {
            spans.push(node.span)
        }
        _ => {}
    }
}

impl Context {
    /// The context of the value of `key`.
    fn of(self, key: &str) -> Context {
        let name = key.to_ascii_lowercase();
        match self {
            Context::Plain => Context::Plain,
            Context::Elsewhere => match key {
                "request_headers" => Context::Edits,
                "response_headers" | "headers" => Context::Seen,
                "forward_claims" => Context::Plain,
                _ if WITH_VALUES.contains(&key) => Context::Fields,
                _ if CREDENTIALS.contains(&&*name) => Context::Field,
                _ => Context::Elsewhere,
            },
            Context::Edits if WITH_VALUES.contains(&key) => Context::Fields,
            Context::Edits if key == "remove" => Context::Plain,
            // A host is no secret, and what is wrong with it has to be seen.
            Context::Edits | Context::Fields if name == "host" => Context::Plain,
            Context::Seen if names_credential(&name) => Context::Field,
            Context::Seen => Context::Seen,
            Context::Edits | Context::Fields | Context::Field => Context::Field,
        }
    }
}

/// What of the line at `line_start` may be such a value, in a text that is no YAML.
pub(super) fn guessed(text: &str, line_start: usize) -> Option<Range<usize>> {
    let (before, line) = text.split_at_checked(line_start)?;
    let line = line.split('\n').next().unwrap_or_default();
    let end = line.len();
    if let Some(at) = behind_edits(line).or_else(|| behind_credential(line)) {
        return Some(at..end);
    }
    let mut least = indent(line);
    for above in before.lines().rev().filter(|above| !above.trim().is_empty()) {
        if indent(above) < least {
            if behind_edits(above).is_some() {
                return Some(behind_name(line)..end);
            }
            least = indent(above);
        }
    }
    None
}

/// How far a line is indented; tabs, which YAML does not allow, as terminals show them.
fn indent(line: &str) -> usize {
    let spaces = line.chars().take_while(|c| c.is_whitespace());
    spaces.map(|c| if c == '\t' { 8 } else { 1 }).sum()
}

/// Behind a `set:` or `add:` in a line.
fn behind_edits(line: &str) -> Option<usize> {
    let found = WITH_VALUES.iter().flat_map(|name| line.match_indices(name));
    let behind = found.filter_map(|(at, name)| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let (before, rest) = line.split_at_checked(at)?;
        let rest = rest.strip_prefix(name)?.trim_start_matches(['"', '\'']).strip_prefix(':')?;
        (!before.ends_with(is_name)).then_some(line.len() - rest.len())
    });
    behind.min()
}

/// Behind the name of a credential in a line.
fn behind_credential(line: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    let names = CREDENTIALS.iter().flat_map(|name| lower.match_indices(name));
    names.map(|(at, name)| at + name.len()).min()
}

/// Behind the name that a line begins with; where none is, behind its indentation.
fn behind_name(line: &str) -> usize {
    let written = line.trim_start_matches([' ', '\t', '"', '\'', '-', '{', ',']);
    let start = line.len() - written.len();
    match written.split_once(':') {
        Some((name, _)) if !name.contains(' ') => start + name.len() + 1,
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    fn shown_of_yaml(text: &str) -> String {
        let document = Document::parse("f.yaml", text).unwrap();
        let mut shown = text.to_owned();
        for span in concealed(document.root()) {
            shown.replace_range(span.start..span.end, &"*".repeat(span.end - span.start));
        }
        shown
    }

    #[test]
    fn values_for_the_fields_of_requests_are_concealed() {
        for (text, expected) in [
            (
                "request_headers: { set: { authorization: Bearer x, x-a: \"b\" }, remove: [cookie] }",
                "request_headers: { set: { authorization: ********, x-a: *** }, remove: [cookie] }",
            ),
            (
                "r: [{ request_headers: { add: { x-n: 17, host: a.example } } }]",
                "r: [{ request_headers: { add: { x-n: **, host: a.example } } }]",
            ),
            // In the wrong form, or in the wrong place.
            ("request_headers: { set: x-a b }", "request_headers: { set: ***** }"),
            ("request_headers: [x-a b]", "request_headers: [*****]"),
            ("request_headers: { x-a: b }", "request_headers: { x-a: * }"),
            ("request_headers: { set: { x-a b } }", "request_headers: { set: { ***** } }"),
            (
                "request_headers: { set: { x-a: [b, { c: d }] } }",
                "request_headers: { set: { x-a: [*, { c: * }] } }",
            ),
            (
                "response_headers: { set: { x-a: b, set-cookie: c } }\n\
                 given: { headers: { X-API-Key: c, accept: d } }",
                "response_headers: { set: { x-a: b, set-cookie: * } }\n\
                 given: { headers: { X-API-Key: *, accept: d } }",
            ),
            (
                "request_header: { set: { x-a: b } }\nroutes: [{ Authorization: c, cookie: d }]",
                "request_header: { set: { x-a: * } }\nroutes: [{ Authorization: *, cookie: d }]",
            ),
            (
                "forward_claims: { headers: { authorization: jwt.email } }\n\
                 request_headers: { set: { \"x a\": b } }",
                "forward_claims: { headers: { authorization: jwt.email } }\n\
                 request_headers: { set: { \"x a\": * } }",
            ),
        ] {
            assert_eq!(shown_of_yaml(text), expected);
        }
    }

    #[test]
    fn where_yaml_is_wrong_it_is_guessed() {
        for (text, expected) in [
            ("request_headers: { set: { x-a: b }, remove: [c]", Some(" { x-a: b }, remove: [c]")),
            ("  \"add\": { x-a: b", Some(" { x-a: b")),
            ("set:\n  x-a: b", Some(" b")),
            ("set:\n  x-a b", Some("x-a b")),
            ("    set:\n\tx-a: b", Some(" b")),
            ("set:\n  x-a:\n     Bearer a:b", Some("Bearer a:b")),
            ("set:\n  x-a: b\n\n  \"x-b\":c", Some("c")),
            ("{ x-a: b, Authorization:Bearer x", Some(":Bearer x")),
            ("  set:\n    x-a: b\n  remove: [c", None),
            ("offset: [1", None),
            ("set:\n  x-a: b\nlimits: [", None),
            ("", None),
        ] {
            let start = text.rfind('\n').map_or(0, |end| end + 1);
            let guess = guessed(text, start).map(|range| &text[start..][range]);
            assert_eq!(guess, expected, "{text}");
        }
    }
}
