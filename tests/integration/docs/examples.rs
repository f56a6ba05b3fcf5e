//! The examples in README and docs/: each one in YAML says what it is, and loads as that.
//!
//! - ` ```yaml policy ` and ` ```yaml settings `: a file, or some of its top-level sections. Sections
//!   that the file needs and the example leaves out are those of [`POLICY`] and [`SETTINGS`]. Tests in
//!   an example of a policy pass, and its issuers say whom their tokens are for.
//! - ` ```yaml in FILE `: a part of that file of the repository, word for word.
//! - ` ```yaml compose `: a part of a file for Docker Compose, which no test here loads.

use std::{fs, path::Path};

use tollgate_policy::{Policies, load};
use tollgate_preview::cases::Runner;
use tollgate_settings::Settings;
use tollgate_yaml::{Problem, Sources, warning::Rule};

use super::{Page, root};
use crate::support::{SECRET, Signer};

/// Sections of a policy that an example may leave out.
const POLICY: &[(&str, &str)] = &[
    ("version", "version: 1\n"),
    ("upstreams", "upstreams: { api: { servers: [http://127.0.0.1:9000] } }\n"),
    (
        "identity",
        "identity:
  jwt:
    - { name: main, issuer: https://id.example.com/, audience: [api], algorithms: [HS256],
        secret_env: SECRET }
  callers:
    - { name: user, key: jwt.sub, tier: jwt.plan }
    - { name: anonymous, key: client.ip, tier: anonymous }
",
    ),
    ("tiers", "tiers: { default: free, names: [anonymous, free, pro, internal] }\n"),
    ("routes", "routes: [{ match: { path: /** } }]\n"),
];

/// Sections of the settings that an example may leave out.
const SETTINGS: &[(&str, &str)] =
    &[("version", "version: 1\n"), ("listeners", "listeners: [{ address: 127.0.0.1:8080 }]\n")];

/// The example, with the sections that it leaves out.
fn whole(example: &str, sections: &[(&str, &str)]) -> String {
    let is_missing =
        |name: &str| !example.lines().any(|line| line.starts_with(&format!("{name}:")));
    let missing = sections.iter().filter(|(name, _)| is_missing(name));
    missing.fold(example.to_owned(), |whole, (_, text)| whole + text)
}

/// The files and variables that examples name.
fn sources() -> Sources {
    let signer = Signer::new();
    signer.sign("site", &["example.com"]);
    let read = |name: &str| fs::read(signer.path(name)).unwrap();
    let revoked = signer.revocation_list(&[], (20, 2090));
    Sources::system()
        .with_variable("SECRET", SECRET)
        .with_variable("KONG_JWT_ALICE", SECRET)
        .with_variable("KONG_JWT_BOB", SECRET)
        .with_variable("TOLLGATE_KEY_SECRET", SECRET)
        .with_variable("CREDENTIALS_DIRECTORY", "/run/credentials")
        .with_file("policies/../keys/internal.pem", read("ca.pem"))
        .with_file("policies/../keys/proxy.pem", read("site.pem"))
        .with_file("policies/../keys/proxy.key", read("site.key"))
        .with_file("site.pem", read("site.pem"))
        .with_file("site.key", read("site.key"))
        .with_file("clients.pem", read("ca.pem"))
        .with_file("clients.crl", revoked)
        .with_file("secrets/admin-read-token", "a-token-to-read-with\n")
        .with_file("secrets/admin-write-token", "a-token-to-act-with\n")
        .with_file("/run/credentials/tollgate.tls.pem", read("site.pem"))
        .with_file("/run/credentials/tollgate.tls.key", read("site.key"))
}

fn is_sound_policy(example: &str, sources: &Sources) -> Result<(), Vec<Problem>> {
    let text = whole(example, POLICY);
    let policy = load(Path::new("policies/api.yaml"), &text, sources)?;
    // What nothing uses here may be what the rest of the file would use.
    let mut warnings = policy.warnings.iter();
    if let Some(warning) = warnings.find(|own| own.rule == Rule::MissingAudience) {
        panic!("{warning}\n{example}");
    }
    let policies = Policies::new(vec![policy]);
    let runner = Runner::start(None).unwrap();
    let failed = policies.iter().flat_map(|policy| runner.run(policy, &policies));
    let failed: Vec<String> = failed.map(|failed| failed.to_string()).collect();
    assert_eq!(failed, [""; 0], "{example}");
    Ok(())
}

#[test]
fn examples_in_yaml_load() {
    let sources = sources();
    let mut policies = 0;
    let mut settings = 0;
    for page in Page::all() {
        for fence in page.fences() {
            let Some(kind) = fence.info.strip_prefix("yaml") else { continue };
            let loaded = match kind.trim() {
                "policy" => {
                    policies += 1;
                    is_sound_policy(&fence.text, &sources)
                }
                "settings" => {
                    settings += 1;
                    let text = whole(&fence.text, SETTINGS);
                    Settings::parse(Path::new("tollgate.yaml"), &text, &sources).map(drop)
                }
                "compose" => continue,
                other => {
                    let Some(file) = other.strip_prefix("in ") else {
                        panic!("{}: no kind of example: {:?}", page.path, fence.info);
                    };
                    let whole = fs::read_to_string(root().join(file)).unwrap();
                    assert!(
                        whole.contains(&fence.text),
                        "{}: not in {file}:\n{}",
                        page.path,
                        fence.text
                    );
                    continue;
                }
            };
            if let Err(problems) = loaded {
                panic!("{}: {}\n{}", page.path, problems[0], fence.text);
            }
        }
    }
    assert!(policies >= 5 && settings >= 5, "{policies} policies, {settings} settings");
}
