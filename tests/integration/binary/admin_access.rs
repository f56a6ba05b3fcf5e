//! Who may use the admin listener: tokens, pages of other origins, and the commands that ask it.

use std::{
    fs,
    io::{Read, Write},
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    process::{Command, Output},
};

use serde_json::Value;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Request, Upstream, delete, eventually, get, post};

const READ: &str = "a-token-to-read-with";
const WRITE: &str = "a-token-to-act-with";

/// With tokens, beside the settings.
const AUTH: &str = "auth: { read_token_file: read, write_token_file: write }";

struct Served {
    folder: Folder,
    running: Running,
    admin: SocketAddr,
    // Answers what is forwarded.
    _upstream: Upstream,
}

impl Served {
    /// With an admin listener of these fields.
    fn with(fields: &str) -> Served {
        let upstream = Upstream::start();
        let settings = format!("admin: {{ address: \"127.0.0.1:0\", {fields} }}");
        let folder = Folder::with_settings(&upstream, &settings);
        write_secret(&folder, "read", READ);
        write_secret(&folder, "write", WRITE);
        let (mut running, _) = Running::serve(&folder);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        Served { folder, running, admin, _upstream: upstream }
    }

    fn status_of(&self, request: Request) -> u16 {
        send(self.admin, request).status
    }
}

/// With a line break at its end, and closed to others.
fn write_secret(folder: &Folder, name: &str, secret: &str) {
    folder.write(name, &format!("{secret}\n"));
    let file = folder.path().join(name);
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

fn local(request: Request) -> Request {
    request.host("localhost")
}

fn reload() -> Request {
    local(post("/reload", "")).field("x-tollgate-action", "1")
}

fn explain() -> Request {
    let question = "{\"method\": \"GET\", \"url\": \"/\"}";
    local(post("/explain", question)).field("content-type", "application/json")
}

#[test]
fn each_endpoint_wants_the_token_for_it() {
    let served = Served::with(AUTH);
    for (path, request) in [
        ("/status", local(get("/status"))),
        ("/metrics", local(get("/metrics"))),
        ("/openapi.json", local(get("/openapi.json"))),
        ("/explain", explain()),
    ] {
        let without = send(served.admin, request.clone());
        without.assert_status(401).assert_field("www-authenticate", "Bearer realm=\"tollgate\"");
        assert_eq!(served.status_of(request.clone().token(READ)), 200, "{path}");
        assert_eq!(served.status_of(request.clone().token(WRITE)), 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        send(served.admin, local(get(path))).assert_status(200);
        // A token makes no difference, so none can be tried here.
        send(served.admin, local(get(path)).token("wrong")).assert_status(200);
    }
    send(served.admin, reload()).assert_status(401);
    let reads = send(served.admin, reload().token(READ));
    reads.assert_status(403);
    reads.assert_field("www-authenticate", "Bearer error=\"insufficient_scope\"");
    let status = send(served.admin, local(get("/status")).token(READ)).json();
    assert_eq!(status["reloads"]["done"], 0);
    send(served.admin, reload().token(WRITE)).assert_status(200);
    let wrong = send(served.admin, reload().token("a-token-to-act-witH"));
    wrong.assert_status(401).assert_field("www-authenticate", "Bearer error=\"invalid_token\"");
    assert!(!wrong.text().contains("a-token"), "{}", wrong.text());
}

/// Prometheus and probes have an address of their own.
#[test]
fn metrics_at_their_own_address_need_no_token_and_nothing_else_is_there() {
    let mut served = Served::with(&format!("metrics: \"127.0.0.1:0\", {AUTH}"));
    let line = served.running.wait_for_event("metrics are served");
    let metrics: SocketAddr = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
    assert_eq!(served.status_of(local(get("/metrics"))), 401);
    let scraped = send(metrics, local(get("/metrics"))).assert_status(200).text();
    assert!(scraped.contains("\ntollgate_ready 1\n"), "{scraped}");
    send(metrics, local(get("/healthz"))).assert_status(200);
    send(metrics, local(get("/readyz"))).assert_status(200);
    for path in ["/", "/status", "/callers", "/callers/user%3A42", "/denials", "/events", "/fleet"]
    {
        send(metrics, local(get(path)).token(WRITE)).assert_status(404);
    }
    send(metrics, reload().token(WRITE)).assert_status(404);
    send(metrics, explain().token(WRITE)).assert_status(404);
    send(metrics, get("/metrics").host("evil.example")).assert_status(403);
    let page = local(get("/metrics")).field("sec-fetch-site", "cross-site");
    send(metrics, page).assert_status(403);
}

#[test]
fn tokens_come_in_one_field_of_one_scheme() {
    let served = Served::with(AUTH);
    let status = |value: &str| local(get("/status")).field("authorization", value);
    for good in [format!("bearer {READ}"), format!("Bearer  {READ}")] {
        assert_eq!(served.status_of(status(&good)), 200, "{good}");
    }
    let two = status(&format!("Bearer {READ}")).field("authorization", &format!("Bearer {READ}"));
    assert_eq!(served.status_of(two), 401);
    assert_eq!(served.status_of(status(&format!("Basic {READ}"))), 401);
    assert_eq!(served.status_of(status(READ)), 401);
}

/// How long a second is, is tested beside the code; here four requests take less.
#[test]
fn wrong_tokens_cannot_be_tried_without_end() {
    let served = Served::with(AUTH);
    let wrong = || local(get("/status")).token("another-token-to-read");
    let answered = || {
        let statuses: Vec<u16> = (0..50).map(|_| served.status_of(wrong())).collect();
        let refused = statuses.iter().position(|status| *status == 429)?;
        assert!(statuses[..refused].iter().all(|status| *status == 401), "{statuses:?}");
        // A right one does not show that the others were wrong.
        let right = send(served.admin, local(get("/status")).token(READ));
        (right.status == 429).then_some(right)
    };
    let right = eventually("it is too often", answered);
    right.assert_field("retry-after", "1");
    // Who sends none tries none, and probes go on.
    send(served.admin, local(get("/status"))).assert_status(401);
    send(served.admin, local(get("/healthz"))).assert_status(200);
    eventually("the second is over", || {
        (served.status_of(local(get("/status")).token(READ)) == 200).then_some(())
    });
}

#[test]
fn one_token_may_be_enough() {
    let served = Served::with("auth: { read_token_file: read }");
    send(served.admin, local(get("/status")).token(READ)).assert_status(200);
    send(served.admin, reload().token(READ)).assert_status(403);
    send(served.admin, reload().token(WRITE)).assert_status(401);
    let served = Served::with("auth: { write_token_file: write }");
    send(served.admin, local(get("/status")).token(READ)).assert_status(401);
    send(served.admin, local(get("/status")).token(WRITE)).assert_status(200);
    send(served.admin, reload().token(WRITE)).assert_status(200);
}

#[test]
fn pages_of_other_origins_can_neither_read_nor_act() {
    for served in [Served::with("hosts: [tollgate.internal]"), Served::with(AUTH)] {
        let admin = served.admin;
        let own = admin.to_string();
        let paths = ["/healthz", "/readyz", "/status", "/metrics", "/openapi.json", "/nothing"];
        for path in paths {
            let read = || get(path).token(WRITE);
            // Its name leads here now (DNS rebinding).
            for host in ["evil.example", "evil.example:9901", "127.0.0.1.evil.example", "other"] {
                send(admin, read().host(host)).assert_status(403);
            }
            for site in ["cross-site", "same-site"] {
                send(admin, read().host(&own).field("sec-fetch-site", site)).assert_status(403);
            }
            for origin in ["http://evil.example", "null", "http://localhost:1"] {
                send(admin, read().host(&own).field("origin", origin)).assert_status(403);
            }
        }
        let act = || post("/reload", "").token(WRITE);
        for request in [
            // What a form sends, and what a script sends without asking first.
            act().host(&own),
            act().host(&own).field("content-type", "application/x-www-form-urlencoded"),
            act().host(&own).field("content-type", "multipart/form-data; boundary=x"),
            act().host(&own).field("content-type", "text/plain"),
            act().host(&own).field("x-tollgate-action", "1").field("origin", "http://evil.example"),
            act().host(&own).field("x-tollgate-action", "1").field("sec-fetch-site", "same-site"),
            act().host("evil.example").field("x-tollgate-action", "1"),
        ] {
            send(admin, request).assert_status(403);
        }
        // A script asks first whether it may.
        let asking = Request::new("OPTIONS", "/reload")
            .host(&own)
            .field("origin", "http://evil.example")
            .field("access-control-request-method", "POST")
            .field("access-control-request-headers", "x-tollgate-action");
        send(admin, asking).assert_status(403);
        let status = send(admin, local(get("/status")).token(READ)).json();
        assert_eq!(status["reloads"]["done"], 0);

        // A page of its own may.
        let page = act().host(&own).field("x-tollgate-action", "1");
        let page = page.field("origin", &format!("http://{own}"));
        send(admin, page.field("sec-fetch-site", "same-origin")).assert_status(200);
    }
}

#[test]
fn listed_hosts_may_be_asked() {
    let served = Served::with("hosts: [tollgate.internal, 192.0.2.9]");
    for host in ["tollgate.internal:9901", "TOLLGATE.internal", "192.0.2.9", "127.0.0.1"] {
        send(served.admin, get("/status").host(host)).assert_status(200);
    }
    send(served.admin, get("/status").host("192.0.2.10")).assert_status(403);
}

#[test]
fn each_answer_keeps_to_its_origin() {
    let served = Served::with(AUTH);
    let large = "x".repeat(65 * 1024);
    for (request, status) in [
        (local(get("/healthz")), 200),
        (local(get("/status")), 401),
        (local(get("/status")).token(READ), 200),
        (local(get("/metrics")).token(READ), 200),
        (local(get("/nothing")), 404),
        (local(delete("/status")), 405),
        (local(post("/reload", "")), 403),
        (local(post("/reload", large)).field("x-tollgate-action", "1").token(WRITE), 413),
        (get("/status").host("evil.example"), 403),
    ] {
        let answer = send(served.admin, request.field("origin", "http://localhost"));
        answer.assert_status(status);
        answer.assert_field("x-content-type-options", "nosniff");
        answer.assert_field("cross-origin-resource-policy", "same-origin");
        answer.assert_field("cache-control", "no-store");
        for field in ["origin", "credentials", "methods", "headers"] {
            answer.assert_no_field(&format!("access-control-allow-{field}"));
        }
    }
}

#[test]
fn new_tokens_are_taken_over_by_a_reload_and_bad_ones_are_not() {
    let mut served = Served::with(AUTH);
    write_secret(&served.folder, "write", "short");
    let refused = send(served.admin, reload().token(WRITE));
    refused.assert_status(422);
    assert!(refused.text().contains("`write` contains a token of fewer than 16"), "{refused:?}");
    write_secret(&served.folder, "write", "another-token-to-act-with");
    send(served.admin, reload().token(WRITE)).assert_status(200);
    served.running.wait_for_event("other tokens are good from now on");
    send(served.admin, reload().token(WRITE)).assert_status(401);
    send(served.admin, reload().token("another-token-to-act-with")).assert_status(200);
    send(served.admin, local(get("/status")).token(READ)).assert_status(200);
}

#[test]
fn who_acts_and_who_tries_is_logged_without_tokens() {
    let served = Served::with(AUTH);
    send(served.admin, reload().token(WRITE)).assert_status(200);
    send(served.admin, local(get("/status")).token("not-the-token-to-read")).assert_status(401);
    served.running.signal("TERM");
    let output = served.running.finish();
    let log = text(&output.stderr);
    assert!(
        log.contains("asked to act at the admin listener peer=127.0.0.1 path=\"/reload\""),
        "{log}"
    );
    assert!(log.contains("a wrong token was sent to the admin listener peer=127.0.0.1"), "{log}");
    for token in [READ, WRITE, "not-the-token-to-read"] {
        assert!(!log.contains(token), "{log}");
    }
}

#[test]
fn details_of_readiness_are_for_those_who_may_read() {
    let upstream = Upstream::start();
    let store = "store: { redis: { url: \"redis://127.0.0.1:1\" } }";
    for (auth, has_details) in [("auth: off", true), (AUTH, false)] {
        let admin =
            format!("admin: {{ address: 127.0.0.1:0, {auth}, ready: {{ store: require }} }}");
        let folder = Folder::with_settings(&upstream, &format!("{admin}\n{store}"));
        write_secret(&folder, "read", READ);
        write_secret(&folder, "write", WRITE);
        let (mut running, _) = Running::serve(&folder);
        let line = running.wait_for_event("admin listener is open");
        let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        let ready = send(admin, local(get("/readyz")));
        ready.assert_status(503);
        let reasons = ready.json()["reasons"].clone();
        let without = serde_json::json!(["something that it needs is away: see /status"]);
        assert_eq!(reasons != without, has_details, "{reasons}");
    }
}

#[test]
fn commands_send_the_token_that_is_needed() {
    let served = Served::with(AUTH);
    let admin = served.admin.to_string();
    let folder = &served.folder;
    let by_variable = |file: &str, arguments: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(arguments).args(["--admin", &admin]).env("TOLLGATE_ADMIN_TOKEN_FILE", file);
        Running::start_by(folder, command).finish()
    };
    let by_option = |file: &str, arguments: &[&str]| -> Output {
        folder.run(&[arguments, &["--admin", &admin, "--token-file", file]].concat())
    };
    let explain = ["explain", "GET", "/"];
    for ask in [&by_variable as &dyn Fn(&str, &[&str]) -> Output, &by_option] {
        for (file, arguments, code) in [
            ("read", &["status"][..], 0),
            ("write", &["status"], 0),
            ("read", &explain, 0),
            ("write", &["reload"], 0),
            ("read", &["reload"], 1),
        ] {
            assert_exit(&ask(file, arguments), code);
        }
    }
    let output = by_option("read", &["reload"]);
    assert!(text(&output.stderr).contains("the answer is 403: this token allows only to read"));
    for arguments in [&["status"][..], &["reload"], &explain] {
        let output = folder.run(&[arguments, &["--admin", &admin]].concat());
        assert_exit(&output, 1);
        let printed = text(&output.stderr);
        assert!(printed.contains("the answer is 401: a token is needed"), "{printed}");
        assert!(printed.contains("--token-file or TOLLGATE_ADMIN_TOKEN_FILE"), "{printed}");
    }
    let output = by_option("gone", &["status"]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("cannot read the token in gone"), "{output:?}");
    folder.write("empty", "\n");
    let output = by_option("empty", &["status"]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("empty contains no token"), "{output:?}");
    let output = folder.run(&["explain", "GET", "/", "--token-file", "read"]);
    assert_exit(&output, 64);
}

#[test]
fn settings_name_the_tokens_for_commands_on_the_same_machine() {
    let served = Served::with(AUTH);
    let settings = "version: 1\nlisteners: [{ address: 127.0.0.1:1 }]\n";
    let admin = format!("admin: {{ address: \"{}\", {AUTH} }}\n", served.admin);
    served.folder.write("other.yaml", &format!("{settings}{admin}"));
    for command in ["health", "status", "reload"] {
        assert_exit(&served.folder.run(&[command, "--config", "other.yaml"]), 0);
    }
}

#[test]
fn settings_beside_an_admin_address_give_the_token() {
    let served = Served::with(AUTH);
    let admin = served.admin.to_string();
    let unreachable = format!("admin: {{ address: \"127.0.0.1:1\", {AUTH} }}");
    let listeners = "version: 1\nlisteners: [{ address: 127.0.0.1:1 }]";
    served.folder.write("other.yaml", &format!("{listeners}\n{unreachable}\n"));
    for command in [&["status"][..], &["reload"], &["top"], &["explain", "GET", "/"]] {
        let place = ["--admin", &admin, "--config", "other.yaml"];
        assert_exit(&served.folder.run(&[command, &place].concat()), 0);
        let output = served.folder.run(&[command, &place[..2]].concat());
        assert!(text(&output.stderr).contains("a token is needed"), "{output:?}");
    }
}

#[test]
fn address_that_others_reach_is_refused_without_auth() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, "admin: { address: \"0.0.0.0:0\" }");
    for arguments in [["check", "tollgate.yaml"].as_slice(), &["run", "--config", "tollgate.yaml"]]
    {
        let output = folder.run(arguments);
        assert_exit(&output, 64);
        let printed = text(&output.stderr);
        assert!(
            printed.contains("tollgate.yaml:4:19: other machines reach this address"),
            "{printed}"
        );
        assert!(printed.contains("`auth: off` if the network keeps others away"), "{printed}");
    }
}

#[test]
fn listener_on_all_addresses_is_asked_with_a_token_by_loopback_too() {
    let upstream = Upstream::start();
    for (auth, status) in [(AUTH, 401), ("auth: off", 200)] {
        let admin = format!("admin: {{ address: \"0.0.0.0:0\", {auth} }}");
        let folder = Folder::with_settings(&upstream, &admin);
        write_secret(&folder, "read", READ);
        write_secret(&folder, "write", WRITE);
        let (mut running, _) = Running::serve(&folder);
        let line = running.wait_for_event("admin listener is open");
        let open: SocketAddr = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        let admin: SocketAddr = format!("127.0.0.2:{}", open.port()).parse().unwrap();
        // By the address at which the client has come in.
        send(admin, get("/status").host(&admin.to_string())).assert_status(status);
        send(admin, get("/healthz").host(&admin.to_string())).assert_status(200);
        send(admin, get("/status").host("192.0.2.1")).assert_status(403);
        if status == 200 {
            running.wait_for_event("the admin listener needs no token: restrict network access");
        }
    }
}

#[test]
fn unix_socket_is_for_its_user() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, "admin: { address: \"unix:admin.sock\" }");
    let (mut running, _) = Running::serve(&folder);
    running.wait_for_event("admin listener is open");
    let socket = folder.path().join("admin.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let ask = |host: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("localhost").starts_with("HTTP/1.1 200 "));
    assert!(ask("evil.example").starts_with("HTTP/1.1 403 "));
    for command in ["health", "status", "reload"] {
        assert_exit(&folder.run(&[command, "--config", "tollgate.yaml"]), 0);
    }
    for command in ["status", "reload"] {
        assert_exit(&folder.run(&[command, "--admin", "unix:admin.sock"]), 0);
    }
    let output = folder.run(&["explain", "GET", "/", "--admin", "unix:admin.sock"]);
    assert_exit(&output, 0);
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
    assert!(!socket.exists());
}

#[test]
fn description_names_every_endpoint_and_how_it_answers() {
    let served = Served::with(AUTH);
    let description = send(served.admin, local(get("/openapi.json")).token(READ)).json();
    assert_eq!(description["openapi"], "3.1.0");
    let mut seen = Vec::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (verb, operation) in operations.as_object().unwrap() {
            seen.push(format!("{verb} {path}"));
            assert_described(&served, path, verb, operation);
        }
        // What is not described is not there.
        let described: Vec<&str> =
            operations.as_object().unwrap().keys().map(String::as_str).collect();
        for (verb, method) in [("get", "GET"), ("post", "POST"), ("put", "PUT")] {
            let request = local(Request::new(method, path)).field("x-tollgate-action", "1");
            let is_there = served.status_of(request) != 405;
            assert_eq!(is_there, described.contains(&verb), "{method} {path}");
        }
    }
    assert_eq!(
        seen,
        [
            "get /",
            "get /callers",
            "get /callers/{name}",
            "post /callers/{name}/reset",
            "get /dashboard.css",
            "get /dashboard.js",
            "get /denials",
            "get /events",
            "post /explain",
            "get /fleet",
            "get /healthz",
            "get /history",
            "get /icon.svg",
            "get /metrics",
            "get /openapi.json",
            "get /readyz",
            "post /reload",
            "get /status",
            "post /store/backup",
            "post /store/check",
            "post /store/compact"
        ]
    );
}

/// Whether it wants the tokens that it says, and answers as it says.
fn assert_described(served: &Served, path: &str, verb: &str, operation: &Value) {
    let request = || match verb {
        // The events have no end.
        "get" if path == "/events" => local(Request::new("HEAD", path)),
        "get" => local(get(path)),
        _ => local(post(path, "{}")).field("x-tollgate-action", "1"),
    };
    let security = operation["security"].as_array().unwrap();
    let takes = |scheme: &str| security.iter().any(|one| one.get(scheme).is_some());
    for (token, is_taken) in [
        (None, security.is_empty()),
        (Some(READ), security.is_empty() || takes("read")),
        (Some(WRITE), true),
    ] {
        let answer = match token {
            None => send(served.admin, request()),
            Some(token) => send(served.admin, request().token(token)),
        };
        let is_refused = matches!(answer.status, 401 | 403);
        assert_eq!(!is_refused, is_taken, "{verb} {path} with {token:?}: {}", answer.status);
        let described = &operation["responses"][answer.status.to_string()];
        let content_type = answer.field("content-type").unwrap();
        // What is in it, tests/schema/admin.py holds against the schema.
        let schema = &described["content"][content_type]["schema"];
        assert!(schema.is_object(), "{verb} {path}: {}", answer.status);
    }
}
