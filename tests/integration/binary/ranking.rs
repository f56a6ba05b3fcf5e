//! `tollgate top`, and `/callers` and `/denials` on the admin listener: who uses most, and who was
//! denied last.

use std::net::SocketAddr;

use super::{
    POLICY, assert_exit,
    callers::{folder, local, serve, use_up},
    send, text,
};
use crate::support::{Upstream, get};

#[test]
fn callers_are_ranked_by_units_and_by_denials() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (_running, address, admin) = serve(&folder);
    use_up(address, &folder.token(&["--sub", "42"]));
    for _ in 0..2 {
        send(address, get("/").token(&folder.token(&["--sub", "7"]))).assert_status(200);
    }

    let ranked = folder.run(&["top", "--limit", "core", "--admin", &admin]);
    assert_exit(&ranked, 0);
    let said = text(&ranked.stdout);
    let expected = "\
caller   limit     tier  units  at least
user:42  api/core  free  10     10
user:7   api/core  free  2      2
api/core: 12 units in 10 minutes
  callers of tier free past 80 %: ";
    assert!(said.starts_with(expected), "{said}");

    let by_both = folder.run(&["top", "--limit", "api/core", "--admin", &admin]);
    assert!(text(&by_both.stdout).contains("user:42  api/core  free  10     10\n"), "{by_both:?}");

    let denied = folder.run(&["top", "--by", "denials", "--minutes", "60", "--admin", &admin]);
    assert_exit(&denied, 0);
    let said = text(&denied.stdout);
    assert!(said.contains("user:42  api/core  free  1        1\n"), "{said}");
    assert!(!said.contains("user:7"), "{said}");

    let json = folder.run(&["top", "--top", "1", "--json", "--admin", &admin]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["callers"].as_array().unwrap().len(), 1);
    let limit = &report["limits"][0];
    assert_eq!((&limit["total"], &limit["unlisted"]), (&12.into(), &2.into()));
    let near = &limit["near"][0];
    let seen = ["this_minute", "last_minute"].map(|minute| near[minute].as_u64().unwrap());
    assert!(seen.contains(&1), "{report}");
}

#[test]
fn organisations_are_ranked_by_names_that_look_and_reset_take() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let limits =
        "org-day: { per: jwt.org, rate: 3/day }\n  keys: { per: header.x-key, rate: 9/day }\n";
    let policy = POLICY.replace("UPSTREAM", &upstream.url());
    let policy = policy.replace("limits:\n  core", &format!("limits:\n  {limits}  core"));
    folder.write("policies/api.yaml", &policy.replace("[core]", "[core, org-day, keys]"));
    let (_running, address, admin) = serve(&folder);
    for (sub, status) in [("42", 200), ("7", 200), ("42", 200), ("42", 429)] {
        let token = folder.token(&["--sub", sub, "--claim", "org=acme"]);
        send(address, get("/").token(&token).field("x-key", "s3cret")).assert_status(status);
    }
    let run = |arguments: &[&str]| {
        let output = folder.run(&[arguments, &["--admin", &admin]].concat());
        assert_exit(&output, 0);
        text(&output.stdout).to_owned()
    };
    let said = run(&["top", "--limit", "org-day"]);
    let expected = "\
caller        limit        tier  units  at least
jwt.org:acme  api/org-day  free  3      3
api/org-day: 3 units in 10 minutes
  callers of tier free past 80 %: ";
    assert!(said.starts_with(expected), "{said}");
    let said = run(&["top", "--limit", "org-day", "--by", "denials"]);
    assert!(said.contains("jwt.org:acme  api/org-day  free  1        1\n"), "{said}");
    assert!(run(&["look", "jwt.org:acme"]).contains("3 of 3 used"));
    assert_eq!(
        run(&["reset", "jwt.org:acme", "--why", "a test"]),
        "reset jwt.org:acme: api/org-day\n"
    );

    let said = run(&["top"]);
    assert!(said.contains("header.x-key:(hash ") && !said.contains("s3cret"), "{said}");
    for name in ["user:42 ", "user:7 ", "jwt.org:acme "] {
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn requests_that_were_denied_last_are_told() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (_running, address, admin) = serve(&folder);
    let admin: SocketAddr = admin.parse().unwrap();
    let token = folder.token(&["--sub", "42"]);
    use_up(address, &token);
    send(address, get("/").token("nonsense")).assert_status(401);
    let again = send(address, get("/some/path?key=secret").token(&token));

    let report = send(admin, local(get("/denials"))).json();
    let denials = report["denials"].as_array().unwrap();
    let reasons: Vec<_> = denials.iter().map(|denial| denial["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["limit", "auth", "limit"]);
    assert_eq!((&report["latest"], &report["left_out"]), (&3.into(), &0.into()));
    let last = &denials[2];
    for (field, expected) in [
        ("caller", "user:42"),
        ("address", "127.0.0.1"),
        ("policy", "api"),
        ("limit", "core"),
        ("tier", "free"),
        ("method", "GET"),
        ("path", "/some/path"),
        ("request_id", again.fields.one("x-request-id").unwrap()),
        ("decision", "deny"),
    ] {
        assert_eq!(last[field], expected, "{field}");
    }
    assert_eq!((&last["seq"], &last["status"]), (&3.into(), &429.into()));
    assert!(denials[1]["caller"].is_null(), "{report}");

    let numbers = |query: &str| {
        let found = send(admin, local(get(&format!("/denials?{query}")))).json();
        let found = found["denials"].as_array().unwrap().iter();
        found.map(|denial| denial["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers("caller=user:42"), [1, 3]);
    assert_eq!(numbers("caller=user:42&top=1"), [3]);
    assert_eq!(numbers("after=1"), [2, 3]);
    assert_eq!(numbers("limit=core&after=1"), [3]);
    assert_eq!(numbers("caller=client.ip:127.0.0.1&limit=search"), [0; 0]);
}

/// The page's commands.
fn commands_of(page: &str, heading: &str) -> Vec<String> {
    let section = page.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let shell = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    shell.lines().map(str::to_owned).collect()
}

#[test]
fn page_finds_why_a_caller_is_denied_whose_organisation_has_no_room() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let policy = POLICY.replace("UPSTREAM", &upstream.url()).replace("[core]", "[core, org]");
    let policy = policy.replace("limits:\n", "limits:\n  org: { per: jwt.org, rate: 1/hour }\n");
    folder.write("policies/api.yaml", &policy);
    let (_running, address, admin) = serve(&folder);
    for (sub, status) in [("42", 200), ("43", 429)] {
        let token = folder.token(&["--sub", sub, "--claim", "org=acme"]);
        send(address, get("/").token(&token)).assert_status(status);
    }
    let commands = commands_of(include_str!("../../../docs/admin.md"), "Why is a caller denied?");
    let [look, denials, look_at_org, reset] = &commands[..] else { panic!("{commands:?}") };
    let run = |command: &str| {
        let words = command.strip_prefix("tollgate ").unwrap().replace("\"ticket 7\"", "ticket-7");
        let words: Vec<&str> = words.split(' ').chain(["--admin", &admin]).collect();
        let output = folder.run(&words);
        assert_exit(&output, 0);
        text(&output.stdout).to_owned()
    };
    let said = run(look);
    let expected = "  org: on its routes, but counts by jwt.org, and had no room for it lately\n    \
                    tollgate look jwt.org:acme\n";
    assert!(said.ends_with(expected), "{said}");
    let (_, target) = denials.trim_end_matches('\'').split_once("127.0.0.1:9901").unwrap();
    let report = send(admin.parse().unwrap(), local(get(target))).json();
    let [denial] = &report["denials"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&denial["limit"], &denial["counters"][0]), (&"org".into(), &"jwt.org:acme".into()));
    assert!(run(look_at_org).contains("1 of 1 used, 0 left"));
    assert_eq!(run(reset), "reset jwt.org:acme: api/org\n");
}

#[test]
fn mistakes_in_questions_are_named() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (_running, _, admin) = serve(&folder);
    let at: SocketAddr = admin.parse().unwrap();
    for (target, status, expected) in [
        ("/callers?by=cost", 400, "`by` is `units`, `denials` or `would_be_denials`"),
        ("/callers?minutes=61", 400, "ask for 1 to 60 minutes"),
        ("/callers?limit=nix", 404, "no limit is called `nix`: there are api/core"),
        ("/callers?policy=nix", 404, "no policy with limits is called `nix`: there are api/core"),
        (
            "/callers?limit=api/nix",
            404,
            "no limit of policy `api` is called `nix`: there are api/core",
        ),
        ("/denials?after=x", 400, "`after` is a whole number"),
    ] {
        let response = send(at, local(get(target)));
        response.assert_status(status);
        assert_eq!(response.json()["message"], expected, "{target}");
    }
    let refused = folder.run(&["top", "--limit", "nix", "--admin", &admin]);
    assert_exit(&refused, 1);
    let said = text(&refused.stderr);
    assert!(said.contains("the answer is 404: no limit is called `nix`"), "{said}");
    assert_exit(&folder.run(&["top", "--minutes", "61"]), 64);
}
