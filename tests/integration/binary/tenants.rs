//! Issuers with tenants, as one who writes a policy meets them.

use super::{Folder, assert_exit, text};
use crate::support::Upstream;

const TENANTS: &str = r#"
version: 1
upstreams: { api: { servers: ["http://127.0.0.1:9000"] } }
identity:
  jwt:
    - name: entra
      issuer: "https://login.microsoftonline.com/{CLAIM}/v2.0"
      tenants: any
      audience: [api]
      algorithms: [HS256]
      secret_file: ../secret
  callers: [{ name: user, key: jwt.sub }]
  shared_subjects: true
limits:
  core: { per: caller, rate: 10/hour }
routes:
  - { match: { path: /** }, auth: required, limits: [core] }
tests:
  - given: { path: /a, jwt: { iss: "https://login.microsoftonline.com/acme/v2.0", tid: acme, sub: "42" } }
    expect: { status: 200, caller: acme/user:42 }
"#;

fn folder(claim: &str) -> Folder {
    let folder = Folder::before(&Upstream::start());
    folder.write("policies/api.yaml", &TENANTS.replace("CLAIM", claim));
    folder
}

/// The claims of a token of Entra, as far as they matter.
const CLAIMS: &str =
    r#"{ "iss": "https://login.microsoftonline.com/acme/v2.0", "tid": "acme", "sub": "42" }"#;

#[test]
fn tenant_in_a_claim_that_no_token_has_is_found_before_it_is_in_use() {
    let lacking = "problem: token lacks a claim that the policy requires: \"tenantid\"";
    for (claim, lines) in [("tenantid", 1), ("tid", 0)] {
        let folder = folder(claim);
        let output = folder.run(&["check", "tollgate.yaml"]);
        assert_exit(&output, lines as i32);
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        let is_told = |part: &str| assert_eq!(printed.matches(part).count(), lines, "{printed}");
        is_told("warning: policies/api.yaml:7:15: every token is refused");
        is_told("status: expected 200, got 401: token lacks a claim");
        let explained =
            folder.run(&["explain", "--policy", "policies", "--claims", CLAIMS, "GET", "/a"]);
        assert_exit(&explained, 0);
        let printed = text(&explained.stdout);
        assert_eq!(printed.matches(lacking).count(), lines, "{printed}");
    }
}

#[test]
fn token_is_of_the_tenant_that_is_asked_for() {
    let folder = folder("tid");
    let token = ["token", "--policy", "policies", "--secret-file", "secret", "--sub", "42"];
    for (arguments, caller) in [
        (&["--claim", "tid=acme"][..], "acme"),
        (&["--claim", "iss=https://login.microsoftonline.com/globex/v2.0"], "globex"),
        (&[], "tenant"),
    ] {
        let output = folder.run(&[&token[..], arguments].concat());
        assert_exit(&output, 0);
        let token = text(&output.stdout).trim();
        let explain = ["explain", "--policy", "policies", "--json", "--token", token, "GET", "/a"];
        let explained = folder.run(&explain);
        assert_exit(&explained, 0);
        let printed = text(&explained.stdout);
        assert!(printed.contains(&format!("\"{caller}/user:42\"")), "{printed}");
    }
}
