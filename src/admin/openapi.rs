//! `GET /openapi.json`: all endpoints in OpenAPI 3.1, made from the table that answers by.

use std::sync::LazyLock;

use schemars::{
    Schema, SchemaGenerator, generate::SchemaSettings, transform::transform_subschemas,
};
use serde_json::{Map, Value, json};
use tollgate_settings::Permission;

use super::{
    Message,
    endpoint::{Answer, ENDPOINTS, Endpoint, Parameter, Verb},
};
use crate::guard::ACTION;

/// The description as text: it is the same for every request.
pub(super) static DESCRIPTION: LazyLock<String> = LazyLock::new(|| {
    // What is serialized here has no maps with keys that are no text, and cannot fail.
    serde_json::to_string_pretty(&description()).unwrap_or_default() + "\n"
});

const ABOUT: &str = "Health, status, metrics and reload of a Tollgate. Tokens are needed where the \
                     settings name some. Pages of other origins are refused: `Host` must be loopback, \
                     the listener's own address or one of `admin.hosts`, and `Sec-Fetch-Site` and \
                     `Origin`, if a client sends them, those of this listener.";

fn description() -> Value {
    // The bodies of requests have the same form: what may be left out may be null there.
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(tidy);
    let mut schemas = settings
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Value::Object(operations) = path {
            operations.insert(endpoint.verb.name().into(), operation(endpoint, &mut schemas));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate's admin listener",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "read": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of `admin.auth.read_token_file`.",
                },
                "write": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of `admin.auth.write_token_file`.",
                },
            },
        },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": format!("{}{}", endpoint.verb.name(), words(endpoint.path)),
        "summary": endpoint.summary,
        "security": security(endpoint.needs),
    });
    let mut responses: Map<String, Value> = Map::new();
    for Answer { status, summary, content_types, schema } in endpoint.answers {
        let kind = |kind: &&str| ((*kind).to_owned(), json!({ "schema": schema(schemas) }));
        let content: Map<String, Value> = content_types.iter().map(kind).collect();
        let response = json!({ "description": summary, "content": content });
        responses.insert(status.to_string(), response);
    }
    for (status, summary) in refusals(endpoint) {
        let schema = schemas.subschema_for::<Message>();
        let content = json!({ "application/json": { "schema": schema } });
        let response = json!({ "description": summary, "content": content });
        responses.entry(status.to_string()).or_insert(response);
    }
    let mut parameters: Vec<Value> =
        endpoint.parameters.iter().map(|parameter| described(endpoint, parameter)).collect();
    if endpoint.verb == Verb::Post {
        parameters.push(json!({
            "name": ACTION.as_str(),
            "in": "header",
            "required": endpoint.takes.is_none(),
            "description": "Any value. Not needed with `content-type: application/json`.",
            "schema": { "type": "string" },
            "example": "1",
        }));
    }
    if let Value::Object(fields) = &mut operation {
        fields.insert("responses".into(), responses.into());
        if !parameters.is_empty() {
            fields.insert("parameters".into(), parameters.into());
        }
        if let Some(takes) = endpoint.takes {
            let content = json!({ "application/json": { "schema": takes(schemas) } });
            fields.insert("requestBody".into(), json!({ "required": true, "content": content }));
        }
    }
    operation
}

/// How requests are refused before the endpoint sees them.
fn refusals(endpoint: &Endpoint) -> Vec<(u16, &'static str)> {
    let mut refusals = Vec::new();
    if endpoint.verb == Verb::Post {
        refusals.push((400, "The body cannot be read."));
    }
    if endpoint.needs.is_some() {
        refusals.push((401, "A token is needed, or the one that was sent is not valid."));
    }
    let forbidden = match endpoint.needs {
        Some(Permission::Write) => {
            "A page of another origin may have sent it, or the token only allows to read."
        }
        _ => "A page of another origin may have sent it.",
    };
    refusals.push((403, forbidden));
    if endpoint.verb == Verb::Post {
        refusals.push((413, "The body is too large."));
    }
    if endpoint.needs.is_some() {
        refusals.push((429, "Too many wrong tokens came from the client's address."));
    }
    refusals
}

/// The schemes of which one is needed.
fn security(needs: Option<Permission>) -> Value {
    match needs {
        None => json!([]),
        Some(Permission::Read) => json!([{ "read": [] }, { "write": [] }]),
        Some(Permission::Write) => json!([{ "write": [] }]),
    }
}

fn described(endpoint: &Endpoint, parameter: &Parameter) -> Value {
    let Parameter { name, summary } = parameter;
    let is_of_path = endpoint.path.contains(&format!("{{{name}}}"));
    json!({
        "name": name,
        "in": if is_of_path { "path" } else { "query" },
        "required": is_of_path,
        "description": summary,
        "schema": { "type": "string" },
    })
}

/// `/callers/{name}/reset` as `CallersNameReset`.
fn words(path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    words.map(capital).collect()
}

/// Widths of integers are not standard formats, and lines of a comment are those of a source file.
fn tidy(schema: &mut Schema) {
    transform_subschemas(&mut tidy, schema);
    let is_integer = |format: &Value| format.as_str().is_some_and(|it| it.contains("int"));
    if schema.get("format").is_some_and(is_integer) {
        schema.remove("format");
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_operations_are_made_from_paths() {
        for (path, expected) in [
            ("/status", "Status"),
            ("/openapi.json", "OpenapiJson"),
            ("/callers/{name}/reset", "CallersNameReset"),
        ] {
            assert_eq!(words(path), expected);
        }
    }

    #[test]
    fn parameters_are_of_the_path_or_of_the_query() {
        let [endpoint, ..] = ENDPOINTS else { panic!("there are some") };
        let endpoint = Endpoint { path: "/callers/{name}", ..*endpoint };
        let place = |name| described(&endpoint, &Parameter { name, summary: "" })["in"].clone();
        assert_eq!((place("name"), place("limit")), ("path".into(), "query".into()));
    }
}
