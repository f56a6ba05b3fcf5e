//! `tollgate schema`: what editors complete and check settings and policies by, and what programs
//! read reports by.

use std::io::Write;

use tollgate_policy as policy;
use tollgate_settings as settings;
use tollgate_simulate::report::json;

use super::{Failure, write_json};

/// Print the JSON Schema of a kind of file, or of a report
///
/// Editors with a YAML language server use it if the first line of the file says where it is:
/// `# yaml-language-server: $schema=schema/policy.json`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Of what; `simulation` is what `tollgate simulate --json` prints
    #[arg(value_name = "KIND")]
    kind: Kind,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Policy,
    Settings,
    Simulation,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let schema = match arguments.kind {
        Kind::Policy => policy::schema(),
        Kind::Settings => settings::schema(),
        Kind::Simulation => return Ok(writeln!(output, "{}", json::schema())?),
    };
    write_json(output, &schema)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use tollgate_settings::Settings;
    use tollgate_yaml::{Problem, Sources};

    use super::*;

    const KINDS: [(&str, Kind); 2] = [("policy", Kind::Policy), ("settings", Kind::Settings)];

    fn printed(kind: Kind) -> String {
        let mut output = Vec::new();
        assert!(run(&Arguments { kind }, &mut output).is_ok());
        String::from_utf8(output).unwrap()
    }

    /// Each schema inside of another, and where it is.
    fn walk(schema: &Value, place: &str, visit: &mut dyn FnMut(&str, &Value)) {
        visit(place, schema);
        let inner: Vec<(String, &Value)> = match schema {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), value)).collect()
            }
            Value::Array(items) => {
                items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
            }
            _ => Vec::new(),
        };
        for (key, value) in inner {
            walk(value, &format!("{place}/{key}"), visit);
        }
    }

    #[test]
    fn schemas_that_are_checked_in_are_current() {
        for (name, kind) in KINDS {
            let file = format!("{}/config/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            let file = format!("config/schema/{name}.json");
            assert!(
                kept == printed(kind),
                "{file} is not current: run `cargo run -- schema {name} > {file}`"
            );
        }
    }

    #[test]
    fn every_field_has_a_description_that_a_user_understands() {
        for (name, kind) in KINDS {
            let schema: Value = serde_json::from_str(&printed(kind)).unwrap();
            walk(&schema, name, &mut |place, schema| {
                let Some(Value::Object(fields)) = schema.get("properties") else { return };
                for (field, schema) in fields {
                    let description = schema["description"].as_str().unwrap_or_default();
                    assert!(description.ends_with('.'), "{place}: {field}: {description:?}");
                }
            });
        }
    }

    /// A wrong value is answered with what the field takes: its words, its example, or that any
    /// text will do, in quotes.
    #[test]
    fn every_text_has_words_or_an_example_or_may_be_any() {
        for (name, kind) in KINDS {
            let schema: Value = serde_json::from_str(&printed(kind)).unwrap();
            walk(&schema, name, &mut |place, schema| {
                let Some(Value::Object(fields)) = schema.get("properties") else { return };
                for (field, schema) in fields {
                    let item = &schema["items"];
                    let is_text = schema["type"] == "string" || item["type"] == "string";
                    let is_known = |schema: &Value| {
                        ["examples", "enum", "minLength"].iter().any(|word| !schema[word].is_null())
                            || schema["anyOf"][0]["enum"].is_array()
                    };
                    assert!(!is_text || is_known(schema) || is_known(item), "{place}: {field}");
                }
            });
        }
    }

    #[test]
    fn no_private_name_is_printed() {
        for (_, kind) in KINDS {
            let text = printed(kind);
            for private in ["Raw", "Spanned", "Node", "[`", "uint"] {
                assert!(!text.contains(private), "{private}");
            }
        }
    }

    #[test]
    fn unknown_fields_are_errors_wherever_fields_are_known() {
        for (name, kind) in KINDS {
            let schema: Value = serde_json::from_str(&printed(kind)).unwrap();
            walk(&schema, name, &mut |place, schema| {
                if schema.get("properties").is_some() {
                    assert_eq!(schema["additionalProperties"], false, "{place}");
                }
            });
        }
    }

    const PATHS: &str = "upstreams: { a: { servers: [http://h], paths: { WORD } } }";

    /// Fields that take one of several words: where one is written, the kind of file, the part of
    /// its schema, the field.
    const WORDS: &[(&str, Kind, &str, &str)] = &[
        (
            "limits: { core: { per: host, rate: 5/hour, WORD } }",
            Kind::Policy,
            "limit",
            "on_missing",
        ),
        ("limits: { core: { per: host, rate: 5/hour, WORD } }", Kind::Policy, "limit", "algorithm"),
        ("limits: { core: { per: host, rate: 5/hour, WORD } }", Kind::Policy, "limit", "align"),
        ("limits: { core: { per: host, rate: 5/hour, WORD } }", Kind::Policy, "limit", "mode"),
        (
            "limits: { core: { per: host, rate: 5/hour, WORD } }",
            Kind::Policy,
            "limit",
            "on_store_error",
        ),
        (
            "limits: { core: { per: host, rate: 5/hour, WORD } }",
            Kind::Policy,
            "limit",
            "on_store_full",
        ),
        (
            "limits: { core: { per: host, rate: 5/hour, refund: { WORD } } }",
            Kind::Policy,
            "refund_section",
            "callers",
        ),
        ("identity: { WORD }", Kind::Policy, "identity_section", "invalid_token"),
        ("responses: { WORD }", Kind::Policy, "responses_section", "headers"),
        ("upstreams: { a: { servers: [http://h], WORD } }", Kind::Policy, "upstream", "protocol"),
        ("upstreams: { a: { servers: [http://h], WORD } }", Kind::Policy, "upstream", "balance"),
        ("paths: { WORD }", Kind::Policy, "paths_section", "encoded_slash"),
        (PATHS, Kind::Policy, "upstream_paths_section", "framework"),
        (PATHS, Kind::Policy, "upstream_paths_section", "case"),
        (PATHS, Kind::Policy, "upstream_paths_section", "trailing_slash"),
        (PATHS, Kind::Policy, "upstream_paths_section", "matrix_params"),
        (PATHS, Kind::Policy, "upstream_paths_section", "suffix"),
        (PATHS, Kind::Policy, "upstream_paths_section", "path_info"),
        ("cors: { origins: [https://a.test], WORD }", Kind::Policy, "cors_section", "preflight"),
        ("access_log: { WORD }", Kind::Settings, "access_log_section", "format"),
        ("access_log: { WORD }", Kind::Settings, "access_log_section", "only"),
        ("log: { WORD }", Kind::Settings, "log_section", "format"),
        ("store: { next: { memory: {} }, WORD }", Kind::Settings, "store_section", "mode"),
        ("store: { redis: { url: redis://h, WORD } }", Kind::Settings, "redis_section", "clock"),
    ];

    #[test]
    fn words_of_a_schema_are_those_that_are_taken() {
        for (written, kind, part, field) in WORDS {
            let written = written.replace("WORD", &format!("{field}: no such word"));
            let path = Path::new("f.yaml");
            let sources = Sources::system();
            let problems: Vec<Problem> = match kind {
                Kind::Policy => {
                    let upstreams = match written.starts_with("upstreams:") {
                        true => "",
                        false => "upstreams: { a: { servers: [http://h] } }\n",
                    };
                    let text = format!(
                        "version: 1\n{upstreams}routes: [{{ match: {{ path: /** }} }}]\n{written}\n"
                    );
                    policy::load(path, &text, &sources).err().unwrap_or_default()
                }
                Kind::Settings => {
                    let text =
                        format!("version: 1\nlisteners: [{{ address: \"[::]:1\" }}]\n{written}\n");
                    Settings::parse(path, &text, &sources).err().unwrap_or_default()
                }
                Kind::Simulation => Vec::new(),
            };
            let list = problems.iter().find_map(|problem| problem.help().strip_prefix("one of: "));
            let taken: Vec<&str> =
                list.map(|words| words.split(", ").collect()).unwrap_or_default();
            let schema: Value = serde_json::from_str(&printed(*kind)).unwrap();
            let shown = &schema["$defs"][part]["properties"][field]["anyOf"][0]["enum"];
            assert_eq!(*shown, json!(taken), "{part}: {field}: {problems:?}");
        }
    }
}
