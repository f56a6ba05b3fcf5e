//! `tollgate check`: every problem with its place and what to write.

mod formats;
mod online;

use std::fs;

use super::{Folder, POLICY, assert_exit, text};
use crate::support::Upstream;

#[test]
fn good_configuration_is_reported_as_ok() {
    let folder = Folder::before(&Upstream::start());
    for path in ["tollgate.yaml", ".", "policies", "policies/api.yaml"] {
        let output = folder.run(&["check", path]);
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        assert!(printed.contains("policy api: ok, "), "{path}: {printed}");
    }
}

#[test]
fn problem_is_shown_with_its_place_and_what_to_write() {
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(&file, policy.replace("limits: [core]", "limits: [coer]")).unwrap();
    let output = folder.run(&["check", "policies/api.yaml"]);
    assert_exit(&output, 64);
    let expected = "\
policies/api.yaml:15:54: no limit is called `coer`
   |
15 |   - { match: { path: /** }, auth: required, limits: [coer] }
   |                                                      ^^^^ did you mean `core`?

1 problem found
";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn callers_by_certificate_are_a_warning_beside_settings_that_ask_for_none() {
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let callers = "callers:\n    - { name: robot, key: client_certificate.subject }\n";
    fs::write(&file, policy.replace("callers:\n", callers)).unwrap();
    let expected = "no request has a caller `robot`: no listener of the settings asks clients for a \
                    certificate";
    for (arguments, is_warned) in [
        (&["check", "policies"][..], false),
        (&["check", "policies", "--config", "tollgate.yaml"], true),
        (&["check", "tollgate.yaml"], true),
    ] {
        let output = folder.run(arguments);
        assert_exit(&output, 0);
        assert_eq!(text(&output.stdout).contains(expected), is_warned, "{output:?}");
    }
}

/// A proxy that asks forwards the request itself.
#[test]
fn routes_that_need_the_response_are_told_where_others_may_ask() {
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let limits =
        "limits:\n  failed: { per: client.ip, rate: 5/hour, count_when: { status: [401] } }\n";
    let policy = policy.replace("limits:\n", limits).replace("[core]", "[core, failed]");
    fs::write(&file, policy).unwrap();
    let note = "  note: a proxy that asks about /** does not get all of it, as responses are not \
                seen: limit failed counts nothing (`count_when`)\n";
    let check = || text(&folder.run(&["check", "tollgate.yaml"]).stdout).to_owned();
    assert!(!check().contains("a proxy that asks"), "{}", check());
    let settings = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(settings, text + "\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]\n")
        .unwrap();
    assert!(check().contains(note), "{}", check());
}

/// Each setting of a route that is not served in full where another proxy forwards the request.
#[test]
fn settings_that_an_asker_does_not_serve_are_named_route_by_route() {
    const ROUTES: &str = r#"
  - { match: { path: /plain }, auth: required, limits: [core], upgrades: [] }
  - { match: { path: /large }, auth: required, limits: [core], max_body: 10MiB }
  - { match: { path: /socket }, auth: required, limits: [core], upgrades: [websocket] }
  - match: { path: /moved/** }
    strip_prefix: /moved
    add_prefix: /internal
    request_headers: { set: { x-environment: production } }
    response_headers: { remove: [server] }
  - match: { path: /page }
    cors: { origins: ["https://app.example.com"], preflight: answer }
"#;
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let routes = policy.find("routes:").unwrap();
    fs::write(&file, format!("{}routes:{ROUTES}", &policy[..routes])).unwrap();
    let settings = folder.path().join("tollgate.yaml");
    let plain = fs::read_to_string(&settings).unwrap();
    let golden = include_str!("check/askers.txt");
    for (protocol, expected) in [
        ("", ""),
        ("redis", ""),
        ("http", golden.split("\n\n").next().unwrap()),
        ("grpc", golden.split("\n\n").nth(1).unwrap()),
    ] {
        let asked = format!("\ndecisions: [{{ address: 127.0.0.1:0, protocol: {protocol} }}]\n");
        let asked = if protocol.is_empty() { String::new() } else { asked };
        fs::write(&settings, format!("{plain}{asked}")).unwrap();
        let output = folder.run(&["check", "tollgate.yaml"]);
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        let notes: Vec<&str> =
            printed.lines().filter(|line| line.contains("a proxy that asks")).collect();
        assert_eq!(notes.join("\n"), expected.trim_end(), "{protocol}");
    }
}

/// It forwards the path as it came, and may take an escaped slash for one.
#[test]
fn check_notes_that_an_asker_passes_escaped_slashes_on() {
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let settings = folder.path().join("tollgate.yaml");
    let plain = fs::read_to_string(&settings).unwrap();
    for (paths, protocol, is_noted) in [
        ("keep", "http", true),
        ("keep", "grpc", true),
        ("keep", "redis", false),
        ("decode", "http", false),
    ] {
        fs::write(&file, format!("{policy}\npaths: {{ encoded_slash: {paths} }}\n")).unwrap();
        let asked = format!("\ndecisions: [{{ address: 127.0.0.1:0, protocol: {protocol} }}]\n");
        fs::write(&settings, format!("{plain}{asked}")).unwrap();
        let output = folder.run(&["check", "tollgate.yaml"]);
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        assert_eq!(
            printed.contains("leave to forward `%2F`"),
            is_noted,
            "{paths} {protocol}: {printed}"
        );
    }
}

/// Once for all upstreams, and nothing where it is said.
#[test]
fn check_notes_that_nothing_says_what_reads_the_paths() {
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let check = |fields: &str| {
        let with_fields = policy.replace("servers: [", &format!("{fields}servers: ["));
        fs::write(&file, with_fields).unwrap();
        let output = folder.run(&["check", "policies/api.yaml"]);
        assert_exit(&output, 0);
        text(&output.stdout).to_owned()
    };
    let note = "  note: nothing says what serves upstream api: routes take paths as they are \
                written, and with `paths: express`, say, what that framework takes for them \
                (docs/frameworks.md)\n";
    assert!(check("").ends_with(note), "{}", check(""));
    for said in ["paths: django, ", "paths: { case: ignore }, ", "paths: {}, "] {
        assert!(!check(said).contains("what serves"), "{}", check(said));
    }
}

/// They are read otherwise than their order says.
#[test]
fn check_lists_routes_that_go_before_earlier_ones() {
    let folder = Folder::before(&Upstream::start());
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let policy = policy.replace("servers: [", "paths: rails, servers: [").replace(
        "routes:\n",
        "routes:\n  - { match: { path: /health }, auth: none, limits: [] }\n  - { match: { path: \
         /health.json }, auth: required, limits: [] }\n",
    );
    fs::write(&file, policy).unwrap();
    let output = folder.run(&["check", "policies/api.yaml"]);
    assert_exit(&output, 0);
    let note = "  note: policies/api.yaml:16:22: route /health.json takes its own paths before \
                route /health, which comes first: upstream api may read them as paths of that one, \
                and a route that spells them out is closer\n";
    assert!(text(&output.stdout).ends_with(note), "{}", text(&output.stdout));
}

#[test]
fn two_policies_for_one_host_are_a_problem() {
    let folder = Folder::before(&Upstream::start());
    folder.write("policies/copy.yaml", &POLICY.replace("UPSTREAM", "http://127.0.0.1:9000"));
    let output = folder.run(&["check", "tollgate.yaml"]);
    assert_exit(&output, 64);
    let printed = text(&output.stderr);
    let expected = "policies/copy.yaml: policies/api.yaml is for the same hosts";
    assert!(printed.contains(expected), "{printed}");
}

/// A start and each reload run the tests of all of them.
#[test]
fn tests_of_all_policies_together_are_bounded() {
    let folder = Folder::before(&Upstream::start());
    let tests = |repeats: &[u32]| {
        let test = |repeat: &u32| {
            format!(
                "  - {{ given: {{ path: /x }}, repeat: {repeat}, expect: {{ status: 401 }} }}\n"
            )
        };
        let tests: String = repeats.iter().map(test).collect();
        format!("{}tests:\n{tests}", POLICY.replace("UPSTREAM", "http://127.0.0.1:9000"))
    };
    folder.write("policies/a.yaml", &format!("hosts: [a]\n{}", tests(&[100_000; 4])));
    folder.write("policies/b.yaml", &format!("hosts: [b]\n{}", tests(&[99_999, 1, 1])));
    let output = folder.run(&["check", "tollgate.yaml"]);
    assert_exit(&output, 64);
    let printed = text(&output.stderr);
    let expected = "the tests of all policies together send too many requests";
    assert!(printed.contains(expected) && printed.contains("policies/b.yaml:20:"), "{printed}");
    assert!(printed.contains("1 problem found"), "{printed}");
}

#[test]
fn problem_never_shows_a_secret() {
    let folder = Folder::before(&Upstream::start());
    folder.write("secret", "short-secret");
    let output = folder.run(&["check", "tollgate.yaml"]);
    assert_exit(&output, 64);
    assert!(!text(&output.stderr).contains("short-secret"), "{output:#?}");
}
