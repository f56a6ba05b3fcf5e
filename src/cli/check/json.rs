//! A report as one JSON object. Fields may be added to it; those that are there stay as they are.

use std::io::Write;

use http::HeaderName;
use serde::Serialize;
use tollgate_preview::cases::Difference;

use super::{
    finding::Finding,
    report::{CheckedPolicy, CheckedSettings, Report, Test},
};
use crate::cli::Exit;

#[derive(Serialize)]
struct JsonReport<'r> {
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    settings: Vec<WrittenSettings<'r>>,
    policies: Vec<WrittenPolicy<'r>>,
    tests: Vec<WrittenTest<'r>>,
    summary: Summary,
}

#[derive(Serialize)]
struct WrittenSettings<'r> {
    file: &'r str,
    listeners: &'r [String],
}

#[derive(Serialize)]
struct WrittenPolicy<'r> {
    name: &'r str,
    limits: usize,
    routes: usize,
    tests: usize,
    notes: &'r [String],
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
    differences: Vec<WrittenDifference<'r>>,
    /// What else the client got to know about limits and errors, if the test failed.
    headers: Vec<WrittenHeader<'r>>,
}

#[derive(Serialize)]
struct WrittenDifference<'r> {
    what: &'r str,
    expected: &'r str,
    got: &'r str,
}

#[derive(Serialize)]
struct WrittenHeader<'r> {
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

pub(super) fn write(report: &Report, output: &mut dyn Write) -> anyhow::Result<()> {
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
        settings: settings.map(WrittenSettings::of).collect(),
        policies: report.policies().map(WrittenPolicy::of).collect(),
        tests: report.tests().map(|(policy, test)| WrittenTest::of(policy, test)).collect(),
        summary,
    };
    serde_json::to_writer_pretty(&mut *output, &written)?;
    Ok(writeln!(output)?)
}

impl<'r> WrittenSettings<'r> {
    fn of(settings: &'r CheckedSettings) -> Self {
        let CheckedSettings { file, listeners, warnings: _ } = settings;
        WrittenSettings { file, listeners }
    }
}

impl<'r> WrittenPolicy<'r> {
    fn of(policy: &'r CheckedPolicy) -> Self {
        let CheckedPolicy { name, limits, routes, warnings: _, notes, tests } = policy;
        WrittenPolicy { name, limits: *limits, routes: *routes, tests: tests.len(), notes }
    }
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
            differences: differences.map(WrittenDifference::of).collect(),
            headers: headers.map(|(name, value)| WrittenHeader::of(name, value)).collect(),
        }
    }
}

impl<'r> WrittenDifference<'r> {
    fn of(difference: &'r Difference) -> Self {
        let Difference { what, expected, got } = difference;
        WrittenDifference { what, expected, got }
    }
}

impl<'r> WrittenHeader<'r> {
    fn of(name: &'r HeaderName, value: &'r str) -> Self {
        WrittenHeader { name: name.as_str(), value }
    }
}
