//! The answers as JSON, for programs.

use std::io::{self, Write};

use crate::Report;

/// Writes all answers, in lines that people can read too.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *output, report)?;
    writeln!(output)
}

/// The JSON Schema of what [`write()`] writes.
#[must_use]
pub fn schema() -> String {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Report>();
    schema.insert("title".to_owned(), "Answers of tollgate simulate".into());
    format!("{:#}", schema.to_value())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::tests::example;

    fn written(report: &Report) -> Value {
        let mut output = Vec::new();
        write(report, &mut output).unwrap();
        assert!(output.ends_with(b"}\n"));
        serde_json::from_slice(&output).unwrap()
    }

    #[test]
    fn answers_are_all_there() {
        let answers = written(&example::report());
        assert_eq!(answers["version"], 1);
        assert_eq!(answers["outcome"]["denied"], 12_345);
        assert_eq!(answers["curves"][0]["suggested"], 5_000);
        assert_eq!(answers["timeline"]["buckets"].as_array().map(Vec::len), Some(168));
        assert!(written(&example::nothing()).get("against").is_none());
    }

    #[test]
    fn names_are_kept_as_they_are() {
        let answers = written(&example::hostile());
        assert_eq!(answers["worst"][0]["caller"], example::HOSTILE);
    }

    #[test]
    fn every_field_of_the_schema_is_described() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        assert_eq!(schema["title"], "Answers of tollgate simulate");
        assert!(schema["properties"]["limits"].is_object());
        let parts = schema["$defs"].as_object().unwrap();
        for (name, part) in parts.iter().chain([(&"Report".to_owned(), &schema)]) {
            for (field, own) in part["properties"].as_object().unwrap() {
                assert!(own["description"].is_string(), "{name}: {field}");
            }
        }
    }
}
