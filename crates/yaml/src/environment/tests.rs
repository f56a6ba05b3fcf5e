use proptest::prelude::*;

use super::*;
use crate::{Document, Entries, Later, Spanned};

fn sources() -> Sources {
    let set = [
        ("NAME", "name"),
        ("NUMBER", "4"),
        ("GROUPED", "100_000"),
        ("YES", "true"),
        ("NIL", "~"),
        ("LIST", "[1, 2]"),
        ("ITEM", "- 1"),
        ("BARE_ITEM", "-"),
        ("MARK", "---"),
        ("ENTRY", "a: 1"),
        ("COMMENT", "4 # four"),
        ("LINES", "1\nother: 2"),
        ("ALIAS", "*a"),
        ("NESTED", "${NUMBER}"),
        ("EMPTY", ""),
    ];
    set.into_iter()
        .fold(Sources::system(), |sources, (name, value)| sources.with_variable(name, value))
}

fn document(text: &str) -> Document {
    Document::parse_with("f.yaml", text, &sources()).unwrap_or_else(|problem| panic!("{problem}"))
}

fn value(document: &Document) -> &Value {
    let Value::Mapping(entries) = &document.root().value else { panic!("{document:?}") };
    &entries[0].1.value
}

fn problems(document: &Document) -> Vec<Problem> {
    let mut problems = Vec::new();
    let _: Option<Entries<Node>> = document.decode(&[], &mut problems);
    problems
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn variables_are_filled_in_and_plain_scalars_typed_by_what_they_are_then() {
    for (written, expected) in [
        ("${NAME}", text("name")),
        ("a ${NAME} b${NAME}", text("a name bname")),
        ("http://${NAME}:${NUMBER}/", text("http://name:4/")),
        ("'${NAME}'", text("name")),
        ("\"a\\t${NAME}\"", text("a\tname")),
        // Typed when it is plain, and only then.
        ("${NUMBER}", Value::Integer(4)),
        ("${NUMBER}${NUMBER}", Value::Integer(44)),
        ("-${NUMBER}", Value::Integer(-4)),
        ("${NUMBER}.5", Value::Float(4.5)),
        ("${GROUPED}", Value::Integer(100_000)),
        ("${YES}", Value::Bool(true)),
        ("${NIL}", Value::Null),
        ("\"${NUMBER}\"", text("4")),
        ("'${YES}'", text("true")),
        ("'${NIL}'", text("~")),
        ("${NUMBER}/hour", text("4/hour")),
        // Defaults.
        ("${TOLLGATE_UNSET:-8}", Value::Integer(8)),
        ("'${TOLLGATE_UNSET:-8}'", text("8")),
        ("${EMPTY:-8}", Value::Integer(8)),
        ("${NUMBER:-8}", Value::Integer(4)),
        ("${TOLLGATE_UNSET:-}", Value::Null),
        ("'${TOLLGATE_UNSET:-}'", text("")),
        ("${TOLLGATE_UNSET:-a:-b $ {c}", text("a:-b $ {c")),
        // What is no variable.
        ("$${NAME}", text("${NAME}")),
        ("a$${b} ${NAME}", text("a${b} name")),
        ("$$${NAME}", text("$${NAME}")),
        ("$NAME", text("$NAME")),
        ("/repos/{owner}/$", text("/repos/{owner}/$")),
        ("costs 5$", text("costs 5$")),
    ] {
        let document = document(&format!("a: {written}"));
        assert_eq!(problems(&document), [], "{written}");
        assert_eq!(*value(&document), expected, "{written}");
    }
}

#[test]
fn no_value_adds_structure() {
    for (name, expected) in [
        ("LIST", "[1, 2]"),
        ("ITEM", "- 1"),
        ("BARE_ITEM", "-"),
        ("MARK", "---"),
        ("ENTRY", "a: 1"),
        ("COMMENT", "4 # four"),
        ("LINES", "1\nother: 2"),
        ("ALIAS", "*a"),
        ("NESTED", "${NUMBER}"),
    ] {
        let document = document(&format!("a: ${{{name}}}\nb: &a 1"));
        assert_eq!(value(&document), &text(expected), "{name}");
    }
}

#[test]
fn keys_and_comments_are_left_alone() {
    let document = document("${TOLLGATE_UNSET}: 1 # ${TOLLGATE_UNSET\n'${': {b: \"${NAME}\"}");
    let entries: Entries<Node> = document.decode(&[], &mut Vec::new()).unwrap();
    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!((keys, problems(&document)), (vec!["${TOLLGATE_UNSET}", "${"], Vec::new()));
}

/// A value that cannot be filled, and the lines that are printed.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "a: 1\nb: \"x ${TOLLGATE_UNSET} y\"",
        &[
            "f.yaml:2:7: environment variable `TOLLGATE_UNSET` is not set",
            "  |",
            "2 | b: \"x ${TOLLGATE_UNSET} y\"",
            "  |       ^^^^^^^^^^^^^^^^^ set it, or write a default: \
             `${NAME:-default}`",
        ],
    ),
    (
        "a: ${EMPTY}",
        &[
            "f.yaml:1:4: environment variable `EMPTY` is not set",
            "  |",
            "1 | a: ${EMPTY}",
            "  |    ^^^^^^^^ set it, or write a default: `${NAME:-default}`",
        ],
    ),
    (
        "a: x${NAME-b}",
        &[
            "f.yaml:1:5: `${NAME-b}` does not name an environment variable",
            "  |",
            "1 | a: x${NAME-b}",
            "  |     ^^^^^^^^^ write `${NAME}` or `${NAME:-default}`; for the text `${` itself, \
             `$${`",
        ],
    ),
    (
        "a: [1, ${NAME}]",
        &[
            "f.yaml:1:9: not valid YAML: while parsing a flow sequence, expected ',' or ']'",
            "  |",
            "1 | a: [1, ${NAME}]",
            "  |         ^ in brackets, a value with `${` needs quotes: \"${NAME}\"",
        ],
    ),
];

#[test]
fn what_cannot_be_filled_in_is_a_problem_at_its_place() {
    for (written, expected) in REFUSED {
        let problem = match Document::parse_with("f.yaml", written, &sources()) {
            Ok(document) => problems(&document).remove(0),
            Err(problem) => problem,
        };
        let shown = problem.to_string();
        assert_eq!(shown.lines().collect::<Vec<_>>(), *expected, "{written}");
    }
}

#[test]
fn malformed_variables_are_refused() {
    for written in [
        "${",
        "${}",
        "a${NAME",
        "${1}",
        "${NAME:}",
        "${NAME:?}",
        "${NAME+x}",
        "${ NAME }",
        "${NÄME}",
        "${NAME:-${NUMBER}}",
        "${a.b}",
    ] {
        let document = document(&format!("a: '{written}'"));
        let problems = problems(&document);
        let [problem] = problems.as_slice() else { panic!("{written}: {problems:?}") };
        assert!(problem.message().ends_with("does not name an environment variable"), "{problem}");
        assert!(problem.help().contains("`${NAME:-default}`"), "{problem}");
    }
}

#[test]
fn every_variable_that_is_not_set_is_reported_beside_all_other_problems() {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields, rename = "file")]
    #[expect(dead_code, reason = "only decoded")]
    struct File {
        a: Spanned<u16>,
        b: Vec<String>,
        c: bool,
    }
    let text =
        "a: ${TOLLGATE_UNSET}\nb:\n  - ${TOLLGATE_UNSET_TOO}x${TOLLGATE_UNSET}\nc: 5\nd: 6\n";
    let mut problems = Vec::new();
    let decoded: Option<File> = document(text).decode(&[] as &[Later], &mut problems);
    let described: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}:{} {}", problem.line(), problem.column(), problem.message()))
        .collect();
    assert!(decoded.is_none());
    assert_eq!(
        described,
        [
            "1:4 environment variable `TOLLGATE_UNSET` is not set",
            "3:5 environment variable `TOLLGATE_UNSET_TOO` is not set",
            "3:27 environment variable `TOLLGATE_UNSET` is not set",
            "4:4 expected true or false, found a number",
            "5:1 unknown field `d` in a file",
        ]
    );
}

#[test]
fn values_repeated_without_end_are_refused() {
    let sources = Sources::system().with_variable("LONG", &"x".repeat(100_000));
    let text = format!("a: &a ${{LONG}}\nb: [{}]", "*a, ".repeat(50));
    let document = Document::parse_with("f.yaml", &text, &sources).unwrap();
    assert!(problems(&document).iter().any(|problem| problem.message() == "too much in one file"));
}

/// Messages that quote a value in one of the ways there are.
#[test]
fn what_came_from_the_environment_is_shown_as_it_is_written() {
    for (set, written, message, expected) in [
        ("hunter2", "${X}", "`hunter2` is not a time", "`${X}` is not a time"),
        ("hunter2", "http://${X}/", "`http://hunter2/` is wrong", "`http://${X}/` is wrong"),
        ("hunter2", "http://${X}/", "no host `hunter2`", "no host `${X}`"),
        ("hunter2", "${X}", "did you mean `hunter2`?", "did you mean `${X}`?"),
        ("pro", "${X}", "one of: free, pro, internal", "one of: free, ${X}, internal"),
        ("pro", "${X}", "no rate for tier free, pro", "no rate for tier free, ${X}"),
        ("pro", "a ${X}", "`a pro`: the problem of pro", "`a ${X}`: the problem of pro"),
        ("7", "${X}", "tier free has 7", "tier free has ${X}"),
        ("7", "'${X}'", "write 7 without quotes", "write ${X} without quotes"),
        (
            "007",
            "${X}",
            "`7` is not 70, 0.7 or 127.0.0.7:7",
            "`${X}` is not 70, 0.7 or 127.0.0.7:7",
        ),
        ("Hunter2", "${X}", "`hunter2` belongs to the proxy", "`${X}` belongs to the proxy"),
        ("hunter22", "${X}", "found ahunter22b", "found a${X}b"),
        ("a`b", "${X}", "`a`b` is no name", "`${X}` is no name"),
        ("é\u{1b}x", "${X}", "`é\u{1b}x` é", "`${X}` é"),
        ("hunter2", "${X:-other}", "`hunter2`", "`${X:-other}`"),
        ("", "${X:-other}", "`other`", "`other`"),
    ] {
        let sources = Sources::system().with_variable("X", set);
        let document = Document::parse_with("f.yaml", &format!("a: {written}"), &sources).unwrap();
        let problem = document.problem(Span { start: 3, end: 4 }, message, message);
        assert_eq!((problem.message(), problem.help()), (expected, expected), "{set}");
        assert!(set.is_empty() || !format!("{document:?}").contains(set), "{document:?}");
    }
}

proptest! {
    #[test]
    fn prop_text_without_variables_is_unchanged(text in "[a$}{:\\- ]{0,12}") {
        prop_assume!(!text.contains("${"));
        prop_assert!(parts(&text).iter().all(|part| matches!(part, TextPart::Text(_))));
    }

    #[test]
    fn prop_parts_cover_the_text(text in "[aA_$}{:\\-é]{0,20}") {
        let covered: String = parts(&text)
            .into_iter()
            .map(|part| match part {
                TextPart::Text(text) | TextPart::Malformed(text) => text,
                TextPart::Escaped => ESCAPED,
                TextPart::Variable { written, .. } => written,
            })
            .collect();
        prop_assert_eq!(covered, text);
    }
}

proptest! {
    #[test]
    fn literal_is_read_as_the_text_that_it_was_made_of(given in "(\\PC|\\$|\\$\\{NAME\\}|[\"'#:{}\\\\\t\n]){0,12}") {
        let document = document(&format!("a: {}", literal(&given)));
        prop_assert_eq!(value(&document), &text(&given));
        prop_assert_eq!(problems(&document), Vec::new());
    }
}
