//! Any bytes as a JSON document, in pieces of any size: the pieces change nothing about what is
//! found, and `serde_json`, which has all at once, finds the same.

#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::cut;
use serde::de::IgnoredAny;
use serde_json::Value;
use tollgate_usage::{
    json::{Finder, Found, Lost, Malformed, Scanner},
    path::{Path, Paths},
};

const PATHS: [&str; 7] = ["a", "a.b", "a.b.c", "b[0]", "b[1].a", "b[-1].a", "[-1].b"];

/// The longest number and the longest text that are kept whole.
const MAX_KEPT: usize = 1024;

fuzz_target!(|input: &[u8]| {
    // The first bytes say where the others are cut.
    let Some((cuts, document)) = input.split_first_chunk::<4>() else { return };
    let whole = read([document]);
    assert_eq!(read(cut(document, cuts)), whole);
    assert_eq!(read(document.chunks(1)), whole);
    let Ok(text) = str::from_utf8(document) else { return };
    if whole == Err(Malformed::Depth) {
        return;
    }
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    assert_eq!(whole.is_ok(), is_json);
    let (Ok(seen), Ok(value)) = (whole, serde_json::from_str::<Value>(text)) else { return };
    if seen.is_repeated || document.len() > MAX_KEPT {
        return;
    }
    for (path, found) in PATHS.iter().zip(&seen.values) {
        let expected = at(&value, path);
        match (found, expected) {
            (Seen::Number(number), Some(Value::Number(expected))) => {
                let (number, expected) = (number.parse::<f64>(), expected.as_f64());
                let (number, expected) = (number.expect("a number"), expected.expect("a number"));
                assert!((number - expected).abs() <= expected.abs() * 1e-12, "{path}");
            }
            (found, expected) => assert_eq!(*found, Seen::of(expected), "{path}"),
        }
    }
});

/// What was found at the end of a path.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Nothing,
    Null,
    Bool(bool),
    Number(String),
    Text(Option<String>),
    Container,
}

#[derive(Debug, PartialEq)]
struct AllSeen {
    values: Vec<Seen>,
    is_repeated: bool,
    documents: u32,
}

impl Seen {
    fn of(value: Option<&Value>) -> Seen {
        match value {
            None => Seen::Nothing,
            Some(Value::Null) => Seen::Null,
            Some(Value::Bool(value)) => Seen::Bool(*value),
            Some(Value::Number(number)) => Seen::Number(number.to_string()),
            Some(Value::String(text)) => Seen::Text(Some(text.clone())),
            Some(Value::Array(_) | Value::Object(_)) => Seen::Container,
        }
    }
}

impl Finder for AllSeen {
    fn found(&mut self, path: usize, value: Found<'_>) {
        self.values[path] = match value {
            Found::Null => Seen::Null,
            Found::Bool(value) => Seen::Bool(value),
            Found::Number(number) => Seen::Number(number.to_owned()),
            Found::Text(text) => Seen::Text(text.text.map(str::to_owned)),
            Found::Container => Seen::Container,
        };
    }

    fn lost(&mut self, path: usize, why: Lost) {
        self.values[path] = Seen::Nothing;
        self.is_repeated |= why == Lost::Repeated;
    }

    fn end_document(&mut self) {
        self.documents += 1;
    }
}

fn read<'d>(pieces: impl IntoIterator<Item = &'d [u8]>) -> Result<AllSeen, Malformed> {
    let paths: Vec<Path> = PATHS.iter().map(|path| path.parse().expect("a path")).collect();
    let paths = Paths::new(&paths).expect("few paths");
    let values = vec![Seen::Nothing; PATHS.len()];
    let mut seen = AllSeen { values, is_repeated: false, documents: 0 };
    let mut scanner = Scanner::of_one();
    for piece in pieces {
        scanner.read(&paths, piece, &mut seen)?;
    }
    match scanner.finish(&paths, &mut seen) {
        true => Ok(seen),
        false => Err(Malformed::Syntax),
    }
}

/// What there is at a path, read out of the whole document.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let path = path.replace('[', ".[");
    path.split('.').filter(|step| !step.is_empty()).try_fold(value, |value, step| {
        match step.strip_prefix('[').map(|index| index.trim_end_matches(']')) {
            None => value.get(step),
            Some("-1") => value.as_array()?.last(),
            Some(index) => value.as_array()?.get(index.parse::<usize>().ok()?),
        }
    })
}
