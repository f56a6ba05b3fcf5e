//! The fields of a line, whatever they are called: a flat list of names and values.
//!
//! The formats of proxies differ in their names only, so one reader serves them all. Our own format
//! has a reader of its own, which is faster.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::draft::{Fault, known};

/// Deeper objects are left out.
const MAX_DEPTH: usize = 4;

/// The fields of a line: names of nested ones with dots, and of a list its first value.
#[derive(Default)]
pub(super) struct Fields<'l> {
    fields: Vec<(Cow<'l, str>, Cow<'l, str>)>,
}

impl<'l> Fields<'l> {
    /// Reads a line.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub(super) fn read(line: &'l str) -> Result<Fields<'l>, Fault> {
        let mut fields = Vec::with_capacity(32);
        let mut json = serde_json::Deserializer::from_str(line);
        Value { fields: &mut fields, name: Cow::Borrowed(""), depth: 0 }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| fault(line, &error))?;
        Ok(Fields { fields })
    }

    /// Takes names and values.
    pub(super) fn of(pairs: impl Iterator<Item = (&'l str, &'l str)>) -> Fields<'l> {
        Fields { fields: pairs.map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// The value of the first of these names that has one that is known.
    pub(super) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.value(name))
    }

    /// The value of a name, if it is known.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(found, _)| found == name)?;
        known(value)
    }

    /// Whether there is such a field, or one within it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(found, _)| {
            found.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The values of the fields that are wanted.
    pub(super) fn wanted(&self, names: &[String]) -> Vec<Option<Box<str>>> {
        names.iter().map(|name| self.value(name).map(Box::from)).collect()
    }
}

/// Why a line is no JSON, and what may be the cause.
pub(super) fn fault(line: &str, error: &serde_json::Error) -> Fault {
    if !line.starts_with('{') {
        return "it is no JSON object: a line of another program, or of another format".into();
    }
    if error.is_eof() {
        return "the JSON ends in the midst: the line was cut off when it was written".into();
    }
    let hint = if line.contains("\\x") { "; nginx needs `log_format … escape=json`" } else { "" };
    format!("it is no valid JSON: {error}{hint}").into()
}

/// Takes a value, and all within it, into the fields.
struct Value<'f, 'l> {
    fields: &'f mut Vec<(Cow<'l, str>, Cow<'l, str>)>,
    name: Cow<'l, str>,
    depth: usize,
}

impl<'l> Value<'_, 'l> {
    fn push(self, value: impl Into<Cow<'l, str>>) {
        self.fields.push((self.name, value.into()));
    }
}

impl<'l> DeserializeSeed<'l> for Value<'_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth == 0 {
            return deserializer.deserialize_map(self);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Value<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'l str) -> Result<(), E> {
        self.push(value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.push(value.to_owned());
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.push(itoa::Buffer::new().format(value).to_owned());
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.push(value.to_string());
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.push(value.to_string());
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.push(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.push("");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut values: A) -> Result<(), A::Error> {
        let Value { fields, name, depth } = self;
        if values.next_element_seed(Value { fields, name, depth: depth + 1 })?.is_some() {
            while values.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        let Value { fields, name, depth } = self;
        while let Some(Text(key)) = map.next_key()? {
            if depth >= MAX_DEPTH {
                map.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            let name = if name.is_empty() { key } else { format!("{name}.{key}").into() };
            map.next_value_seed(Value { fields: &mut *fields, name, depth: depth + 1 })?;
        }
        Ok(())
    }
}

/// A text, borrowed if it has no escapes: of an optional `Cow`, serde makes an owned one.
#[derive(Debug, PartialEq, serde::Deserialize)]
pub(super) struct Text<'l>(#[serde(borrow)] pub(super) Cow<'l, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_fields_are_found_by_dotted_names() {
        let line =
            r#"{"a":"x","b":{"c":[1,2],"d":{"e f":null,"g":1.5}},"h":true,"i":-3,"j\n":"\u00e4"}"#;
        let fields = Fields::read(line).unwrap();
        for (name, expected) in [
            ("a", Some("x")),
            ("b.c", Some("1")),
            ("b.d.g", Some("1.5")),
            ("b.d.e f", None),
            ("h", Some("true")),
            ("i", Some("-3")),
            ("j\n", Some("ä")),
            ("b", None),
        ] {
            assert_eq!(fields.value(name), expected, "{name}");
        }
        assert!(fields.has("b") && fields.has("b.d") && !fields.has("b.x"));
    }

    #[test]
    fn lines_that_are_no_object_say_why() {
        for (line, expected) in [
            ("[1]", "no JSON object"),
            (r#"{"a":1"#, "cut off"),
            (r#"{"a":"\x22"}"#, "escape=json"),
            (r#"{"a":1} x"#, "no valid JSON"),
            (r#"{"a":{"a":{"a":{"a":{"a":{"a":[}"#, "no valid JSON"),
        ] {
            let fault = Fields::read(line).err().unwrap();
            assert!(fault.contains(expected), "{line}: {fault}");
        }
    }
}
