//! Members of a small JSON object, as they are written, where no two readers can see two values.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Why an object cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is no JSON object.
    NoObject,
    /// This member is there twice, or is written in other letters.
    Ambiguous(&'static str),
}

/// The values of these members of an object, as they are written; none: not there, or null.
///
/// # Errors
/// [`Unread`].
pub(crate) fn members<'b, const N: usize>(
    object: &'b str,
    names: [&'static str; N],
) -> Result<[Option<&'b str>; N], Unread> {
    let found = written(object, names)?;
    Ok(found.map(|value| value.filter(|value| *value != "null")))
}

/// The same, but null is a value.
pub(crate) fn written<'b, const N: usize>(
    object: &'b str,
    names: [&'static str; N],
) -> Result<[Option<&'b str>; N], Unread> {
    let mut wanted = Members { names, found: [None; N], ambiguous: None };
    let mut json = serde_json::Deserializer::from_str(object);
    let read = json.deserialize_map(&mut wanted).and_then(|()| json.end());
    match (wanted.ambiguous, read) {
        (Some(name), _) => Err(Unread::Ambiguous(name)),
        (None, Err(_)) => Err(Unread::NoObject),
        (None, Ok(())) => Ok(wanted.found),
    }
}

/// The elements of an array, as they are written, up to one more than `most`. None: it is no array.
pub(crate) fn elements(array: &str, most: usize) -> Option<Vec<&str>> {
    let mut json = serde_json::Deserializer::from_str(array);
    let mut found = Elements { most, found: Vec::new() };
    json.deserialize_seq(&mut found).and_then(|()| json.end()).ok()?;
    Some(found.found)
}

struct Members<'b, const N: usize> {
    names: [&'static str; N],
    found: [Option<&'b str>; N],
    ambiguous: Option<&'static str>,
}

impl<'b, const N: usize> Visitor<'b> for &mut Members<'b, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            let known = self.names.iter().zip(&mut self.found);
            let text = str::from_utf8(&name).unwrap_or_default();
            let alike = known.into_iter().find(|(wanted, _)| reads_alike(text, wanted));
            match alike {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some((wanted, place)) => {
                    let value: &RawValue = map.next_value()?;
                    if place.replace(value.get()).is_some() || text != *wanted {
                        self.ambiguous = Some(wanted);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether some reader takes one name for the other: Go's `encoding/json` folds letters, also those
/// two of Unicode that fold to letters of ASCII.
pub(crate) fn reads_alike(name: &str, wanted: &str) -> bool {
    let folded = name.chars().map(|letter| match letter {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        _ => letter.to_ascii_lowercase(),
    });
    folded.eq(wanted.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// The name of a member without its escapes. One with half of a surrogate pair is no text, but
/// servers read what stands beside it.
struct Name<'b>(Cow<'b, [u8]>);

impl<'b> Deserialize<'b> for Name<'b> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(NameVisitor)
    }
}

struct NameVisitor;

impl<'b> Visitor<'b> for NameVisitor {
    type Value = Name<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_bytes<E>(self, name: &'b [u8]) -> Result<Name<'b>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Name<'b>, E> {
        Ok(Name(Cow::Owned(name.to_vec())))
    }
}

struct Elements<'b> {
    most: usize,
    found: Vec<&'b str>,
}

impl<'b> Visitor<'b> for &mut Elements<'b> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut elements: A) -> Result<(), A::Error> {
        while self.found.len() <= self.most {
            match elements.next_element::<&RawValue>()? {
                Some(element) => self.found.push(element.get()),
                None => return Ok(()),
            }
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_given_as_they_are_written() {
        let object = r#" {"a" : [1, {"b":2}], "c":null,"\u0062":"\u0078", "d": 1e2 } "#;
        let found = members(object, ["a", "b", "c", "x"]);
        assert_eq!(found, Ok([Some("[1, {\"b\":2}]"), Some("\"\\u0078\""), None, None]));
    }

    #[test]
    fn what_two_readers_may_see_otherwise_is_refused() {
        for object in [
            r#"{"name":1,"name":1}"#,
            r#"{"name":1,"n\u0061me":2}"#,
            r#"{"Name":1}"#,
            r#"{"name":null,"NAME":1}"#,
        ] {
            assert_eq!(members(object, ["name"]), Err(Unread::Ambiguous("name")), "{object}");
        }
        assert_eq!(members(r#"{"param\u017F":1}"#, ["params"]), Err(Unread::Ambiguous("params")));
    }

    #[test]
    fn name_that_is_no_text_hides_nothing_beside_it() {
        let object = r#"{"\ud800":0,"name":"a","\udc00x":1}"#;
        assert_eq!(members(object, ["name"]), Ok([Some("\"a\"")]));
    }

    #[test]
    fn what_is_no_object_is_told() {
        for text in ["", "[]", "1", "{", "{}{}", r#"{"a":}"#, r#"{"a":1,}"#] {
            assert_eq!(members(text, ["a"]), Err(Unread::NoObject), "{text}");
        }
    }

    #[test]
    fn elements_are_bounded() {
        assert_eq!(elements("[1,[2], 3]", 9), Some(vec!["1", "[2]", "3"]));
        assert_eq!(elements("[1,2,3,4]", 2).unwrap().len(), 3);
        assert_eq!(elements("[1,2,3,4", 2), None);
        assert_eq!(elements("{}", 2), None);
    }
}
