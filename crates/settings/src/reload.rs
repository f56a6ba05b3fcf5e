//! Settings of the reload: how it is noticed that a file has changed, how long it must stay as it
//! is before it is read, and whether the tests inside policies decide about them.

use std::{ops::RangeInclusive, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_keyword::keywords;
use tollgate_yaml::{Check, Choice, Spanned};

use super::Checker;

/// How changes of files are noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSettings {
    /// How often files are read to see whether they have changed, besides the times at which the
    /// system reports a change.
    pub poll: Duration,
    /// How long files must stay unchanged before they are loaded.
    pub quiet: Duration,
    /// Whether the system reports changes of files.
    pub events: bool,
    /// What a test of a policy that fails means for the policy. Taken from the configuration that
    /// is read, so that changing it needs no restart.
    pub tests: TestsRule,
}

/// What a test of a policy that fails means for the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestsRule {
    /// It is a problem like any other: the policy is not put in force.
    #[default]
    Required,
    /// Nothing: only `tollgate check` runs tests.
    Ignored,
}

keywords! { TestsRule { Required = "required", Ignored = "ignored" } }

/// How it is noticed that files have changed.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "reload section")]
pub(super) struct RawReload {
    /// How often files are read to see whether they have changed, where the system does not report
    /// changes, 100ms to 1h. Default: 5s.
    #[schemars(extend("examples" = ["5s"]))]
    poll: Option<Spanned<String>>,
    /// How long files must stay unchanged before they are read, so that no half-written file is
    /// loaded, 10ms to 10s. Default: 200ms.
    #[schemars(extend("examples" = ["200ms"]))]
    quiet: Option<Spanned<String>>,
    /// Whether the system reports changes of files. Without, only the poll sees them. Default:
    /// true.
    events: Option<bool>,
    /// What a test of a policy that fails means: `required`, it is a problem like any other, and
    /// the policy is put in force neither at the start nor by a reload; or `ignored`, only
    /// `tollgate check` runs tests. Default: required.
    tests: Option<Spanned<Choice<TestsRule>>>,
}

impl Default for ReloadSettings {
    fn default() -> Self {
        ReloadSettings {
            poll: Duration::from_secs(5),
            quiet: Duration::from_millis(200),
            events: true,
            tests: TestsRule::default(),
        }
    }
}

impl ReloadSettings {
    /// Without what changes while traffic flows: what tests mean.
    pub(super) fn at_rest(&self) -> ReloadSettings {
        ReloadSettings { tests: TestsRule::default(), ..self.clone() }
    }
}

const POLL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const QUIET: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);

impl Checker<'_> {
    pub(super) fn reload(&mut self, raw: &RawReload) -> ReloadSettings {
        let default = ReloadSettings::default();
        ReloadSettings {
            poll: self.time_or(&raw.poll, POLL, default.poll),
            quiet: self.time_or(&raw.quiet, QUIET, default.quiet),
            events: raw.events.unwrap_or(default.events),
            tests: self.keyword_or_default(raw.tests.as_ref()).unwrap_or_default(),
        }
    }
}
