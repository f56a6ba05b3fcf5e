use super::*;

fn parse(text: &str) -> Document {
    Document::parse("f.yaml", text).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Each scalar, key and collection in the order of the file, as the text that its span covers.
fn covered(document: &Document, node: &Node, out: &mut Vec<String>) {
    out.push(document.source(node.span).to_owned());
    match &node.value {
        Value::Sequence(items) => items.iter().for_each(|item| covered(document, item, out)),
        Value::Mapping(entries) => {
            for (key, value) in entries {
                out.push(document.source(key.span).to_owned());
                covered(document, value, out);
            }
        }
        _ => {}
    }
}

#[test]
fn spans_cover_what_is_written() {
    for (text, expected) in [
        ("a: 1", &["a: 1", "a", "1"][..]),
        ("a: \"4\\x41\" # c", &["a: \"4\\x41\"", "a", "\"4\\x41\""]),
        ("'a' : 'it''s'", &["'a' : 'it''s'", "'a'", "'it''s'"]),
        ("a: two words  \n", &["a: two words", "a", "two words"]),
        ("é: 日本\r\n", &["é: 日本", "é", "日本"]),
        ("\u{feff}a: 1\r\n", &["a: 1", "a", "1"]),
        ("a: # c\nb: ~", &["a:", "a", "", "b", "~"]),
        ("a:\n  b: 1\n  c: 2", &["a:", "a", "b: 1", "b", "1", "c", "2"]),
        ("a:\n  - x\n  - y", &["a:", "a", "- x", "x", "y"]),
        (
            "a: [1, {b: ']'}] # c",
            &["a: [1, {b: ']'}]", "a", "[1, {b: ']'}]", "1", "{b: ']'}", "b", "']'"],
        ),
        ("a: [1,\n  2]", &["a: [1,", "a", "[1,", "1", "2"]),
        ("a: &x 1\nb: *x", &["a: &x 1", "a", "1", "b", "1"]),
        (
            "a: &x {b: 1}\nc: {<<: *x}",
            &["a: &x {b: 1}", "a", "{b: 1}", "b", "1", "c", "{<<: *x}", "b", "1"],
        ),
    ] {
        let document = parse(text);
        let mut out = Vec::new();
        covered(&document, document.root(), &mut out);
        assert_eq!(out, expected, "{text:?}");
    }
}

#[test]
fn scalars_have_the_kind_that_yaml_1_2_gives_them() {
    for (text, expected) in [
        ("42", Value::Integer(42)),
        ("\"42\"", Value::String("42".into())),
        ("-7", Value::Integer(-7)),
        ("100_000", Value::Integer(100_000)),
        ("0x1f", Value::Integer(31)),
        ("1.5", Value::Float(1.5)),
        (".inf", Value::Float(f64::INFINITY)),
        ("18446744073709551615", Value::Float(18_446_744_073_709_551_615.0)),
        ("true", Value::Bool(true)),
        ("yes", Value::String("yes".into())),
        ("off", Value::String("off".into())),
        ("null", Value::Null),
        ("", Value::Null),
        ("5000/hour", Value::String("5000/hour".into())),
        ("12:30", Value::String("12:30".into())),
        ("2026-12-31", Value::String("2026-12-31".into())),
        ("!!str 5", Value::String("5".into())),
    ] {
        let document = parse(&format!("a: {text}"));
        let Value::Mapping(entries) = &document.root().value else { panic!("{text}") };
        assert_eq!(entries[0].1.value, expected, "{text}");
    }
}

/// Malformed files, and the lines that are printed.
const MALFORMED: &[(&str, &[&str])] = &[
    ("", &["f.yaml: the file is empty", "  write at least one `name: value`"]),
    ("# only a comment\n", &["f.yaml: the file is empty", "  write at least one `name: value`"]),
    ("---\n...\n", &["f.yaml: the file is empty", "  write at least one `name: value`"]),
    (
        "- 1\n- 2\n",
        &[
            "f.yaml:1:1: expected a mapping, found a list",
            "  |",
            "1 | - 1",
            "  | ^^^ a file consists of `name: value`",
        ],
    ),
    (
        "text",
        &[
            "f.yaml:1:1: expected a mapping, found text",
            "  |",
            "1 | text",
            "  | ^^^^ a file consists of `name: value`",
        ],
    ),
    (
        "a: 1\n---\nb: 2\n",
        &[
            "f.yaml:3:1: a second document starts here",
            "  |",
            "3 | b: 2",
            "  | ^^^^ put it in a file of its own, or remove the `---` before it",
        ],
    ),
    (
        "a: 1\nb: 2\na: 3\n",
        &["f.yaml:3:1: `a` is defined twice", "  |", "3 | a: 3", "  | ^ remove one of the two"],
    ),
    (
        "l: {x: 1, x: 2}\n",
        &[
            "f.yaml:1:11: `x` is defined twice",
            "  |",
            "1 | l: {x: 1, x: 2}",
            "  |           ^ remove one of the two",
        ],
    ),
    (
        "a: b: c\n",
        &[
            "f.yaml:1:5: not valid YAML: mapping values are not allowed in this context",
            "  |",
            "1 | a: b: c",
            "  |     ^ check the indentation; text that holds `: ` needs quotes",
        ],
    ),
    (
        "\u{feff}a:\r\n\t- b\r\n",
        &["f.yaml:2:1: indented with a tab", "  |", "2 | \t- b", "  | ^ indent with spaces"],
    ),
    (
        "é: [1\nb: 2\n",
        &[
            "f.yaml:1:4: `[` is never closed",
            "  |",
            "1 | é: [1",
            "  |    ^ add `]` after its last item",
        ],
    ),
    (
        "a: \"x\n",
        &[
            "f.yaml:1:6: not valid YAML: invalid indentation in multiline quoted scalar",
            "  |",
            "1 | a: \"x",
            "  |      ^ check that the quotes are closed",
        ],
    ),
    (
        "a: [1\n",
        &[
            "f.yaml:1:4: not valid YAML: unclosed bracket '['",
            "  |",
            "1 | a: [1",
            "  |    ^ close it after its last item",
        ],
    ),
    (
        "a: @foo\n",
        &[
            "f.yaml:1:4: not valid YAML: unexpected character: `@'",
            "  |",
            "1 | a: @foo",
            "  |    ^ text that starts with a special character needs quotes",
        ],
    ),
    (
        "a: *nope\n",
        &[
            "f.yaml:1:4: this alias has no anchor",
            "  |",
            "1 | a: *nope",
            "  |    ^ define it before, as `&name`; or use quotes",
        ],
    ),
    (
        "a: &a [*a]\n",
        &[
            "f.yaml:1:8: this alias is inside the value that it names",
            "  |",
            "1 | a: &a [*a]",
            "  |        ^^",
        ],
    ),
    (
        "<<: 5\n",
        &[
            "f.yaml:1:5: only a mapping can be merged",
            "  |",
            "1 | <<: 5",
            "  |     ^ write `<<: *name`",
        ],
    ),
    ("~: 1\n", &["f.yaml:1:1: a name is missing before `:`", "  |", "1 | ~: 1", "  | ^"]),
    ("[a]: 1\n", &["f.yaml:1:1: a name must be text", "  |", "1 | [a]: 1", "  | ^"]),
    (
        "a: \u{1}\n",
        &[
            "f.yaml:1:4: not valid YAML: unexpected character: `\\u{1}'",
            "  |",
            "1 | a: \\u{1}",
            "  |    ^^^^^ text that starts with a special character needs quotes",
        ],
    ),
];

/// Mistakes in the layout: the text, and what is said about which place.
const LAYOUT: &[(&str, &str)] = &[
    ("a:\n  b:\n\t  c: 1\n", "3:1 indented with a tab: indent with spaces"),
    // The library speaks of the scalar before it.
    ("a:\n    b: x\n\tc: 1\n", "3:1 indented with a tab: indent with spaces"),
    (
        "a:\n  b:\n    c: 1\n   d: 2\n",
        "4:4 indented by 3 spaces, unlike the lines before it: indent it by 4 or 2",
    ),
    (
        "a:\n  b: 1\n   c: 2\n",
        "3:4 indented by 3 spaces, unlike the lines before it: indent it by 2",
    ),
    (
        "a:\n  - b: 1\n - b: 2\n",
        "3:2 indented by 1 space, unlike the lines before it: indent it by 2",
    ),
    (
        "a:\n  - b: 1\n  c: 2\n",
        "3:3 indented by 2 spaces, unlike the lines before it: write `- ` before it, or indent it by 4 or 0",
    ),
    ("a:\n  b\n    c: 1\n", "2:3 no colon after the name: write `b:`"),
    ("a: 1\nb c\n", "2:1 no colon after the name: write `b: c`"),
    ("a:1\nb: 2\n", "1:1 no space after the colon: write `a: 1`"),
    (
        "a:\n  - { b: [1 }\n",
        "2:10 not valid YAML: mismatched bracket '[' closed by '}': close each bracket with its own kind: [ ] and { }",
    ),
    ("a:\n  - { b: {c: 1}\n  - { b: 1 }\n", "2:5 `{` is never closed: add `}` after its last item"),
    // Brackets and quotes in text are no brackets and quotes.
    ("a: it's [\nb: { c: \"]\"\nd: 1\n", "2:4 `{` is never closed: add `}` after its last item"),
    (
        "a:\n  - { b: \"c, d: 1 }\n  - { b: \"c\", d: 1 }\n",
        "2:10 `\"` is not closed on its line: add `\"` where the text ends",
    ),
    ("a: **\n", "1:4 text that starts with `*` needs quotes: write \"**\""),
    ("a: [*.b.c]\n", "1:5 text that starts with `*` needs quotes: write \"*.b.c\""),
    (
        "a: 1\n<<<<<<< mine\nb: 1\n",
        "2:1 a merge conflict that is not resolved: keep one of the two versions, and remove the marks",
    ),
];

#[test]
fn mistakes_in_the_layout_are_shown_where_they_are() {
    for (text, expected) in LAYOUT {
        let problem = Document::parse("f.yaml", text).expect_err(text);
        let line = problem.line();
        let column = problem.column();
        let shown = format!("{line}:{column} {}: {}", problem.message(), problem.help());
        assert_eq!(shown, *expected, "{text:?}");
    }
}

#[test]
fn malformed_files_are_problems_with_their_place() {
    for (text, expected) in MALFORMED {
        let problem = Document::parse("f.yaml", text).expect_err(text).to_string();
        assert_eq!(problem.lines().collect::<Vec<_>>(), *expected, "{text:?}");
    }
}

#[test]
fn hostile_files_are_refused() {
    let long = format!("a: {}", "x".repeat(1 << 20));
    let deep = format!("a: {}{}", "[".repeat(70), "]".repeat(70));
    let wide = format!("a: [{}]", "1, ".repeat(100_000));
    let doubled: String = (1..40).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)).collect();
    let bomb = format!("a0: &a0 [1, 1]\n{doubled}");
    let repeated = format!("a: &a {}\nb: [{}]", "x".repeat(500_000), "*a, ".repeat(90));
    let merged = format!("a: &a {{{}}}\nb: [{}]", keys(2000), "{<<: *a}, ".repeat(90));
    for (text, expected) in [
        (long, "f.yaml: the file has 1048579 bytes; at most 1048576 are read"),
        (deep, "f.yaml:1:35: nested deeper than 32 levels"),
        (wide, "too much in one file"),
        (bomb, "too much in one file"),
        (repeated, "too much in one file"),
        (merged, "too much in one file"),
    ] {
        let problem = Document::parse("f.yaml", &text).expect_err(expected).to_string();
        let (first, _) = problem.split_once('\n').unwrap();
        assert!(first.ends_with(expected), "{first}");
    }
}

#[test]
fn deepest_file_is_decoded_on_a_thread_of_common_size() {
    let text = format!("a: {}1{}", "{a: ".repeat(31), "}".repeat(31));
    let document = parse(&text);
    let mut problems = Vec::new();
    let entries: Entries<Node> = document.decode(&[], &mut problems).unwrap();
    assert_eq!((entries.len(), problems), (1, Vec::new()));
}

fn keys(count: usize) -> String {
    (0..count).map(|n| format!("k{n}: 1, ")).collect()
}
