//! What the machine formats have in common: problems, warnings and failed tests as one list.

use std::fmt::Write;

use serde::Serialize;
use tollgate_keyword::{Keyword, keywords};
use tollgate_preview::cases::FailedTest;
use tollgate_yaml::{Problem, warning::Warning};

use super::report::{CheckedPolicy, Report, Test};

/// The rules of what is no warning.
pub(super) const PROBLEM: &str = "bad-configuration";
pub(super) const FAILED_TEST: &str = "failed-test";

/// Something that is wrong, or surely not meant.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) file: String,
    /// From 1; none: it is about the whole file.
    pub(super) line: Option<usize>,
    /// In characters, from 1.
    pub(super) column: Option<usize>,
    pub(super) severity: Severity,
    pub(super) rule: &'static str,
    pub(super) message: String,
    /// What to write instead.
    pub(super) help: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Error,
    Warning,
}

// As SARIF and GitHub call them too.
keywords! { Severity { Error = "error", Warning = "warning" } }

impl Finding {
    fn new(problem: &Problem, severity: Severity, rule: &'static str) -> Finding {
        let position = |position: usize| Some(position).filter(|position| *position > 0);
        Finding {
            file: problem.file().to_owned(),
            line: position(problem.line()),
            column: position(problem.column()),
            severity,
            rule,
            message: problem.message().to_owned(),
            help: Some(problem.help().to_owned()).filter(|help| !help.is_empty()),
        }
    }

    fn of_test(policy: &CheckedPolicy, test: &Test) -> Option<Finding> {
        let FailedTest { number, request, differences, .. } = test.failed.as_ref()?;
        let name = test.name.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        let mut message = format!("policy {}: test {number}{name}: {request}", policy.name);
        for difference in differences {
            let _ = write!(message, "\n{difference}");
        }
        Some(Finding {
            file: test.place.file().to_owned(),
            line: Some(test.place.line()),
            column: Some(test.place.column()),
            severity: Severity::Error,
            rule: FAILED_TEST,
            message,
            help: None,
        })
    }

    /// The message, and what to write instead on a line of its own.
    pub(super) fn text(&self) -> String {
        match &self.help {
            Some(help) => format!("{}\n{help}", self.message),
            None => self.message.clone(),
        }
    }
}

impl Report {
    pub(super) fn problem_findings(&self) -> Vec<Finding> {
        let finding = |problem: &Problem| Finding::new(problem, Severity::Error, PROBLEM);
        self.problems().into_iter().map(finding).collect()
    }

    pub(super) fn warning_findings(&self) -> Vec<Finding> {
        let finding = |warning: &Warning| {
            Finding::new(&warning.problem, Severity::Warning, warning.rule.keyword())
        };
        self.warnings().into_iter().map(finding).collect()
    }

    /// Everything that is wrong or surely not meant.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let of_tests = self.tests().filter_map(|(policy, test)| Finding::of_test(policy, test));
        let mut findings = self.problem_findings();
        findings.extend(self.warning_findings());
        findings.extend(of_tests);
        findings
    }
}
