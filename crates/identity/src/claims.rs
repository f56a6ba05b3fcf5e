//! The claims of a token, read from JSON without ambiguities.
//!
//! Of two `sub` members, some parsers keep the first and some the last, and so see different users
//! in one token. So a repeated name is an error here, at every depth (RFC 7519 section 4).

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How deep objects and arrays may nest, the outermost one included.
const MAX_DEPTH: usize = 16;
/// How many members all objects of one document may hold together.
const MAX_MEMBERS: usize = 256;

/// The payload of a token.
#[derive(Clone, PartialEq)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Reads a payload.
    pub fn parse(json: &[u8]) -> Result<Claims, serde_json::Error> {
        parse_object(json).map(Claims)
    }

    /// All claims.
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The claim with exactly this name.
    //= rfc7519#section-4
    //# all claims that are not understood by implementations MUST be ignored
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The claim at `path`: the member with that name (`https://example.com/plan`), or else the
    /// member of a nested object (`realm.plan`, `https://example.com/app.plan`). Names may contain
    /// dots; the shortest first name is tried first.
    pub fn lookup(&self, path: &str) -> Option<&Value> {
        lookup(&self.0, path)
    }

    /// The same claims, with the value at each path under the name beside the path. A name whose
    /// path has no value is removed.
    #[must_use]
    pub(super) fn renamed(mut self, names: &[(Box<str>, Box<str>)]) -> Claims {
        let found: Vec<Option<Value>> =
            names.iter().map(|(_, path)| self.lookup(path).cloned()).collect();
        for ((name, _), value) in names.iter().zip(found) {
            match value {
                Some(value) => self.0.insert(name.to_string(), value),
                None => self.0.remove(&**name),
            };
        }
        self
    }

    /// Whether all of these scopes are granted by `scope`, a text with spaces between scopes (RFC
    /// 8693 section 4.2) or a list; or by `scp`, as some issuers name it.
    pub fn grants<S: AsRef<str>>(&self, scopes: &[S]) -> bool {
        let granted = self.get("scope").or_else(|| self.get("scp"));
        let is_granted = |scope: &str| match granted {
            Some(Value::String(granted)) => granted.split(' ').any(|granted| granted == scope),
            Some(Value::Array(granted)) => granted.iter().any(|granted| granted == scope),
            _ => false,
        };
        scopes.iter().all(|scope| is_granted(scope.as_ref()))
    }

    /// The payload as JSON.
    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

impl From<Map<String, Value>> for Claims {
    /// For claims without a token: of API keys, introspection, policy tests and dry runs.
    fn from(members: Map<String, Value>) -> Claims {
        Claims(members)
    }
}

impl fmt::Debug for Claims {
    /// Shows no claim, since logs must not identify users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        //= rfc7519#section-12
        //# measures MUST be taken to prevent disclosure of this information to unintended parties
        write!(f, "Claims({} members)", self.0.len())
    }
}

/// Recurses no deeper than objects nest.
fn lookup<'v>(object: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    let below = || {
        path.match_indices('.').find_map(|(dot, _)| {
            let first = path.get(..dot)?;
            let rest = path.get(dot + 1..)?;
            lookup(object.get(first)?.as_object()?, rest)
        })
    };
    object.get(path).or_else(below)
}

/// Reads a JSON object in which no name repeats, within the bounds of this file.
pub(super) fn parse_object(json: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let mut members = 0;
    let value = Strict { depth: 0, members: &mut members }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(de::Error::custom("not an object")),
    }
}

/// Reads one value that is inside `depth` objects or arrays.
struct Strict<'a> {
    depth: usize,
    members: &'a mut usize,
}

impl Strict<'_> {
    fn nested<E: de::Error>(&mut self) -> Result<Strict<'_>, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom("nested too deep"));
        }
        Ok(Strict { depth: self.depth + 1, members: self.members })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated names")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut array = Vec::new();
        while let Some(value) = elements
            .next_element_seed(Strict { depth: inner.depth, members: &mut *inner.members })?
        {
            array.push(value);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            *inner.members += 1;
            if *inner.members > MAX_MEMBERS {
                return Err(de::Error::custom("too many members"));
            }
            let value = entries
                .next_value_seed(Strict { depth: inner.depth, members: &mut *inner.members })?;
            //= rfc7519#section-4
            //# The Claim Names within a JWT Claims Set MUST be unique; JWT parsers MUST either
            //# reject JWTs with duplicate Claim Names
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a name repeats"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// `levels` objects, one in the other.
    fn nested(levels: usize) -> String {
        format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
    }

    /// One object of `count` members.
    fn wide(count: usize) -> String {
        let members: Vec<_> = (0..count).map(|n| format!("\"m{n}\":{n}")).collect();
        format!("{{{}}}", members.join(","))
    }

    #[test]
    fn ambiguous_or_outsized_json_is_refused() {
        for (what, json) in [
            ("empty input", String::new()),
            ("a string", "\"a\"".into()),
            ("an array", "[]".into()),
            ("null", "null".into()),
            ("bytes after the object", "{} x".into()),
            ("two objects", "{}{}".into()),
            ("a byte order mark", "\u{feff}{}".into()),
            ("a comment", "{/**/}".into()),
            ("a trailing comma", "{\"a\":1,}".into()),
            ("a repeated name", r#"{"sub":"a","sub":"b"}"#.into()),
            ("a repeated name, equal values", r#"{"sub":"a","sub":"a"}"#.into()),
            ("a repeated name, one escaped", r#"{"sub":"a","s\u0075b":"b"}"#.into()),
            ("a repeated name in an object", r#"{"a":{"b":1,"b":2}}"#.into()),
            ("a repeated name in an array", r#"{"a":[{"b":1,"b":2}]}"#.into()),
            ("an infinite number", r#"{"a":1e999}"#.into()),
            ("NaN", r#"{"a":NaN}"#.into()),
            ("a lone surrogate", r#"{"a":"\ud800"}"#.into()),
            ("a raw control character", "{\"a\":\"\n\"}".into()),
            ("depth 17", nested(17)),
            ("depth 17, arrays", format!("{{\"a\":{}{}}}", "[".repeat(16), "]".repeat(16))),
            ("257 members", wide(257)),
            ("257 members in two objects", format!("{{\"a\":{},\"b\":{{}}}}", wide(255))),
        ] {
            assert!(Claims::parse(json.as_bytes()).is_err(), "{what} was accepted");
        }
        assert!(Claims::parse(b"{\"a\":\"\xff\"}").is_err(), "invalid UTF-8 was accepted");
    }

    #[test]
    fn json_at_the_bounds_is_read() {
        for json in [nested(16), wide(256), format!("{{\"a\":{}}}", wide(255)), " {} ".into()] {
            assert!(Claims::parse(json.as_bytes()).is_ok(), "{json}");
        }
    }

    #[test]
    fn an_exact_name_wins_over_a_dotted_path() {
        let claims = Claims::parse(
            br#"{"realm":{"plan":"pro","deep":{"er":1},"list":[1]},
                 "flat.plan":"free","flat":{"plan":"lost"},"https://a.example/plan":"url",
                 "https://a.example/app":{"plan":"below","my.client":{"roles":["x"]}}}"#,
        )
        .unwrap();
        for (path, expected) in [
            ("realm.plan", Some(json!("pro"))),
            ("realm.deep.er", Some(json!(1))),
            ("flat.plan", Some(json!("free"))),
            ("https://a.example/plan", Some(json!("url"))),
            ("https://a.example/app.plan", Some(json!("below"))),
            ("https://a.example/app.my.client.roles", Some(json!(["x"]))),
            ("https://a.example/app.my.roles", None),
            ("plan", None),
            ("realm.", None),
            (".plan", None),
            ("realm.list.0", None),
            ("realm.plan.x", None),
            ("", None),
        ] {
            assert_eq!(claims.lookup(path), expected.as_ref(), "{path:?}");
        }
    }

    #[test]
    fn scopes_are_in_scope_or_else_in_scp() {
        for (claims, scopes, is_granted) in [
            (r#"{"scope":"read write"}"#, &["read"][..], true),
            (r#"{"scope":"read write"}"#, &["write", "read"], true),
            (r#"{"scope":"read write"}"#, &["read", "admin"], false),
            (r#"{"scope":"reader"}"#, &["read"], false),
            (r#"{"scope":["read","write"]}"#, &["write"], true),
            (r#"{"scp":"read"}"#, &["read"], true),
            (r#"{"scp":["read"]}"#, &["read"], true),
            // `scope`, which RFC 8693 defines, goes first.
            (r#"{"scope":"a","scp":"b"}"#, &["b"], false),
            (r#"{"scope":1}"#, &["1"], false),
            ("{}", &["read"], false),
            ("{}", &[], true),
        ] {
            let parsed = Claims::parse(claims.as_bytes()).unwrap();
            assert_eq!(parsed.grants(scopes), is_granted, "{claims} {scopes:?}");
        }
    }

    proptest! {
        #[test]
        fn prop_parsing_never_panics_and_accepts_only_what_serde_json_does(
            json in proptest::collection::vec(any::<u8>(), 0..64)
        ) {
            if let Ok(claims) = Claims::parse(&json) {
                prop_assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), Value::Object(claims.0));
            }
        }

        #[test]
        fn prop_unambiguous_objects_are_read_as_serde_json_reads_them(
            members in proptest::collection::btree_map("[a-z\"\\\\\u{e9}]{0,4}", any::<Option<i64>>(), 0..20)
        ) {
            let json = serde_json::to_vec(&members).unwrap();
            prop_assert_eq!(
                Value::Object(parse_object(&json).unwrap()),
                serde_json::from_slice::<Value>(&json).unwrap()
            );
        }
    }
}
