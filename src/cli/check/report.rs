//! Everything that a check has found out, before any of it is printed.

use std::path::Path;

use serde::{Serialize, Serializer};
use tollgate_clock::Timestamp;
use tollgate_policy::{Policies, Policy};
use tollgate_preview::cases::{FailedTest, Runner};
use tollgate_settings::{AskProtocol, Settings, read_text};
use tollgate_yaml::{Problem, Sources, warning::Warning};

use super::{
    forward_auth::partly_served,
    online::{Attempt, attempt_all},
};
use crate::cli::{
    Exit,
    configured::{Configured, sources_of},
};

/// What is to be checked, and how.
pub(super) struct Request<'r> {
    pub(super) paths: &'r [&'r Path],
    /// The settings file for those of `paths` that are policies alone.
    pub(super) settings: Option<&'r Path>,
    /// Whether warnings are as bad as problems.
    pub(super) is_strict: bool,
    /// Whether what is configured is to be reached.
    pub(super) is_online: bool,
}

/// What was found out.
pub(super) struct Report {
    /// For each path, in their order.
    pub(super) checked: Vec<Checked>,
    pub(super) is_strict: bool,
}

/// What was found out about a path.
#[derive(Default)]
pub(super) struct Checked {
    /// With any, there is nothing else.
    problems: Vec<Problem>,
    pub(super) settings: Option<CheckedSettings>,
    pub(super) policies: Vec<CheckedPolicy>,
    /// What was tried to be reached.
    pub(super) attempts: Vec<Attempt>,
}

/// A settings file without problems.
#[derive(Serialize)]
pub(super) struct CheckedSettings {
    pub(super) file: String,
    pub(super) listeners: Vec<String>,
    #[serde(skip)]
    pub(super) warnings: Vec<Warning>,
}

/// A policy without problems.
#[derive(Serialize)]
pub(super) struct CheckedPolicy {
    pub(super) name: String,
    pub(super) limits: usize,
    pub(super) routes: usize,
    #[serde(skip)]
    pub(super) warnings: Vec<Warning>,
    /// Programs get how many there are, and each beside the policies.
    #[serde(serialize_with = "count")]
    pub(super) tests: Vec<Test>,
    /// What is good to know.
    pub(super) notes: Vec<String>,
}

/// A test, and how it came out.
pub(super) struct Test {
    pub(super) name: Option<String>,
    /// Its place: a problem without a message.
    pub(super) place: Problem,
    /// None: as expected.
    pub(super) failed: Option<FailedTest>,
}

impl Report {
    /// Checks what is requested; `now` decides what is over.
    ///
    /// # Errors
    /// The system refuses what tests need. Problems of files are no errors here.
    pub(super) fn collect(request: &Request<'_>, now: Timestamp) -> anyhow::Result<Report> {
        let is_strict = request.is_strict;
        let sources = match sources_of(request.paths) {
            Ok(sources) => sources,
            Err(problems) => {
                return Ok(Report { checked: vec![Checked::bad(problems)], is_strict });
            }
        };
        let mut checked = Vec::new();
        let mut shared = None;
        if let Some(file) = request.settings {
            match read_settings(file, &sources) {
                Ok(settings) => {
                    checked.push(Checked::of_settings(file, &settings, now));
                    shared = Some(settings);
                }
                Err(problems) => checked.push(Checked::bad(problems)),
            }
        }
        for path in request.paths {
            checked.push(match Configured::read(path, &sources) {
                Err(problems) => Checked::bad(problems),
                Ok(Configured { settings: Some((file, settings)), policies, .. }) => Checked {
                    policies: check_policies(&policies, Some(&settings), now)?,
                    attempts: request.attempts(Some(&settings), &policies)?,
                    ..Checked::of_settings(&file, &settings, now)
                },
                Ok(Configured { settings: None, policies, .. }) => Checked {
                    policies: check_policies(&policies, shared.as_ref(), now)?,
                    attempts: request.attempts(shared.as_ref(), &policies)?,
                    ..Checked::default()
                },
            });
        }
        Ok(Report { checked, is_strict })
    }

    /// Every problem once: paths may overlap.
    pub(super) fn problems(&self) -> Vec<&Problem> {
        unique(self.checked.iter().flat_map(|checked| &checked.problems))
    }

    /// Every warning once.
    pub(super) fn warnings(&self) -> Vec<&Warning> {
        unique(self.checked.iter().flat_map(|checked| {
            let of_settings = checked.settings.iter().flat_map(|settings| &settings.warnings);
            of_settings.chain(checked.policies.iter().flat_map(|policy| &policy.warnings))
        }))
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &CheckedPolicy> {
        self.checked.iter().flat_map(|checked| &checked.policies)
    }

    /// Every test, with its policy.
    pub(super) fn tests(&self) -> impl Iterator<Item = (&CheckedPolicy, &Test)> {
        self.policies().flat_map(|policy| policy.tests.iter().map(move |test| (policy, test)))
    }

    pub(super) fn failed_tests(&self) -> usize {
        self.tests().filter(|(_, test)| test.failed.is_some()).count()
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.checked.iter().flat_map(|checked| &checked.attempts)
    }

    /// How the program exits; none: all is well.
    pub(super) fn exit(&self) -> Option<Exit> {
        if !self.problems().is_empty() || self.is_strict && !self.warnings().is_empty() {
            Some(Exit::BadConfiguration)
        } else if self.failed_tests() > 0 || self.attempts().any(|attempt| !attempt.is_good) {
            Some(Exit::Failure)
        } else {
            None
        }
    }
}

impl Request<'_> {
    fn attempts(
        &self,
        settings: Option<&Settings>,
        policies: &Policies,
    ) -> anyhow::Result<Vec<Attempt>> {
        Ok(if self.is_online { attempt_all(settings, policies)? } else { Vec::new() })
    }
}

impl Checked {
    fn bad(problems: Vec<Problem>) -> Checked {
        Checked { problems, ..Checked::default() }
    }

    fn of_settings(file: &Path, settings: &Settings, now: Timestamp) -> Checked {
        let holding = settings
            .warnings
            .iter()
            .filter(|own| own.holds(now, |condition| settings.meet(condition)));
        let listeners = settings.all_listeners().map(|own| own.address.to_string());
        let redis = settings.decisions.redis.iter().map(|own| own.listener.address.to_string());
        let listeners = listeners.chain(redis).collect();
        let file = file.display().to_string();
        let warnings = holding.cloned().collect();
        Checked {
            settings: Some(CheckedSettings { file, listeners, warnings }),
            ..Checked::default()
        }
    }
}

impl CheckedPolicy {
    fn of(policy: &Policy, warnings: Vec<Warning>, mut failed: Vec<FailedTest>) -> CheckedPolicy {
        let tests = (1..).zip(&policy.tests).map(|(number, case)| Test {
            name: case.name.as_deref().map(str::to_owned),
            place: case.place.clone(),
            failed: failed.extract_if(.., |failed| failed.number == number).next(),
        });
        CheckedPolicy {
            name: policy.name.to_string(),
            limits: policy.limits.len(),
            routes: policy.routes.len(),
            warnings,
            notes: policy.notes.clone(),
            tests: tests.collect(),
        }
    }
}

/// Warns about policies with these settings, if any are known, and runs their tests.
fn check_policies(
    policies: &Policies,
    settings: Option<&Settings>,
    now: Timestamp,
) -> anyhow::Result<Vec<CheckedPolicy>> {
    let runner = Runner::start(settings)?;
    let check = |policy: &Policy| {
        let holding = policy.warnings.iter().filter(|own| {
            own.holds(now, |condition| settings.is_some_and(|own| own.meet(condition)))
        });
        let failed = runner.run(policy, policies);
        let mut checked = CheckedPolicy::of(policy, holding.cloned().collect(), failed);
        let listeners = settings.into_iter().flat_map(|own| &own.decisions.http);
        let asked = listeners.filter_map(|listener| listener.asked.as_ref());
        let protocols: Vec<AskProtocol> = asked.map(|asked| asked.protocol).collect();
        if !protocols.is_empty() {
            checked.notes.extend(partly_served(policy, &protocols));
        }
        checked
    };
    Ok(policies.iter().map(check).collect())
}

fn read_settings(file: &Path, sources: &Sources) -> Result<Settings, Vec<Problem>> {
    Settings::parse(file, &read_text(file, sources)?, sources)
}

fn count<S: Serializer>(tests: &[Test], serializer: S) -> Result<S::Ok, S::Error> {
    tests.len().serialize(serializer)
}

fn unique<'f, T: PartialEq>(found: impl Iterator<Item = &'f T>) -> Vec<&'f T> {
    found.fold(Vec::new(), |mut unique, own| {
        if !unique.contains(&own) {
            unique.push(own);
        }
        unique
    })
}
