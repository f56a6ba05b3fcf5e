//! The policies that are shipped as examples, and what others wrote for the limits that they have
//! elsewhere: they hold as their tests say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tollgate_clock::Timestamp;
use tollgate_policy::{Policies, Policy, load};
use tollgate_preview::cases::Runner;
use tollgate_yaml::Sources;

/// 2026-01-15T12:00:00Z.
const NOW: Timestamp = Timestamp::from_secs(1_768_478_400);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn policies_in(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "{files:?}");
    files
}

fn loaded(file: &Path) -> Policy {
    let text = fs::read_to_string(file).unwrap();
    let policy = load(file, &text, &Sources::system());
    policy.unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn assert_passes_its_tests(policy: Policy) {
    assert!(!policy.tests.is_empty(), "{}", policy.name);
    let runner = Runner::start(None).unwrap();
    let policies = Policies::new(vec![policy]);
    let failed = policies.iter().flat_map(|policy| runner.run(policy, &policies));
    let failed: Vec<String> = failed.map(|failed| failed.to_string()).collect();
    assert_eq!(failed, [""; 0]);
}

#[test]
fn examples_load_without_warnings_and_pass_their_own_tests() {
    for file in policies_in("config/examples/policies") {
        let policy = loaded(&file);
        // An override that has an end is over some day.
        let warning = policy.warnings.iter().find(|own| own.holds(NOW, |_| false));
        assert_eq!(warning, None);
        assert_passes_its_tests(policy);
    }
}

#[test]
fn policies_of_limits_that_others_have_pass_their_own_tests() {
    for file in policies_in("tests/policies/cases") {
        assert_passes_its_tests(loaded(&file));
    }
}
