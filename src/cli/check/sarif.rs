//! A report as SARIF 2.1.0 (OASIS), which code scanning services take.

use std::io::Write;

use serde_json::{Value, json};
use tollgate_keyword::Keyword;
use tollgate_yaml::warning::Rule;

use super::{
    finding::{FAILED_TEST, Finding, PROBLEM, Severity},
    report::Report,
};
use crate::cli::{Exit, Failure, call::percent_encoded, write_json};

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// What a result can be about.
struct ReportedRule {
    id: &'static str,
    summary: &'static str,
    severity: Severity,
}

pub(super) fn write(report: &Report, output: &mut dyn Write) -> Result<(), Failure> {
    let rules = rules();
    let results: Vec<Value> =
        report.findings().iter().map(|finding| result(finding, &rules)).collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "tollgate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(described).collect::<Vec<_>>(),
            } },
            // Columns count characters, not units of UTF-16.
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": true,
                "exitCode": report.exit().map_or(0, Exit::code),
            }],
            "results": results,
        }],
    });
    write_json(output, &log)
}

fn rules() -> Vec<ReportedRule> {
    let error = |id, summary| ReportedRule { id, summary, severity: Severity::Error };
    let warnings = Rule::all().map(|rule| ReportedRule {
        id: rule.keyword(),
        summary: rule.summary(),
        severity: Severity::Warning,
    });
    let errors = [
        error(PROBLEM, "The file cannot be used: Tollgate would not start with it."),
        error(FAILED_TEST, "A test inside a policy came out otherwise than expected."),
    ];
    errors.into_iter().chain(warnings).collect()
}

fn described(rule: &ReportedRule) -> Value {
    json!({
        "id": rule.id,
        "shortDescription": { "text": rule.summary },
        "defaultConfiguration": { "level": rule.severity.keyword() },
    })
}

fn result(finding: &Finding, rules: &[ReportedRule]) -> Value {
    let mut location = json!({ "artifactLocation": { "uri": uri(&finding.file) } });
    if let (Some(line), Some(column)) = (finding.line, finding.column) {
        let region = json!({ "startLine": line, "startColumn": column });
        location.as_object_mut().map(|location| location.insert("region".into(), region));
    }
    json!({
        "ruleId": finding.rule,
        "ruleIndex": rules.iter().position(|rule| rule.id == finding.rule),
        "level": finding.severity.keyword(),
        "message": { "text": finding.text() },
        "locations": [{ "physicalLocation": location }],
    })
}

/// A path as a URI reference (RFC 3986): relative as it was given, or of the scheme `file`.
fn uri(path: &str) -> String {
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    format!("{scheme}{}", percent_encoded(path, b"-._~/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_uri_references() {
        for (path, expected) in [
            ("config/api.yaml", "config/api.yaml"),
            ("../a b#c/ü.yaml", "../a%20b%23c/%C3%BC.yaml"),
            ("a:b.yaml", "a%3Ab.yaml"),
            ("/etc/tollgate.yaml", "file:///etc/tollgate.yaml"),
        ] {
            assert_eq!(uri(path), expected);
        }
    }
}
