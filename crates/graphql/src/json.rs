//! JSON that tells of members that are there twice: two readers would see two values.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

use crate::refusal::Refusal;

/// A value, with all members of its objects in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Whole numbers are exact as far as GraphQL's integers go, and far beyond.
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a whole body, or a whole parameter.
    pub(crate) fn parse(body: &[u8]) -> Result<Json, Refusal> {
        // Some readers take a mark before it, as RFC 8259 section 8.1 lets them.
        let body = body.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(body);
        serde_json::from_slice(body).map_err(|error| Refusal::NotJson(error.into()))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = sequence.next_element()? {
            all.push(element);
        }
        Ok(Json::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = map.next_entry()? {
            all.push(member);
        }
        Ok(Json::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_there_twice_are_kept() {
        let value = Json::parse("\u{FEFF}{\"a\":1,\"\\u0061\":[null,\"x\",1e2]}".as_bytes());
        let list = Json::List(vec![Json::Null, Json::Text("x".to_owned()), Json::Number(100.0)]);
        let both = vec![("a".to_owned(), Json::Number(1.0)), ("a".to_owned(), list)];
        assert_eq!(value, Ok(Json::Object(both)));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let nested = "[".repeat(1_000_000);
        for body in ["", "{", "query=a", "{}{}", "{'query':'a'}", "{\"a\":NaN}", &nested] {
            assert!(matches!(Json::parse(body.as_bytes()), Err(Refusal::NotJson(_))), "{body:.9}");
        }
        assert!(Json::parse(b"{\"a\":\"\xFF\"}").is_err());
    }
}
