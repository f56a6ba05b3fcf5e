//! JSON Schema of a file, made from its raw structs: what editors complete and check it by.
//!
//! The structs' doc comments are the descriptions. What the decoder takes and the derive macro does
//! not know of is said here: places are not seen, and `${NAME}` may stand for any single value.

use std::borrow::Cow;

use schemars::{
    JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema,
    transform::transform_subschemas,
};
use serde_json::{Value as Json, json};

use super::node::{Entries, Node, Spanned};

/// What a text with an environment variable in it looks like.
const VARIABLE: &str = r"\$\{";

/// The schema (draft 2020-12) of a file that decodes as a `T`.
pub fn schema_of<T: JsonSchema>(title: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_deserialize().with_transform(tidy);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    if let Some(Json::Object(parts)) = schema.get_mut("$defs") {
        *parts = std::mem::take(parts)
            .into_iter()
            .map(|(name, part)| (name.replace(' ', "_"), part))
            .collect();
    }
    let parts = schema.get("$defs").cloned().unwrap_or_default();
    allow_single_items(&mut schema, &parts);
    schema
}

/// The same as without a place.
impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{} by name", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let entry = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "additionalProperties": entry })
    }
}

/// Anything: where less is taken, the field says what.
impl JsonSchema for Node {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "anything".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

/// What holds for all schemas of ours, this one and those in it.
fn tidy(schema: &mut Schema) {
    transform_subschemas(&mut tidy, schema);
    // Widths of integers are not standard formats.
    schema.remove("format");
    // Messages call sections by several words; not all editors take spaces in references.
    if let Some(Json::String(part)) = schema.get("$ref") {
        let part = part.replace("%20", "_");
        schema.insert("$ref".to_owned(), part.into());
    }
    unwrap_description(schema);
    forbid_null(schema);
    allow_variables(schema);
}

/// Lines of a comment are those of a source file; paragraphs are meant, and so are code blocks.
fn unwrap_description(schema: &mut Schema) {
    let Some(Json::String(description)) = schema.get("description") else { return };
    if description.contains("```") {
        return;
    }
    let paragraphs = description.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    let unwrapped = paragraphs.collect::<Vec<_>>().join("\n\n");
    schema.insert("description".to_owned(), unwrapped.into());
}

/// A field that may be left out is better left out than written without a value.
fn forbid_null(schema: &mut Schema) {
    let null = json!({ "type": "null" });
    if let Some(Json::Array(types)) = schema.get_mut("type")
        && let [kind, Json::String(other)] = types.as_slice()
        && other == "null"
    {
        let kind = kind.clone();
        schema.insert("type".to_owned(), kind);
        if let Some(Json::Array(values)) = schema.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
    }
    if let Some(Json::Array(choices)) = schema.get("anyOf")
        && let [Json::Object(only), other] = choices.as_slice()
        && *other == null
    {
        let only = only.clone();
        schema.remove("anyOf");
        schema.ensure_object().extend(only);
    }
}

/// Environment variables are texts to begin with, whatever they are typed as in the end.
fn allow_variables(schema: &mut Schema) {
    if let Some(kind @ Json::String(word)) = schema.get("type")
        && ["integer", "number", "boolean"].contains(&word.as_str())
    {
        // A pattern is about texts only, and bounds are about numbers only.
        let kinds = json!([kind, "string"]);
        schema.insert("type".to_owned(), kinds);
        if let Some(numbers) = schema.remove("enum") {
            ["minimum", "maximum"].iter().for_each(|bound| drop(schema.remove(*bound)));
            schema.insert("anyOf".to_owned(), json!([{ "enum": numbers }, { "type": "string" }]));
        }
        schema.insert("pattern".to_owned(), VARIABLE.into());
        return;
    }
    if let Some(Json::String(pattern)) = schema.get("pattern") {
        let pattern = format!("{pattern}|{VARIABLE}");
        schema.insert("pattern".to_owned(), pattern.into());
    }
    if let Some(words) = schema.remove("enum") {
        schema.insert("anyOf".to_owned(), json!([{ "enum": words }, { "pattern": VARIABLE }]));
    }
}

/// A list of single values may be one of them alone.
fn allow_single_items(schema: &mut Schema, parts: &Json) {
    transform_subschemas(&mut |inner: &mut Schema| allow_single_items(inner, parts), schema);
    let is_list = schema.get("type").is_some_and(|kind| kind == "array");
    let Some(fields) = schema.as_object_mut().filter(|_| is_list) else { return };
    let Some(item) = fields.get("items").filter(|item| is_single(item, parts)).cloned() else {
        return;
    };
    let is_of_list = |name: &str| ["type", "items", "minItems", "maxItems"].contains(&name);
    let names: Vec<String> = fields.keys().filter(|name| is_of_list(name)).cloned().collect();
    let list = names.into_iter().filter_map(|name| fields.remove_entry(&name));
    let list = Json::Object(list.collect());
    fields.insert("anyOf".to_owned(), json!([item, list]));
}

/// Whether values are neither sections nor lists.
fn is_single(schema: &Json, parts: &Json) -> bool {
    let target = schema["$ref"].as_str().and_then(|at| parts.get(at.rsplit('/').next()?));
    let schema = target.unwrap_or(schema);
    let is_one = |kind: &Json| kind != "object" && kind != "array";
    match (&schema["type"], schema["anyOf"].as_array().or(schema["oneOf"].as_array())) {
        (Json::String(_), _) => is_one(&schema["type"]),
        (Json::Array(kinds), _) => kinds.iter().all(is_one),
        (_, Some(choices)) => choices.iter().any(|choice| is_single(choice, parts)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A file.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename = "file")]
    #[expect(dead_code, reason = "only its shape is looked at")]
    struct File {
        /// Some
        /// words.
        #[schemars(extend("enum" = ["open", "closed"]))]
        word: Option<Spanned<String>>,
        /// A number.
        #[schemars(range(min = 1, max = 64))]
        number: Spanned<u8>,
        /// Parts by name.
        #[serde(default)]
        parts: Entries<Spanned<Part>>,
        /// A part.
        part: Option<Spanned<Part>>,
        /// Anything.
        any: Option<Node>,
    }

    /// A part of it.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename = "part section")]
    #[expect(dead_code, reason = "only its shape is looked at")]
    struct Part {
        /// Whether.
        #[serde(default)]
        is: bool,
    }

    #[test]
    fn schema_says_what_the_decoder_takes() {
        let part = json!({ "$ref": "#/$defs/part_section", "description": "A part." });
        assert_eq!(
            schema_of::<File>("A file"),
            json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": "A file",
                "description": "A file.",
                "type": "object",
                "additionalProperties": false,
                "required": ["number"],
                "properties": {
                    "word": {
                        "description": "Some words.",
                        "type": "string",
                        "anyOf": [{ "enum": ["open", "closed"] }, { "pattern": "\\$\\{" }],
                    },
                    "number": {
                        "description": "A number.",
                        "type": ["integer", "string"],
                        "minimum": 1,
                        "maximum": 64,
                        "pattern": "\\$\\{",
                    },
                    "parts": {
                        "description": "Parts by name.",
                        "type": "object",
                        "additionalProperties": { "$ref": "#/$defs/part_section" },
                    },
                    "part": part,
                    "any": { "description": "Anything." },
                },
                "$defs": {
                    "part_section": {
                        "description": "A part of it.",
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "is": {
                                "description": "Whether.",
                                "type": ["boolean", "string"],
                                "pattern": "\\$\\{",
                                "default": false,
                            },
                        },
                    },
                },
            })
        );
    }
}
