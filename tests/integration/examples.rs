//! The policies that are shipped as examples.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tollgate_clock::Timestamp;
use tollgate_policy::{Policies, load};
use tollgate_preview::cases::Runner;
use tollgate_yaml::Sources;

/// 2026-01-15T12:00:00Z.
const NOW: Timestamp = Timestamp::from_secs(1_768_478_400);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn examples() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("config/examples/policies")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn examples_load_without_warnings_and_pass_their_own_tests() {
    let files = examples();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let policy = match load(&file, &text, &Sources::system()) {
            Ok(policy) => policy,
            Err(problems) => panic!("{}", problems[0]),
        };
        // An override that has an end is over some day.
        let warning = policy.warnings.iter().find(|own| own.holds(NOW, |_| false));
        assert_eq!(warning, None);
        assert!(!policy.tests.is_empty(), "{}", file.display());
        let runner = Runner::start(None).unwrap();
        let policies = Policies::new(vec![policy]);
        let failed = policies.iter().flat_map(|policy| runner.run(policy, &policies));
        let failed: Vec<String> = failed.map(|failed| failed.to_string()).collect();
        assert_eq!(failed, [""; 0]);
    }
}
