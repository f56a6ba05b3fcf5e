//! What fields that take several shapes look like, for the JSON Schema. `compile` decides; this
//! says it again, as far as a schema can. A shape that names a raw struct of a file which needs
//! other shapes is declared in that file.

use schemars::{Schema, json_schema};
use serde_json::{Value, json};
use tollgate_keyword::Keyword;

use super::RawCors;
use crate::{KeyPart, NamedKey};

/// A number as it may be grouped (`100_000`), which to YAML is a text or a number.
const COUNT: &str = "^[0-9][0-9_]*$";
const MOST: u32 = i32::MAX as u32;

/// Marker types for shapes: each with its name and its schema.
macro_rules! shapes {
    ($($(#[$doc:meta])* $shape:ident = $name:literal, |$generator:ident| $schema:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $shape;

        impl schemars::JsonSchema for $shape {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    )*};
}

pub(super) use shapes;

shapes! {
    /// What a limit is counted per.
    Per = "key", |_generator| one_or_several(&json!({
        "type": "string",
        "anyOf": [
            { "enum": KeyPart::KEYWORDS.map(|(keyword, _)| keyword) },
            { "pattern": format!(r"^({})\..+$", prefixes()) },
        ],
        "examples": ["client.ip", "jwt.org", "header.x-tenant"],
    }), 8);

    /// What of a key the access log may hide.
    PrivateKey = "private key", |_generator| json_schema!({
        "type": "string",
        "pattern": r"^((jwt|claim|header|cookie|body)\..+|mcp\.(tool|method|session))$",
    });

    /// Rates, perhaps by tier.
    Rates = "rate", |_generator| {
        let rate = json!({
            "type": "string",
            "pattern": r"^\s*(unlimited|[0-9][0-9_]*\s*(/|\sper\s).+)$",
            "examples": ["5000/hour", "10/5s", "100_000 per day", "unlimited"],
        });
        by_tier(&one_or_several(&rate, 4).to_value())
    };

    /// A number of requests, perhaps by tier.
    Counts = "number", |_generator| by_tier(&count());

    /// A number of requests or `unlimited`, perhaps by tier.
    Units = "number or unlimited", |_generator| by_tier(&json!({
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": MOST,
        "pattern": "^([0-9][0-9_]*|unlimited)$",
    }));

    /// A number of requests.
    Count = "count", |_generator| json_schema!({
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": MOST,
        "pattern": COUNT,
    });

    /// A status, or a class of them.
    Status = "status", |_generator| json_schema!({
        "type": ["integer", "string"],
        "minimum": 100,
        "maximum": 599,
        "pattern": "^[1-5]xx$",
        "examples": [304, "5xx"],
    });

    /// The tenants of an issuer: names, or `any`. As of any list, a single one needs no brackets.
    Tenants = "tenants", |_generator| json_schema!({
        "type": "array",
        "items": { "type": "string", "minLength": 1 },
        "minItems": 1,
    });

    /// What pages of other origins may do on a route, or that nothing is said about them.
    RouteCors = "route cors", |generator| or_off(&generator.subschema_for::<RawCors>());

    /// The value of a header field.
    HeaderText = "header text", |_generator| json_schema!({
        "type": ["string", "integer", "boolean"],
    });

    /// What a claim has to be: a value or one of several.
    ClaimValue = "claim", |_generator| one_or_several(&json!({
        // Nothing: whatever it is.
        "type": ["string", "number", "boolean", "null"],
    }), usize::MAX);

    /// A limit, or a list of limits.
    WouldDeny = "limits that would deny", |_generator| json_schema!({
        "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string", "minLength": 1 } },
        ],
    });

    /// What a header is to be, or that it is not to be there.
    ExpectedHeader = "expected header", |_generator| json_schema!({
        "type": ["string", "number", "boolean", "null"],
    });
}

/// What an override may be for, besides a caller: the names of keys.
pub(super) fn override_keys() -> Value {
    let words = KeyPart::KEYWORDS.iter().map(|(keyword, _)| keyword.replace('.', r"\."));
    let words: Vec<String> = words.filter(|word| word != "caller").collect();
    let pattern = format!(r"^({}|({})\..+)$", words.join("|"), prefixes());
    json!({
        pattern: {
            "description": "A value of what the limit counts by. `client.ip` takes a network, too, \
                            `host` and `path` a pattern.",
            "type": ["string", "number", "boolean"],
        },
    })
}

/// What may stand before the name of a key, as a part of a pattern.
fn prefixes() -> String {
    let named = NamedKey::KEYWORDS.iter().chain(&NamedKey::ALIASES);
    named.map(|(prefix, _)| *prefix).collect::<Vec<_>>().join("|")
}

pub(super) fn count() -> Value {
    json!({ "type": ["integer", "string"], "minimum": 0, "maximum": MOST, "pattern": COUNT })
}

fn one_or_several(shape: &Value, most: usize) -> Schema {
    let mut list = json!({ "type": "array", "items": shape, "minItems": 1 });
    if let (Some(list), true) = (list.as_object_mut(), most < usize::MAX) {
        list.insert("maxItems".to_owned(), most.into());
    }
    json_schema!({ "anyOf": [shape, list] })
}

pub(super) fn or_off(shape: &Schema) -> Schema {
    json_schema!({ "anyOf": [shape, { "type": "string", "enum": ["off"] }] })
}

fn by_tier(shape: &Value) -> Schema {
    json_schema!({
        "anyOf": [
            shape,
            {
                "type": "object",
                "description": "One for each tier by its name; `default` is for the tiers that are not named.",
                "additionalProperties": shape,
            },
        ],
    })
}
