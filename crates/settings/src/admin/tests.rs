//! Settings of the admin listener: who may use it.

use std::path::Path;

use tollgate_yaml::{Problem, Sources};

use super::*;
use crate::{
    Permission, Settings,
    tests::{FILE, rendered},
};

const READ: &str = "a-token-to-read-with";
const WRITE: &str = "a-token-to-act-with";

fn parse(admin: &str) -> Result<Settings, Vec<Problem>> {
    parse_with(admin, READ, WRITE)
}

/// With these tokens in the files `read` and `write`.
fn parse_with(admin: &str, read: &str, write: &str) -> Result<Settings, Vec<Problem>> {
    let text = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\nadmin: {admin}\n");
    let sources = Sources::system()
        .with_file("config/read", read.to_owned() + "\r\n")
        .with_file("config/write", write.to_owned() + "\n");
    Settings::parse(Path::new(FILE), &text, &sources)
}

/// What is wrong with it: nothing, or one problem.
fn problems(admin: &str) -> Vec<String> {
    parse(admin).map_or_else(|problems| rendered(&problems), |_| Vec::new())
}

fn tokens(auth: &str) -> Arc<CurrentTokens> {
    let settings = parse(&format!("{{ address: \"0.0.0.0:9901\", auth: {auth} }}"));
    settings.unwrap().admin.unwrap().tokens.unwrap()
}

#[test]
fn metrics_need_no_auth_wherever_they_are_served() {
    for reached in ["127.0.0.1:1", "0.0.0.0:9902", "10.0.0.1:1"] {
        let admin = format!("{{ address: \"127.0.0.1:9901\", metrics: \"{reached}\" }}");
        let settings = parse(&admin).unwrap();
        assert!(settings.warnings.is_empty(), "{reached}");
        let metrics = settings.admin.unwrap().metrics.map(|address| address.to_string());
        assert_eq!(metrics.as_deref(), Some(reached));
    }
    assert_eq!(
        problems("{ address: 127.0.0.1:9901, metrics: \"unix:metrics.sock\" }"),
        [
            "3:44 Prometheus does not ask at Unix sockets: write an IP address and a port: 0.0.0.0:9902"
        ]
    );
}

#[test]
fn address_that_other_machines_reach_needs_auth() {
    for local in ["127.0.0.1:9901", "[::1]:1", "127.8.9.1:1", "[::ffff:127.0.0.1]:1", "unix:a"] {
        assert_eq!(problems(&format!("{{ address: \"{local}\" }}")), [""; 0], "{local}");
    }
    for reached in ["0.0.0.0:9901", "[::]:1", "10.0.0.1:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1"] {
        assert_eq!(
            problems(&format!("{{ address: \"{reached}\" }}")),
            [
                "3:19 other machines reach this address, and the admin listener has no `auth`: write \
              `auth: { read_token_file: …, write_token_file: … }`, or an address such as \
              127.0.0.1:9901, or `auth: off` if the network keeps others away"
            ],
            "{reached}"
        );
        for auth in ["off", "{ read_token_file: read }", "{ write_token_file: write }"] {
            let admin = format!("{{ address: \"{reached}\", auth: {auth} }}");
            assert_eq!(problems(&admin), [""; 0], "{admin}");
        }
    }
}

#[test]
fn listener_with_tokens_on_a_public_address_is_no_warning() {
    let settings = parse("{ address: \"0.0.0.0:1\", auth: { write_token_file: write } }").unwrap();
    assert_eq!(settings.warnings.len(), 0);
}

#[test]
fn token_of_each_kind_allows_what_it_is_for() {
    let both = tokens("{ read_token_file: read, write_token_file: write }");
    assert_eq!(both.permission(READ.as_bytes()), Some(Permission::Read));
    assert_eq!(both.permission(WRITE.as_bytes()), Some(Permission::Write));
    for wrong in ["", "a", "a-token-to-read-wit", "a-token-to-read-with ", "A-token-to-read-with"] {
        assert_eq!(both.permission(wrong.as_bytes()), None, "{wrong}");
    }
    let read = tokens("{ read_token_file: read }");
    assert_eq!(read.permission(READ.as_bytes()), Some(Permission::Read));
    assert_eq!(read.permission(WRITE.as_bytes()), None);
    let write = tokens("{ write_token_file: write }");
    assert_eq!(write.permission(READ.as_bytes()), None);
    assert_eq!(write.permission(WRITE.as_bytes()), Some(Permission::Write));
}

#[test]
fn tokens_are_replaced_while_the_process_runs() {
    let admin =
        "{ address: 127.0.0.1:1, auth: { read_token_file: read, write_token_file: write } }";
    let running = parse(admin).unwrap();
    let newer = parse_with(admin, READ, "another-token-to-act").unwrap();
    assert_eq!(newer.needing_restart(&running), [""; 0]);
    assert_eq!(newer.renew_tokens(&running).len(), 1);
    assert_eq!(newer.renew_tokens(&running).len(), 0);
    let tokens = running.admin.as_ref().unwrap().tokens.as_ref().unwrap();
    assert_eq!(tokens.permission(WRITE.as_bytes()), None);
    assert_eq!(tokens.permission(b"another-token-to-act"), Some(Permission::Write));

    let off = parse("{ address: 127.0.0.1:1 }").unwrap();
    assert_eq!(off.needing_restart(&running), ["admin"]);
    assert_eq!(off.renew_tokens(&running).len(), 0);
}

#[test]
fn tokens_are_never_shown() {
    let settings =
        parse("{ address: 127.0.0.1:1, auth: { read_token_file: read } }").unwrap().admin;
    assert!(!format!("{settings:?}").contains(READ));
}

#[test]
fn bad_tokens_are_reported_with_their_file() {
    let auth = "{ address: 127.0.0.1:1, auth: { read_token_file: read, write_token_file: write } }";
    let long = "x".repeat(1025);
    for (read, expected) in [
        ("", "3:57 `read` contains no token: make one: openssl rand -hex 32"),
        (
            "fifteen-letters",
            "3:57 `read` contains a token of fewer than 16 characters: make one: openssl rand -hex 32",
        ),
        (
            &long,
            "3:57 `read` contains a token of more than 1024 characters: make one: openssl rand -hex 32",
        ),
        (
            "sixteen letters or more",
            "3:57 `read` contains a token with other characters than visible ASCII: make one: \
             openssl rand -hex 32",
        ),
        (
            WRITE,
            "3:57 `read` contains the token that also acts: write another token into it, or remove \
             this field",
        ),
    ] {
        let problems = parse_with(auth, read, WRITE).unwrap_err();
        assert_eq!(rendered(&problems), [expected], "{read}");
    }
}

#[test]
fn mistakes_are_reported_at_their_places() {
    for (fields, expected) in [
        (
            "auth: {}",
            "3:41 no file with a token: add `write_token_file`, `read_token_file` or both, or write `auth: off`",
        ),
        (
            "auth: { write_token_file: gone }",
            "3:61 cannot read `gone`: No such file or directory (os error 2): write a path from this file's folder",
        ),
        (
            "auth: none",
            "3:41 neither files with tokens nor `off`: write files with tokens, { write_token_file: … }, or off",
        ),
        (
            "auth: { write_token: x }",
            "3:43 unknown field `write_token` in an auth section: did you mean `write_token_file`?",
        ),
        (
            "auth: true",
            "3:41 expected a mapping, found true/false: write `auth: { write_token_file: secrets/admin-write-token }`",
        ),
        ("mode: \"0600\"", "3:41 only a Unix socket has this: remove it"),
        (
            "hosts: [\"a.example:9901\"]",
            "3:43 `a.example:9901` is not a host: write it without a port and without http://: tollgate.internal",
        ),
        (
            "hosts: [\"http://a.example\"]",
            "3:43 `http://a.example` is not a host: write it without a port and without http://: tollgate.internal",
        ),
        (
            "hosts: [\"*.example\"]",
            "3:43 `*.example` is not a host: write a name or an address: tollgate.internal, 10.0.0.7",
        ),
    ] {
        assert_eq!(problems(&format!("{{ address: 127.0.0.1:9901, {fields} }}")), [expected]);
    }
}

#[test]
fn socket_and_hosts_are_taken() {
    let settings =
        parse("{ address: unix:admin.sock, mode: \"0660\", hosts: [A.example, \"::2\"] }");
    let admin = settings.unwrap().admin.unwrap();
    assert_eq!(admin.address.to_string(), "unix:config/admin.sock");
    assert_eq!(admin.mode, 0o660);
    assert_eq!(admin.hosts, ["a.example", "::2"]);
    assert_eq!(admin.tokens, None);
    let settings = parse("{ address: unix:admin.sock }").unwrap();
    assert_eq!(settings.admin.unwrap().mode, 0o600);
}
