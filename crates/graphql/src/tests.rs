//! Whole requests, beside a reader that writes fragments out.

/// Bodies and URLs.
mod requests;
/// Random documents, and the reader.
mod written_out;

use std::fmt::Write;

use serde_json::{Value, json};

use super::*;

/// The cost of a request with these members.
fn cost(measure: Measure, request: &Value) -> Result<u64, Refusal> {
    let cost = body_cost(measure, "", request.to_string().as_bytes())?;
    assert_eq!(cost.unknown, 0);
    Ok(cost.units)
}

fn nodes(query: &str) -> Result<u64, Refusal> {
    cost(Measure::Nodes, &json!({ "query": query }))
}

/// What the refusal of a document says.
fn refused(query: &str) -> String {
    nodes(query).unwrap_err().to_string()
}

/// The example of the score in GitHub's documentation: 1 + 100 + 5,000 requests.
const SCORE: &str = "query { viewer { login repositories(first: 100) { edges { node { id
    issues(first: 50) { edges { node { id
        labels(first: 60) { edges { node { id name } } } } } } } } } } }";

/// Its first example of nodes.
const SIMPLE: &str = "query { viewer { repositories(first: 50) { edges { repository:node { name
    issues(first: 10) { totalCount edges { node { title bodyHTML } } } } } } } }";

/// Its second example of nodes.
const COMPLEX: &str = "query { viewer {
    repositories(first: 50) { edges { repository:node { name
        pullRequests(first: 20) { edges { pullRequest:node { title
            comments(first: 10) { edges { comment:node { bodyHTML } } } } } }
        issues(first: 20) { totalCount edges { issue:node { title bodyHTML
            comments(first: 10) { edges { comment:node { bodyHTML } } } } } } } } }
    followers(first: 10) { edges { follower:node { login } } } } }";

#[test]
fn documented_examples_cost_what_github_says() {
    for (measure, query, expected) in [
        (Measure::Points, SCORE, 51),
        (Measure::Nodes, SIMPLE, 550),
        (Measure::Nodes, COMPLEX, 22_060),
    ] {
        assert_eq!(cost(measure, &json!({ "query": query })), Ok(expected), "{query}");
    }
}

#[test]
fn points_are_rounded_to_the_nearest_and_are_one_at_least() {
    for (size, expected) in [(0, 1), (1, 1), (148, 1), (149, 2), (248, 2), (249, 3), (9_949, 100)] {
        let query = format!("{{ a(first: {size}) {{ b(last: 3) {{ c }} }} }}");
        let points = cost(Measure::Points, &json!({ "query": query }));
        assert_eq!(points, Ok(expected), "{size}");
    }
    assert_eq!(cost(Measure::Points, &json!({ "query": "{ a }" })), Ok(1));
}

#[test]
fn everything_counts_that_is_executed() {
    for (query, expected) in [
        ("{ a }", 1),
        ("{ __schema { types { name } } }", 1),
        // Some servers take a zero for none.
        ("{ a(first: 0) { b(first: 9) { c } } }", 10),
        ("mutation { a { b(first: 7) { c } } }", 7),
        ("subscription S { a(last: 7) { c } }", 7),
        ("{ a(first: 2, last: 5) }", 5),
        ("{ a(first: 2, last: null) }", 2),
        // Aliases, and the same selection again.
        ("{ a(first: 2) { x } b: a(first: 3) { x } a(first: 2) { x } }", 7),
        ("{ first: a(x: {first: 10}, y: [{last: 10}]) { b } }", 1),
        // Fragments.
        ("{ a(first: 2) { ...F ...F } } fragment F on T { b(first: 3) { c } }", 14),
        (
            "{ a(first: 2) { ... on T { b(first: 3) } ... @x { b(first: 4) } ... { c(last: 1) }}}",
            18,
        ),
        ("{ ...F } fragment G on T { a(first: 4) } fragment F on T { b(first: 2) { ...G } }", 10),
        ("{ a } fragment F on T { b(first: 2) }", 1),
        // Conditions.
        ("{ a(first: 2) @skip(if: true) b(first: 3) @skip(if: false) }", 3),
        ("{ a(first: 2) @include(if: true) b(first: 3) @include(if: false) }", 2),
        ("{ a(first: 2) @include(if: true) @skip(if: true) }", 1),
        (
            "{ ...F @skip(if: true) ... @include(if: false) { b(first: 3) } } fragment F on T { c }",
            1,
        ),
        (
            "query($c: Boolean = false) { a(first: 2) @include(if: $c) b(first: 3) @skip(if: $c) }",
            3,
        ),
        ("query($c: Boolean) { a(first: 2) @include(if: $c) b(first: 3) @skip(if: $c) }", 5),
        ("{ a(first: 2) @include(if: 0) @custom(if: false) b @skip }", 2),
        // What is not executed is not looked at.
        ("{ b(first: 3) a(first: -1) @skip(if: true) }", 3),
        // Defaults.
        ("query($n: Int = 5) { a(first: $n) }", 5),
        ("query($n: Int) { a(first: $n) { b(first: 3) } }", 3),
        ("query($n: Int = null) { a(first: $n) { b(first: 3) } }", 3),
        ("query Q($n: Int! = 6 @d) @d(x: $n) { ...F } fragment F on T @d { a(first: $n) }", 6),
        ("\u{FEFF}#{ c(first: 100) }\r{, a ( first ,:, 2 ,) , }", 2),
        (
            "{ a(x: \"}{\\\"(first: 100)\", y: \"\"\"\\\"\"\" ) { b(first: 9) }\"\"\", first: 4) }",
            4,
        ),
    ] {
        assert_eq!(nodes(query), Ok(expected), "{query}");
    }
}

#[test]
fn variables_are_those_of_the_request() {
    let query = "query Q($n: Int = 5, $c: Boolean! = true) {
        a(first: $n) @include(if: $c) { b(last: 2) } }";
    for (variables, expected) in [
        (json!(null), 15),
        (json!({}), 15),
        (json!({ "n": 7, "other": [{}] }), 21),
        (json!({ "n": 7.0 }), 21),
        (json!({ "n": null, "c": null }), 15),
        (json!({ "c": false }), 1),
        (json!({ "c": "false" }), 15),
    ] {
        let request = json!({ "query": query, "variables": variables });
        assert_eq!(cost(Measure::Nodes, &request), Ok(expected), "{variables}");
    }
    for (n, said) in [
        (json!("7"), "is not a whole number"),
        (json!(true), "is not a whole number"),
        (json!([7]), "is not a whole number"),
        (json!(7.5), "is not a whole number"),
        (json!(-1), "is negative"),
        (json!(2_147_483_648_u32), "is larger than 2147483647"),
        (json!(1e300), "is larger than 2147483647"),
    ] {
        let request = json!({ "query": query, "variables": { "n": n } });
        let refusal = cost(Measure::Nodes, &request).unwrap_err();
        assert_eq!(refusal.to_string(), format!("`first` {said} (line 2, column 11)"), "{n}");
    }
}

#[test]
fn documents_that_servers_refuse_are_refused() {
    for (query, said) in [
        ("{ a(first: -1) }", "`first` is negative (line 1, column 5)"),
        ("{ a(last: 2147483648) }", "`last` is larger than 2147483647 (line 1, column 5)"),
        ("{ a(first: \"10\") }", "`first` is not a whole number (line 1, column 5)"),
        ("{ a(first: TEN) }", "`first` is not a whole number (line 1, column 5)"),
        ("{ a(first: 10.0) }", "`first` is not a whole number (line 1, column 5)"),
        ("{ a(first: [10]) }", "`first` is not a whole number (line 1, column 5)"),
        ("{ a(first: true) }", "`first` is not a whole number (line 1, column 5)"),
        ("{ a(first: 1, first: 2) }", "an argument is there twice (line 1, column 15)"),
        ("{ a @skip(if: true, if: false) }", "an argument is there twice (line 1, column 21)"),
        (
            "{ a @skip(if: true) @skip(if: false) }",
            "a directive is there twice (line 1, column 21)",
        ),
        ("query($n: Int = 1, $n: Int = 2) { a }", "a variable is there twice (line 1, column 20)"),
        ("{ a(first: $n) }", "the operation does not define this variable (line 1, column 12)"),
        ("{\n  ...F\n}", "the document has no fragment of this name (line 2, column 3)"),
        (
            "{ ...F } fragment F on T { ...G } fragment G on T { a { ...F } }",
            "the fragment that is spread here spreads itself (line 1, column 57)",
        ),
        (
            "{ a } fragment F on T { a } fragment F on T { b }",
            "a fragment of this name is there twice (line 1, column 29)",
        ),
        (
            "query Q { a } query Q { b }",
            "an operation of this name is there twice (line 1, column 15)",
        ),
        ("{ a } { b }", "an operation without a name is there twice (line 1, column 7)"),
        (
            "query A { a } { b }",
            "the document has several operations: `operationName` must name one",
        ),
        ("fragment F on T { a }", "the document has no operation"),
        (
            "{ a } type T { a: Int }",
            "the document has a definition that is no operation and no fragment (line 1, column 7)",
        ),
        ("{ a(first 10) }", "syntax error in the document (line 1, column 11)"),
        ("{ a(first last: 10) }", "syntax error in the document (line 1, column 5)"),
        ("{ a } \"\" fragment on T { a }", "syntax error in the document (line 1, column 7)"),
    ] {
        assert_eq!(refused(query), said, "{query}");
    }
}

#[test]
fn what_is_no_graphql_is_refused() {
    for query in [
        " ",
        "{",
        "}",
        "{}",
        "{ a",
        "{ a }}",
        "{ a( }",
        "{ a() }",
        "{ a { } }",
        "query",
        "query Q",
        "{ ... }",
        "{ ...on }",
        "{ a: }",
        "{ a:: b }",
        "{ a(b: ) }",
        "{ a(b: $) }",
        "{ @x }",
        "a",
        "query() { a }",
        "query($a) { a }",
        "query($a: Int = $b) { a }",
        "{ a(b: \"c) }",
        "{ a ;b }",
        "{ a(b: \"c\n\") }",
        "{ a(b: \"\"\"c\"\") }",
        "{ a(b: \"\\q\") }",
        "{ a(b: 01) }",
        "{ a(b: 1x) }",
        "fragment on on T { a }",
        "fragment F { a } { b }",
        "{ a(b: [1) }",
        "{ a(b: {c: 1) }",
        "{ é }",
        "{ a } extend",
        "\"\"",
        "\"d\" query { a }",
        "{ a(b: -) }",
        "{ a(b: 1.) }",
        "{ a(b: 1e) }",
        "..",
    ] {
        let cost = nodes(query);
        assert!(matches!(cost, Err(Refusal::Syntax(_))), "{query}: {cost:?}");
    }
}

#[test]
fn the_operation_is_the_one_that_is_named() {
    let query = "query A { a(first: 2) } query B { a(first: 3) } mutation C { a(first: 4) }";
    for (name, expected) in [
        (json!("A"), Ok(2)),
        (json!("B"), Ok(3)),
        (json!("C"), Ok(4)),
        (json!("D"), Err(Refusal::UnknownOperation)),
        (json!(""), Err(Refusal::UnnamedOperation)),
        (json!(null), Err(Refusal::UnnamedOperation)),
    ] {
        let request = json!({ "query": query, "operationName": name });
        assert_eq!(cost(Measure::Nodes, &request), expected, "{name}");
    }
    let request = json!({ "query": "{ a }", "operationName": "A" });
    assert_eq!(cost(Measure::Nodes, &request), Err(Refusal::UnknownOperation));
}

/// Fragments each of which spreads the next one so often.
fn chain(fragments: usize, spreads: usize) -> String {
    let mut document = "{ a(first: 2) { ...F0 } }".to_owned();
    for fragment in 0..fragments {
        let spread = format!("...F{} ", fragment + 1).repeat(spreads);
        write!(document, " fragment F{fragment} on T {{ {spread} }}").unwrap();
    }
    write!(document, " fragment F{fragments} on T {{ b(first: 3) {{ c }} }}").unwrap();
    document
}

#[test]
fn bombs_of_fragments_are_counted_in_the_time_that_it_takes_to_read_them() {
    assert_eq!(nodes(&chain(20, 2)), Ok(2 + (2 << 20) * 3));
    // More than there are atoms: the most that there is.
    assert_eq!(nodes(&chain(60, 100)), Ok(u64::MAX));
    let points = cost(Measure::Points, &json!({ "query": chain(60, 100) }));
    assert_eq!(points, Ok(u64::MAX / 100));
    let wide = format!("{{ {} }}", "a(first: 2147483647) { b(first: 2147483647) }".repeat(1_000));
    assert_eq!(nodes(&wide), Ok(u64::MAX));
}

#[test]
fn what_is_nested_too_deeply_is_refused() {
    let is_too_deep = |query: &str| matches!(nodes(query), Err(Refusal::TooDeep(_)));
    let nested =
        |open: &str, close: &str, depth| format!("{}a{}", open.repeat(depth), close.repeat(depth));
    assert_eq!(nodes(&nested("{a", "}", 64)), Ok(1));
    assert!(is_too_deep(&nested("{a", "}", 65)));
    assert!(is_too_deep(&nested("{a", "}", 3_000)));
    assert!(is_too_deep(&nested("{ ... ", "}", 65)));
    assert!(is_too_deep(&format!("{{ a(b: {}) }}", nested("[", "]", 3_000))));
    assert!(is_too_deep(&format!("{{ a(b: {}) }}", nested("{c:", "}", 3_000))));
    assert!(is_too_deep(&format!("query($v: {} = 1) {{ a }}", nested("[", "]", 3_000))));
    // Through fragments, whichever is counted first.
    assert!(nodes(&chain(60, 1)).is_ok());
    assert!(is_too_deep(&chain(61, 1)));
    assert!(is_too_deep(&chain(1_000, 1)));
    let shallow_first = format!(
        "{{ ...F ...D }} {} {}",
        format_args!("fragment D on T {}", nested("{a", "}", 62).replace("aa", "a{...F}")),
        format_args!("fragment F on T {}", nested("{a", "}", 2)),
    );
    assert!(is_too_deep(&shallow_first), "{shallow_first}");
}

#[test]
fn what_is_too_long_is_refused() {
    assert_eq!(nodes(&format!("{{ {} }}", "a ".repeat(9_000))), Ok(1));
    assert_eq!(nodes(&format!("{{ {} }}", "a ".repeat(10_000))), Err(Refusal::TooManyTokens));
    let comment = "#".repeat(bounds::MAX_BYTES - 3);
    assert_eq!(nodes(&format!("{{a}}{comment}")), Ok(1));
    assert_eq!(nodes(&format!("{{a}}#{comment}")), Err(Refusal::TooLong));
}
