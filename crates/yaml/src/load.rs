//! YAML text to the tree; the only file that knows the YAML library.
//!
//! The library stops at the first syntax error, and so do we. Its budgets keep a small file from
//! becoming a large tree.
//!
//! - `syntax`: what it found wrong, in our words; `layout`: indentation and brackets, as a reader
//!   sees them.

mod layout;
mod syntax;

use serde::de::{Deserialize, Deserializer};
use serde_saphyr::options::{AliasLimits, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Options};

use self::syntax::syntax_problem;
use super::node::{Node, Span, Spanned, Value, ValueVisitor};
use super::problem::{Problem, Source};

/// The largest file and the most nodes that are read.
const MOST_BYTES: usize = 1 << 20;
const MOST_NODES: usize = 100_000;
/// The deepest nesting. Settings need ten levels; each costs 40 KiB of stack in a debug build (5 in
/// a release build), and a thread has 2 MiB.
const MOST_DEPTH: usize = 32;
/// All text of the tree together. More than a file holds, as aliases repeat it.
const MOST_TEXT: usize = 4 << 20;
/// How far the end of a list or a mapping is looked for: no more of a line is ever shown.
const LONGEST_LINE: usize = 256;

/// Reads the tree of `source`. Its root is a mapping.
pub(super) fn load(source: &Source) -> Result<Node, Problem> {
    let text = source.text();
    if text.len() > MOST_BYTES {
        let message = format!("the file has {} bytes; at most {MOST_BYTES} are read", text.len());
        return Err(Problem::whole_file(source.name(), message, "split it into several files"));
    }
    let mut root = match serde_saphyr::from_str_with_options::<Loaded>(text, options()) {
        Ok(Loaded(root)) => root,
        Err(error) => return Err(syntax_problem(source, &error)),
    };
    match &root.value {
        Value::Mapping(_) => {
            widen(&mut root, text);
            Ok(root)
        }
        Value::Null => Err(Problem::whole_file(
            source.name(),
            "the file is empty",
            "write at least one `name: value`",
        )),
        other => {
            let message = format!("expected a mapping, found {}", other.kind());
            let span = first_line(text, root.span);
            Err(source.problem(span, message, "a file consists of `name: value`".to_owned()))
        }
    }
}

/// What a plain scalar with this text is: a number, true or false, nothing, or else text. Never a
/// list or a mapping, whatever it looks like.
pub(super) fn plain_scalar(text: &str) -> Value {
    let as_text = || Value::String(text.to_owned());
    // All that is no text consists of these.
    let may_be_other = |b: u8| b.is_ascii_alphanumeric() || b"_+-.~".contains(&b);
    if text.len() > LONGEST_LINE || !text.bytes().all(may_be_other) {
        return as_text();
    }
    match serde_saphyr::from_str_with_options::<Vec<Loaded>>(&format!("- {text}"), options()) {
        Ok(mut items) => match items.pop().map(|Loaded(node)| node.value) {
            None | Some(Value::Sequence(_) | Value::Mapping(_)) => as_text(),
            Some(scalar) => scalar,
        },
        Err(_) => as_text(),
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 4 * MOST_NODES,
            max_depth: MOST_DEPTH,
            max_total_scalar_bytes: MOST_TEXT,
            max_recorded_anchor_events: 4 * MOST_NODES,
            max_recorded_anchor_bytes: MOST_TEXT,
        },
        alias_limits: AliasLimits::default(),
        strict_booleans: true,
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    }
}

/// What the library hands over for a [`Node`].
struct Loaded(Node);

struct LoadedKey(Spanned<String>);

struct LoadedValue(Value);

impl<'de> Deserialize<'de> for Loaded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let loaded = serde_saphyr::Spanned::<LoadedValue>::deserialize(deserializer)?;
        Ok(Self(Node { span: span_of(loaded.defined), value: loaded.value.0 }))
    }
}

impl<'de> Deserialize<'de> for LoadedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let loaded = serde_saphyr::Spanned::<String>::deserialize(deserializer)?;
        Ok(Self(Spanned { span: span_of(loaded.defined), value: loaded.value }))
    }
}

impl<'de> Deserialize<'de> for LoadedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor::<LoadedKey, Loaded>::default()).map(Self)
    }
}

impl From<Loaded> for Node {
    fn from(loaded: Loaded) -> Self {
        loaded.0
    }
}

impl From<LoadedKey> for Spanned<String> {
    fn from(loaded: LoadedKey) -> Self {
        loaded.0
    }
}

fn span_of(location: Location) -> Span {
    let bytes = |count: Option<u64>| count.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let start = bytes(location.span().byte_offset());
    Span { start, end: start + bytes(location.span().byte_len()) }
}

/// Gives lists and mappings, of which the library knows only the start, something to underline.
fn widen(node: &mut Node, text: &str) {
    match &mut node.value {
        Value::Sequence(items) => items.iter_mut().for_each(|item| widen(item, text)),
        Value::Mapping(entries) => entries.iter_mut().for_each(|(_, value)| widen(value, text)),
        _ => return,
    }
    node.span = first_line(text, node.span);
}

/// What `span` starts: in brackets, up to the matching one; else up to the end of the line or a
/// comment. Quoted text may hold brackets and hashes.
fn first_line(text: &str, span: Span) -> Span {
    let rest = text.get(span.start..).unwrap_or_default();
    let in_brackets = rest.starts_with(['[', '{']);
    let mut depth = 0_usize;
    let mut quote = None;
    let mut before = ' ';
    let mut end = 0;
    for (position, c) in rest.char_indices().take(LONGEST_LINE) {
        match (quote, c) {
            (_, '\n') => break,
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if " [{,:".contains(before) => quote = Some(c),
            (None, '#') if before.is_whitespace() => break,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
        if !c.is_whitespace() {
            end = position + c.len_utf8();
        }
        if in_brackets && depth == 0 {
            break;
        }
    }
    Span { start: span.start, end: span.start + end }
}
