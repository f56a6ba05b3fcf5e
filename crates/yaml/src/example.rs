//! What a field takes, for those who wrote something else: its own example, from the JSON Schema of
//! the file.
//!
//! The schema has the words, the bounds and the examples of every field for editors. Here the same
//! examples become advice: "put it in quotes" would lead to the next mistake where a time or a rate
//! is wanted.

use serde_json::{Map, Value as Json};

use super::Document;
use super::load;
use super::node::{Node, Span, Spanned, Value};
use super::suggest::one_of;

/// Help that quotes a longer text than this is no help.
const LONGEST_QUOTE: usize = 40;
/// Deeper than sections are in each other; a schema may refer to itself.
const MOST_DEPTH: usize = 8;

/// What the schema says about one place of a file.
struct Field<'s> {
    schema: &'s Json,
    /// All shapes that the value may have; none of them refers to another place.
    shapes: Vec<&'s Map<String, Json>>,
    /// The example of what is around it, for this place.
    example: Option<&'s Json>,
    /// Its key; an item of a list has none.
    name: Option<String>,
}

impl Document {
    /// What to write where text is wanted and `node` is something else.
    pub fn help_for_text(&self, node: &Node) -> String {
        if let Some(field) = self.field(node.span) {
            let words = field.words();
            if !words.is_empty() {
                return one_of(&words);
            }
            if let Some(example) = field.example() {
                return self.like_example(node, example);
            }
        }
        let is_scalar = matches!(node.value, Value::Bool(_) | Value::Integer(_) | Value::Float(_));
        match self.quote(node) {
            Some(text) if is_scalar && !text.contains('"') => {
                format!("put it in quotes: \"{text}\"")
            }
            _ if is_scalar => "put it in quotes".to_owned(),
            _ => String::new(),
        }
    }

    /// What to write in place of the field `key` of a section that has no such field, if one of the
    /// section's own sections has it.
    pub(super) fn help_for_misplaced(&self, key: &Spanned<String>) -> Option<String> {
        let field = self.field(key.span)?;
        let inner = field.field_names().into_iter().find(|name| {
            let inner = field.below(Some(name));
            inner.example().is_some() && inner.field_names().contains(&key.as_str())
        })?;
        Some(format!("write it inside of `{inner}`: `{inner}: {{ {}: … }}`", key.value))
    }

    /// What to write where a whole number is wanted and `node` is something else.
    pub(super) fn help_for_number(&self, node: &Node) -> String {
        let Some(field) = self.field(node.span) else { return String::new() };
        if let Some(example) = field.example() {
            return format!("write a number such as {}", flow(example));
        }
        let bound = |name| field.shapes.iter().find_map(|shape| shape.get(name)?.as_u64());
        match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(most)) => format!("write a number from {least} to {most}"),
            (Some(least), None) => format!("write a number from {least}"),
            _ => String::new(),
        }
    }

    /// What to write where a list is wanted and `node` is something else.
    pub(super) fn help_for_list(&self, node: &Node) -> String {
        if self.is_list_of_sections(node)
            && let Some(field) = self.field(node.span)
            && let Some(example) = field.example_of_all()
        {
            return field.written(&example);
        }
        let items = match &node.value {
            Value::String(text) => text.split([',', ' ']).filter(|item| !item.is_empty()),
            _ => return String::new(),
        };
        let list = flow(&Json::Array(items.map(Json::from).collect()));
        if list.len() <= LONGEST_QUOTE { format!("write {list}") } else { String::new() }
    }

    /// Whether a list is wanted at `node` whose items cannot be written as single values.
    pub(super) fn is_list_of_sections(&self, node: &Node) -> bool {
        self.field(node.span)
            .is_some_and(|field| field.shapes.iter().any(|shape| field.holds_sections(shape)))
    }

    /// What to write where a section is wanted and `node` is something else.
    pub(super) fn help_for_section(&self, node: &Node) -> String {
        const ANY: &str = "write `name: value`";
        let Some(field) = self.field(node.span) else { return ANY.to_owned() };
        let meant = match &node.value {
            Value::String(word) => field.section_meant_by(word),
            _ => None,
        };
        meant
            .or_else(|| field.example_of_all())
            .map_or(ANY.to_owned(), |example| field.written(&example))
    }

    /// The example; with the number that is written, if that only lacks its unit.
    fn like_example(&self, node: &Node, example: &Json) -> String {
        let shown = flow(example);
        let unit = shown.trim_start_matches(|c: char| c.is_ascii_digit());
        let has_unit = unit.len() < shown.len()
            && unit.starts_with(|c: char| c == '/' || c.is_ascii_alphabetic());
        match (&node.value, self.quote(node)) {
            (Value::Integer(0..), Some(number)) if has_unit && is_number(number) => {
                let what = if unit.starts_with('/') { "window" } else { "unit" };
                format!("write it with a {what}, such as {number}{unit}")
            }
            _ => format!("write one such as {shown}"),
        }
    }

    /// The node as written, if it is short enough to be part of a help.
    pub(super) fn quote(&self, node: &Node) -> Option<&str> {
        let text = self.source(node.span);
        (!text.is_empty() && text.len() <= LONGEST_QUOTE && !text.contains('\n')).then_some(text)
    }

    /// What the schema says about the value at `place`, or about the section that has a key there;
    /// nothing for a document without a schema, and for what an alias brought from elsewhere.
    fn field(&self, place: Span) -> Option<Field<'_>> {
        let schema = self.schema?.as_value();
        let mut field = Field { schema, shapes: Vec::new(), example: None, name: None };
        field.add_shapes(schema, 0);
        let mut node = &self.root;
        while node.span != place {
            let (inner, key) = match &node.value {
                Value::Mapping(entries) => {
                    let mut before = entries.iter().rev();
                    let (key, inner) = before.find(|(key, _)| key.span.start <= place.start)?;
                    if key.span == place {
                        break;
                    }
                    (inner, Some(key.as_str()))
                }
                Value::Sequence(items) => {
                    (items.iter().rev().find(|item| item.span.start <= place.start)?, None)
                }
                _ => return None,
            };
            field = field.below(key);
            node = inner;
        }
        Some(field)
    }
}

impl<'s> Field<'s> {
    fn add_shapes(&mut self, schema: &'s Json, depth: usize) {
        let Some(shape) = schema.as_object().filter(|_| depth < MOST_DEPTH) else { return };
        self.shapes.push(shape);
        if let Some(name) = shape.get("$ref").and_then(Json::as_str)
            && let Some(target) = self.schema.pointer(name.trim_start_matches('#'))
        {
            self.add_shapes(target, depth + 1);
        }
        let choices = shape.get("anyOf").and_then(Json::as_array);
        choices.into_iter().flatten().for_each(|choice| self.add_shapes(choice, depth + 1));
    }

    /// The value of `key` in this one; without a key, an item of it.
    fn below(&self, key: Option<&str>) -> Field<'s> {
        let example = self.example();
        // Of names of the user's choice, one is like the other; fields differ.
        let is_field = |key: &str| {
            self.shapes
                .iter()
                .any(|shape| shape.get("properties").is_some_and(|of| of.get(key).is_some()))
        };
        let mut inner = Field {
            schema: self.schema,
            shapes: Vec::new(),
            example: match (key, example) {
                (Some(key), Some(Json::Object(entries))) => {
                    let other = entries.values().next().filter(|_| !is_field(key));
                    entries.get(key).or(other)
                }
                (None, Some(Json::Array(items))) => items.first(),
                _ => None,
            },
            name: key.map(str::to_owned),
        };
        for shape in &self.shapes {
            let schema = match key {
                None => shape.get("items"),
                Some(key) => shape
                    .get("properties")
                    .and_then(|fields| fields.get(key))
                    .or_else(|| shape.get("additionalProperties")),
            };
            schema.into_iter().for_each(|schema| inner.add_shapes(schema, 0));
        }
        inner
    }

    /// The words that it takes.
    fn words(&self) -> Vec<&'s str> {
        let words = self.shapes.iter().filter_map(|shape| shape.get("enum")?.as_array());
        words.flatten().filter_map(Json::as_str).collect()
    }

    /// The first example that is given.
    fn example(&self) -> Option<&'s Json> {
        let given = self.shapes.iter().find_map(|shape| shape.get("examples")?.get(0));
        given.or(self.example)
    }

    /// The first example; else one made of those of its required fields.
    fn example_of_all(&self) -> Option<Json> {
        self.example_to(MOST_DEPTH)
    }

    fn example_to(&self, depth: usize) -> Option<Json> {
        if let Some(example) = self.example() {
            return Some(example.clone());
        }
        if let Some(word) = self.words().first() {
            return Some((*word).into());
        }
        let shape = self.shapes.iter().find(|shape| shape.contains_key("type"))?;
        match shape.get("type")?.as_str().filter(|_| depth > 0)? {
            "array" => {
                let item = self.below(None).example_to(depth - 1)?;
                Some(Json::Array(vec![item]))
            }
            "object" => {
                let required = shape.get("required")?.as_array()?;
                let fields = required.iter().filter_map(Json::as_str).map(|name| {
                    let example = self.below(Some(name)).example_to(depth - 1)?;
                    Some((name.to_owned(), example))
                });
                fields.collect::<Option<Map<_, _>>>().map(Json::Object)
            }
            _ => None,
        }
    }

    fn field_names(&self) -> Vec<&'s str> {
        let fields = |shape: &&'s Map<String, Json>| shape.get("properties")?.as_object();
        self.shapes.iter().filter_map(fields).flat_map(Map::keys).map(String::as_str).collect()
    }

    /// The section that is meant by a word alone: by the name of one of its fields, or by what one
    /// of them takes.
    fn section_meant_by(&self, word: &str) -> Option<Json> {
        let value_of = |name: &str| {
            let field = self.below(Some(name));
            match name == word {
                true => field.example_of_all(),
                false => field.words().contains(&word).then(|| word.into()),
            }
        };
        let (name, value) = self
            .field_names()
            .into_iter()
            .find_map(|name| Some((name.to_owned(), value_of(name)?)))?;
        Some(Json::Object(Map::from_iter([(name, value)])))
    }

    /// Whether it is a list of what cannot be written as a single value.
    fn holds_sections(&self, shape: &Map<String, Json>) -> bool {
        let is_section = |shape: &Map<String, Json>| shape.get("type") == Some(&"object".into());
        let is_single = |shape: &Map<String, Json>| {
            shape.get("type").is_some_and(|kind| *kind != "object" && *kind != "array")
        };
        let items = self.below(None);
        shape.contains_key("items")
            && items.shapes.iter().any(|shape| is_section(shape))
            && !items.shapes.iter().any(|shape| is_single(shape))
    }

    /// How to write `example` here.
    fn written(&self, example: &Json) -> String {
        match &self.name {
            Some(name) => format!("write `{name}: {}`", flow(example)),
            None => format!("write `{}`", flow(example)),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// A value as YAML on one line.
fn flow(value: &Json) -> String {
    match value {
        Json::String(text) if is_plain(text) => text.clone(),
        Json::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Json::Object(entries) => {
            let entries = entries.iter().map(|(name, value)| format!("{name}: {}", flow(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Whether text is itself without quotes.
fn is_plain(text: &str) -> bool {
    let is_special = |c: char| "[]{},#&*!|>'\"%@`".contains(c) || c.is_control();
    !text.is_empty()
        && !text.starts_with(['-', '?', ':', ' '])
        && !text.contains(is_special)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && matches!(load::plain_scalar(text), Value::String(_))
}
