//! A report as one JSON object. Fields may be added to it; those that are there stay as they are.

use std::io::Write;

use serde::Serialize;
use tollgate_preview::cases::Difference;

use super::{
    finding::Finding,
    online::Attempt,
    report::{CheckedPolicy, CheckedSettings, Report, Test},
};
use crate::cli::{Exit, Failure, write_json};

#[derive(Serialize)]
struct JsonReport<'r> {
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    settings: Vec<&'r CheckedSettings>,
    policies: Vec<&'r CheckedPolicy>,
    tests: Vec<WrittenTest<'r>>,
    /// With `--online`: what was tried to be reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    online: Vec<&'r Attempt>,
    summary: Summary,
}

#[derive(Serialize)]
struct WrittenTest<'r> {
    policy: &'r str,
    name: Option<&'r str>,
    file: &'r str,
    line: usize,
    column: usize,
    passed: bool,
    /// The request in a line, if the test failed.
    request: Option<&'r str>,
    /// What came out otherwise than expected.
    differences: Vec<&'r Difference>,
    /// What else the client got to know about limits and errors, if the test failed.
    headers: Vec<Header<'r>>,
}

#[derive(Serialize)]
struct Header<'r> {
    name: &'r str,
    value: &'r str,
}

#[derive(Serialize)]
struct Summary {
    problems: usize,
    warnings: usize,
    tests: usize,
    failed_tests: usize,
    exit_code: u8,
}

pub(super) fn write(report: &Report, output: &mut dyn Write) -> Result<(), Failure> {
    let settings = report.checked.iter().filter_map(|checked| checked.settings.as_ref());
    let problems = report.problem_findings();
    let warnings = report.warning_findings();
    let summary = Summary {
        problems: problems.len(),
        warnings: warnings.len(),
        tests: report.tests().count(),
        failed_tests: report.failed_tests(),
        exit_code: report.exit().map_or(0, Exit::code),
    };
    let written = JsonReport {
        problems,
        warnings,
        settings: settings.collect(),
        policies: report.policies().collect(),
        tests: report.tests().map(|(policy, test)| WrittenTest::of(policy, test)).collect(),
        online: report.attempts().collect(),
        summary,
    };
    write_json(output, &written)
}

impl<'r> WrittenTest<'r> {
    fn of(policy: &'r CheckedPolicy, test: &'r Test) -> Self {
        let Test { name, place, failed } = test;
        let differences = failed.iter().flat_map(|failed| &failed.differences);
        let headers = failed.iter().flat_map(|failed| &failed.headers);
        WrittenTest {
            policy: &policy.name,
            name: name.as_deref(),
            file: place.file(),
            line: place.line(),
            column: place.column(),
            passed: failed.is_none(),
            request: failed.as_ref().map(|failed| failed.request.as_str()),
            differences: differences.collect(),
            headers: headers.map(|(name, value)| Header { name: name.as_str(), value }).collect(),
        }
    }
}
