//! The reader in pieces, beside `serde_json` that has all at once.

use proptest::{collection::vec, prelude::*};
use serde_json::Value;

use super::{Finder, Found, Lost, Malformed, Scanner};
use crate::path::{Path, Paths};

/// What was found at each path: the last value, or nothing.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    values: Vec<Option<String>>,
    is_repeated: bool,
}

impl Finder for Seen {
    fn found(&mut self, path: usize, value: Found<'_>) {
        self.values[path] = Some(match value {
            Found::Null => "null".to_owned(),
            Found::Bool(value) => value.to_string(),
            Found::Number(number) => format!("number {number}"),
            Found::Text(text) => format!("text {} {:?}", text.bytes, text.text),
            Found::Container => "container".to_owned(),
        });
    }

    fn lost(&mut self, path: usize, why: Lost) {
        self.values[path] = None;
        self.is_repeated |= why == Lost::Repeated;
    }
}

const PATHS: [&str; 8] = ["a", "a.b", "a.b.c", "b[0]", "b[1].a", "b[-1].a", "[].a", "[-1].b"];

fn paths() -> Vec<Path> {
    PATHS.iter().map(|text| text.parse().unwrap()).collect()
}

/// What the reader sees in pieces of so many bytes.
fn seen(document: &[u8], piece_bytes: usize) -> Result<Seen, Malformed> {
    let paths = Paths::new(&paths()).unwrap();
    let mut seen = Seen { values: vec![None; PATHS.len()], is_repeated: false };
    let mut scanner = Scanner::of_one();
    for piece in document.chunks(piece_bytes) {
        scanner.read(&paths, piece, &mut seen)?;
    }
    match scanner.finish(&paths, &mut seen) {
        true => Ok(seen),
        false => Err(Malformed::Syntax),
    }
}

/// What there is at a path, read out of the whole document.
fn expected(value: &Value, path: &str) -> Option<String> {
    let mut at = vec![value];
    for step in path.replace('[', ".[").split('.').filter(|step| !step.is_empty()) {
        at = at
            .into_iter()
            .flat_map(|value| match step.strip_prefix('[') {
                None => value.get(step).into_iter().collect::<Vec<_>>(),
                Some("]") => value.as_array().into_iter().flatten().collect(),
                Some("-1]") => value.as_array().and_then(|all| all.last()).into_iter().collect(),
                Some(index) => {
                    let index: usize = index.trim_end_matches(']').parse().unwrap();
                    value.as_array().and_then(|all| all.get(index)).into_iter().collect()
                }
            })
            .collect();
    }
    Some(match at.last()? {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("number {number}"),
        Value::String(text) => {
            format!("text {} {:?}", text.len(), (text.len() <= super::MAX_KEPT).then_some(text))
        }
        Value::Array(_) | Value::Object(_) => "container".to_owned(),
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\\n\u{e9}\u{1F600}]{0,6}".prop_map(Value::from),
        (1000..1050_usize).prop_map(|bytes| Value::from("x".repeat(bytes))),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let name = prop_oneof!["[abc]", "[a-c\"\u{e9}]{0,3}"];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name, inner), 0..4).prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn values_are_found_whatever_the_pieces(value in value(), piece_bytes in 1..40_usize) {
        for document in [serde_json::to_vec(&value), serde_json::to_vec_pretty(&value)] {
            let document = document.unwrap();
            let seen = seen(&document, piece_bytes).unwrap();
            let expected: Vec<_> = PATHS.iter().map(|path| expected(&value, path)).collect();
            // Of several elements, the last that has it is what was found last.
            prop_assert_eq!(seen, Seen { values: expected, is_repeated: false });
        }
    }

    /// Each has the members of the one before and more, so that they begin alike, or not.
    #[test]
    fn documents_one_after_another_are_read_like_those_alone(
        names in vec("[abxy]|[a-d]{2,90}", 1..6), values in vec(value(), 6),
        order in vec((0..6_usize, 0..6_usize), 1..6), piece_bytes in 1..900_usize,
    ) {
        let paths = Paths::new(&paths()).unwrap();
        let mut scanner = Scanner::of_one();
        for (members, changed) in order {
            let member = |(at, name): (usize, &String)| {
                let value = &values[if at == changed { 5 } else { at }];
                format!("{name:?}:{value}")
            };
            let members: Vec<String> = names.iter().take(members).enumerate().map(member).collect();
            let document = format!("{{{}}}", members.join(","));
            let mut seen_on = Seen { values: vec![None; PATHS.len()], is_repeated: false };
            for piece in document.as_bytes().chunks(piece_bytes) {
                scanner.read(&paths, piece, &mut seen_on).unwrap();
            }
            prop_assert!(scanner.finish(&paths, &mut seen_on));
            scanner.reset();
            prop_assert_eq!(seen_on, seen(document.as_bytes(), 7).unwrap(), "{}", document);
        }
    }

    #[test]
    fn what_is_json_is_json_for_others(
        document in "[\\[\\]{}:,\"\\\\/abtrueflsn0-9.eE+ u\n-]{0,24}",
        piece_bytes in 1..8_usize,
    ) {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&document).is_ok();
        prop_assert_eq!(seen(document.as_bytes(), piece_bytes).is_ok(), is_json, "{}", document);
    }

    #[test]
    fn changed_json_is_json_for_others_or_for_nobody(
        value in value(), at in any::<prop::sample::Index>(), byte in 0x20..0x7F_u8,
    ) {
        let mut document = serde_json::to_vec(&value).unwrap();
        let at = at.index(document.len());
        document[at] = byte;
        prop_assume!(std::str::from_utf8(&document).is_ok());
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&document).is_ok();
        prop_assert_eq!(seen(&document, 3).is_ok(), is_json);
    }
}

#[test]
fn members_that_are_there_twice_are_told() {
    for (document, is_repeated) in [
        (r#"{"a":1,"a":2}"#, true),
        (r#"{"a":1,"\u0061":2}"#, true),
        (r#"{"a":{"b":1,"b":1}}"#, true),
        (r#"{"a":{"b":1},"x":{"b":1,"b":2}}"#, false),
        (r#"{"x":1,"x":2}"#, false),
        (r#"[{"a":1},{"a":1}]"#, false),
    ] {
        assert_eq!(seen(document.as_bytes(), 2).unwrap().is_repeated, is_repeated, "{document}");
    }
}

#[test]
fn documents_that_are_nested_too_deeply_are_refused() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(seen(nested(super::MAX_DEPTH).as_bytes(), 7).is_ok());
    let refused = seen(nested(super::MAX_DEPTH + 1).as_bytes(), 7);
    assert_eq!(refused, Err(Malformed::Depth));
}

#[test]
fn halves_of_surrogate_pairs_are_no_text() {
    let cases = [
        (r#"{"a":"\ud83d\ude00"}"#, r#"text 4 Some("😀")"#),
        (r#"{"a":"\ud83d"}"#, "text 3 None"),
        (r#"{"a":"\ude00x"}"#, "text 4 None"),
        (r#"{"a":"\ud83d\ud83d\ude00"}"#, "text 7 None"),
    ];
    for (document, expected) in cases {
        let seen = seen(document.as_bytes(), 1).unwrap();
        assert_eq!(seen.values[0].as_deref(), Some(expected), "{document}");
    }
}
