//! The tree of a document, and the types that keep a place beside a value.
//!
//! What an alias or a merge brings in has the place where it is defined, because that is the text
//! to mend.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The newtype name by which [`Spanned`] asks our decoder for a place: serde has no other channel.
pub(super) const SPANNED: &str = "tollgate::yaml::Spanned";

/// A range of bytes in the text of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last.
    pub end: usize,
}

impl Span {
    /// The place of what stands for a missing field: between two bytes of the first key.
    pub(super) const STAND_IN: Span = Span { start: 1, end: 1 };

    /// Whether it is that of a missing field.
    pub fn is_stand_in(self) -> bool {
        self == Span::STAND_IN
    }
}

/// A value and where it is written. Two are equal when their values are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it is written.
    pub span: Span,
}

/// A part of a document. As a field of a raw struct it takes whatever is written there.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// A scalar as written, with its quotes; of a list or a mapping at most the first line.
    pub span: Span,
    /// What is written there.
    pub value: Value,
}

/// What a [`Node`] holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing at all.
    Null,
    /// `true` or `false`; never `yes` or `on`, which are text.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number, whole numbers beyond `i64` among them.
    Float(f64),
    /// Text, quoted or not.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping in the order of the file; keys are distinct, and always text.
    Mapping(Vec<(Spanned<String>, Node)>),
}

/// A mapping with names of the user's choice, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries<T>(pub Vec<(Spanned<String>, T)>);

impl Span {
    /// Whether it covers no text, as of a value that was left out.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

impl<T> From<&Spanned<T>> for Span {
    fn from(spanned: &Spanned<T>) -> Span {
        spanned.span
    }
}

impl From<&Node> for Span {
    fn from(node: &Node) -> Span {
        node.span
    }
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Spanned<T> {}

impl<T: PartialOrd> PartialOrd for Spanned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for Spanned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl<T: Hash> Hash for Spanned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

/// Lets a map with places in its keys be asked by plain name.
impl Borrow<str> for Spanned<String> {
    fn borrow(&self) -> &str {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(SPANNED, SpannedVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, span } = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { span, value })
    }
}

impl Value {
    /// The kind of value, in the words of someone who writes YAML.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true/false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::String(_) => "text",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor::<Spanned<String>, Node>::default())
    }
}

impl<T> Entries<T> {
    /// The value of the entry `name`.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for Entries<T> {
    type Target = [(Spanned<String>, T)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> IntoIterator for Entries<T> {
    type Item = (Spanned<String>, T);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Entries<T> {
    type Item = &'a (Spanned<String>, T);
    type IntoIter = std::slice::Iter<'a, (Spanned<String>, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

/// Takes the triple of start, end and value that our decoder gives for [`SPANNED`].
struct SpannedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
    type Value = Spanned<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its place")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let triple = (seq.next_element()?, seq.next_element()?, seq.next_element()?);
        let (Some(start), Some(end), Some(value)) = triple else {
            return Err(de::Error::custom("a place can be read from a YAML document only"));
        };
        Ok(Spanned { value, span: Span { start, end } })
    }
}

/// Takes any value, from the YAML library or from our own decoder; they differ in the types `K`
/// and `N` by which they hand over places.
pub(super) struct ValueVisitor<K, N>(PhantomData<(K, N)>);

impl<K, N> Default for ValueVisitor<K, N> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<'de, K, N> Visitor<'de> for ValueVisitor<K, N>
where
    K: Deserialize<'de> + Into<Spanned<String>>,
    N: Deserialize<'de> + Into<Node>,
{
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        // No setting is meant to be this large, so precision does not matter: decoding it as a
        // whole number fails, and quotes the text as written.
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<N>()? {
            items.push(item.into());
        }
        Ok(Value::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<K, N>()? {
            entries.push((key.into(), value.into()));
        }
        Ok(Value::Mapping(entries))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
