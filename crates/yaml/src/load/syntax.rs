//! What the YAML library found wrong, in the words of someone who writes YAML.

use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

use super::layout::{self, LayoutError};
use super::{MOST_DEPTH, first_line, span_of};
use crate::node::Span;
use crate::problem::{Problem, Source};

/// What the library found wrong, in the words of someone who writes YAML.
pub(super) fn syntax_problem(source: &Source, error: &Error) -> Problem {
    let mut error = error.without_snippet();
    while let Error::AliasError { error: inner, .. } = error {
        error = inner;
    }
    let (message, help) = match error {
        Error::MultipleDocuments { .. } => (
            "a second document starts here".to_owned(),
            "put it in a file of its own, or remove the `---` before it",
        ),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            (format!("`{key}` is defined twice"), "remove one of the two")
        }
        Error::DuplicateMappingKey { .. } => {
            ("this key is defined twice".to_owned(), "remove one of the two")
        }
        Error::NullIntoString { .. } => ("a name is missing before `:`".to_owned(), ""),
        Error::Unexpected { expected: "string scalar", .. } => {
            ("a name must be text".to_owned(), "")
        }
        Error::UnknownAnchor { .. } => {
            if let Some(LayoutError { span, message, help }) =
                layout::starred_text(source.text(), error_span(source.text(), error).start)
            {
                return source.problem(span, message, help);
            }
            ("this alias has no anchor".to_owned(), "define it before, as `&name`; or use quotes")
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            ("only a mapping can be merged".to_owned(), "write `<<: *name`")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("this alias is inside the value that it names".to_owned(), "")
        }
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            (format!("nested deeper than {MOST_DEPTH} levels"), "")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            ("too much in one file".to_owned(), "split it, or use fewer aliases")
        }
        other => {
            let reason = UserMessageFormatter.format_message(other).into_owned();
            let text = source.text();
            let at = error_span(text, error).start;
            if let Some(LayoutError { span, message, help }) = layout::fault(text, at, &reason) {
                return source.problem(span, message, help);
            }
            let help = advice(text, error, &reason);
            (format!("not valid YAML: {reason}"), help)
        }
    };
    source.problem(error_span(source.text(), error), message, help.to_owned())
}

/// What to write instead, by what the library says.
fn advice(text: &str, error: &Error, reason: &str) -> &'static str {
    if is_variable_in_brackets(text, error) {
        return "in brackets, a value with `${` needs quotes: \"${NAME}\"";
    }
    let known = [
        ("tab", "indent with spaces"),
        (
            "mapping values are not allowed",
            "check the indentation; text that holds `: ` needs quotes",
        ),
        ("unexpected character", "text that starts with a special character needs quotes"),
        ("quoted scalar", "check that the quotes are closed"),
        ("block scalar", "text that starts with `>` or `|` needs quotes"),
        ("simple key expected", "write `name: value`, with a colon and a space after the name"),
        ("<document start>", "a file consists of `name: value`"),
        ("unclosed bracket", "close it after its last item"),
        ("misplaced bracket", "remove it, or open one before it"),
        ("mismatched bracket", "close each bracket with its own kind: [ ] and { }"),
        ("illegal placement", "check the brackets and commas before it"),
        ("flow", "check the brackets and commas before it"),
        (
            "did not find expected key",
            "check the indentation; text that starts with `{` or `[` needs quotes",
        ),
    ];
    known.iter().find(|(words, _)| reason.contains(words)).map_or("", |(_, help)| help)
}

/// Whether the line of the error has an environment variable before it: its braces are YAML's own
/// inside of brackets.
fn is_variable_in_brackets(text: &str, error: &Error) -> bool {
    let before = text.get(..error_span(text, error).end).unwrap_or_default();
    before.rsplit('\n').next().is_some_and(|line| {
        line.rfind("${").and_then(|at| line.get(..at)).is_some_and(|line| line.contains(['[', '{']))
    })
}

/// Errors of the library's scanner count in characters only. What is missing at the end of the
/// file is shown at the last text there is, not on an empty line.
fn error_span(text: &str, error: &Error) -> Span {
    let Some(location) = error.location() else { return Span::default() };
    if location.span().byte_offset().is_some() {
        return first_line_if_open(text, span_of(location));
    }
    let skipped = usize::try_from(location.span().offset()).unwrap_or(usize::MAX);
    let start = text.char_indices().nth(skipped).map_or(text.len(), |(position, _)| position);
    match text.get(start..).and_then(|rest| rest.chars().next()) {
        Some(c) => Span { start, end: start + c.len_utf8() },
        None => Span { start: text.trim_end().len(), end: text.len() },
    }
}

/// Where the library gives only the start of something, the rest of its line is meant.
fn first_line_if_open(text: &str, span: Span) -> Span {
    if span.is_empty() { first_line(text, span) } else { span }
}
