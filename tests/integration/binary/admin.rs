//! The admin listener, as orchestrators, Prometheus and people use it, and who else tries.

use std::net::SocketAddr;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Client, Request, Signal, Upstream, delete, get, options, post};

/// A program with an admin listener.
fn serve(upstream: &Upstream) -> (Folder, Running, SocketAddr, SocketAddr) {
    serve_folder(Folder::with_settings(upstream, ADMIN))
}

/// The same with this policy, where `UPSTREAM` stands for the upstream's address.
pub(super) fn serve_policy(
    upstream: &Upstream,
    policy: &str,
) -> (Folder, Running, SocketAddr, SocketAddr) {
    let folder = Folder::with_settings(upstream, ADMIN);
    folder.write("policies/api.yaml", &policy.replace("UPSTREAM", &upstream.url()));
    serve_folder(folder)
}

const ADMIN: &str = "admin: { address: 127.0.0.1:0 }";

fn serve_folder(folder: Folder) -> (Folder, Running, SocketAddr, SocketAddr) {
    let (mut running, address) = Running::serve(&folder);
    let admin = admin_of(&mut running);
    (folder, running, address, admin)
}

/// The address of the admin listener, as the program says it when it begins to serve.
pub(super) fn admin_of(running: &mut Running) -> SocketAddr {
    let line = running.wait_for_event("admin listener is open");
    line.split("address=").nth(1).unwrap().trim().parse().unwrap()
}

fn local(request: Request) -> Request {
    request.host("localhost")
}

#[test]
fn health_status_and_metrics_are_served() {
    let upstream = Upstream::start();
    let (_folder, _running, _, admin) = serve(&upstream);
    for (path, kind, expected) in [
        ("/healthz", "application/json", "\"reload\": \"ok\""),
        ("/readyz", "application/json", "\"status\": \"serving\""),
        ("/status", "application/json", "\"generation\": 1"),
        (
            "/metrics",
            "text/plain; version=0.0.4; charset=utf-8",
            "\ntollgate_config_generation 1\n",
        ),
    ] {
        let response = send(admin, local(get(path)));
        response.assert_status(200).assert_field("content-type", kind);
        response.assert_field("cache-control", "no-store");
        assert!(response.text().contains(expected), "{path}: {}", response.text());
    }
}

#[test]
fn silent_connections_keep_no_others_out() {
    let upstream = Upstream::start();
    let (_folder, _running, _, admin) = serve(&upstream);
    let mut silent: Vec<Client> = (0..100).map(|_| Client::connect(admin)).collect();
    for client in &mut silent {
        client.write("GET /healthz HTTP/1.1\r\nHo");
        send(admin, local(get("/healthz"))).assert_status(200);
    }
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let upstream = Upstream::start();
    let (_folder, _running, _, admin) = serve(&upstream);
    let metrics = send(admin, local(get("/metrics"))).text();
    let mut types = std::collections::HashSet::new();
    for line in metrics.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let name = kind.split(' ').next().unwrap();
            assert!(types.insert(name.to_owned()), "{name} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"].iter();
            let family = of_histogram.filter_map(|suffix| name.strip_suffix(suffix));
            let is_known = family.chain([name]).any(|family| types.contains(family));
            assert!(is_known, "{name} has no type");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    for result in ["given", "withheld"] {
        let series = format!("\ntollgate_refunds_total{{result=\"{result}\"}} 0\n");
        assert!(metrics.contains(&series), "{series}{metrics}");
    }
    for reason in ["away", "busy", "timeout", "lost", "refused", "bad_reply"] {
        let series = format!("\ntollgate_store_unanswered_total{{reason=\"{reason}\"}} 0\n");
        assert!(metrics.contains(&series), "{series}{metrics}");
    }
}

#[test]
fn what_is_asked_for_wrongly_is_refused() {
    let upstream = Upstream::start();
    let (_folder, _running, _, admin) = serve(&upstream);
    send(admin, local(get("/nothing"))).assert_status(404);
    send(admin, local(get("/status/x"))).assert_status(404);
    for request in [post("/status", ""), delete("/healthz"), options("/metrics")] {
        send(admin, local(request)).assert_status(405).assert_field("allow", "GET, HEAD");
    }
    send(admin, local(get("/reload"))).assert_status(405).assert_field("allow", "POST");
    let large = "x".repeat(65 * 1024);
    let large = local(post("/reload", large)).field("x-tollgate-action", "1");
    send(admin, large).assert_status(413);
    assert_eq!(send(admin, local(get("/status"))).json()["reloads"]["done"], 0);
}

#[test]
fn keys_that_were_never_fetched_are_told_and_may_make_it_not_ready() {
    let upstream = Upstream::start();
    for (ready, expected) in [("", 200), (", ready: { keys: require }", 503)] {
        let admin = format!("admin: {{ address: 127.0.0.1:0{ready} }}");
        let folder = Folder::with_settings(&upstream, &admin);
        let file = folder.path().join("policies/api.yaml");
        let policy = std::fs::read_to_string(&file).unwrap().replace("HS256", "EdDSA");
        let dead = "jwks_url: \"https://127.0.0.1:1/jwks\"";
        std::fs::write(file, policy.replace("secret_file: ../secret", dead)).unwrap();
        let (_folder, _running, _, admin) = serve_folder(folder);
        let answer = send(admin, local(get("/readyz")));
        answer.assert_status(expected);
        assert_eq!(answer.text().contains("/jwks were never fetched"), expected == 503);
        let status = send(admin, local(get("/status"))).json();
        let problem = status["remote_keys"][0]["problem"].as_str().unwrap();
        assert!(problem.starts_with("there never were any: requests with tokens"), "{problem}");
    }
}

#[test]
fn who_drains_is_alive_and_not_ready() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let (folder, running, address, admin) = serve(&upstream);
    let mut idle = Client::connect(address);
    let mut busy = Client::connect(address);
    let token = folder.token(&["--sub", "42"]);
    busy.write(get("/").token(&token).to_bytes());
    asked.wait();
    running.signal("TERM");
    idle.assert_closed();
    let ready = send(admin, local(get("/readyz")));
    assert_eq!((ready.status, &ready.json()["status"]), (503, &"draining".into()));
    send(admin, local(get("/healthz"))).assert_status(200);
    go.open();
    busy.read().assert_status(200);
    assert_exit(&running.finish(), 0);
}

#[test]
fn clients_that_are_stuck_hold_up_neither_traffic_nor_the_end() {
    let upstream = Upstream::start();
    let (folder, running, address, admin) = serve(&upstream);
    let token = folder.token(&["--sub", "42"]);
    let mut stuck: Vec<Client> = (0..100).map(|_| Client::connect(admin)).collect();
    stuck.iter_mut().for_each(|client| client.write("GET /sta"));
    send(address, get("/").token(&token)).assert_status(200);
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
}

#[test]
fn settings_say_where_status_and_health_ask() {
    let upstream = Upstream::start();
    let (folder, running, _, admin) = serve(&upstream);
    let settings = "version: 1\nlisteners: [{ address: 127.0.0.1:1 }]\n";
    folder.write("other.yaml", &format!("{settings}admin: {{ address: \"{admin}\" }}\n"));
    let health = folder.run(&["health", "--config", "other.yaml"]);
    assert_exit(&health, 0);
    assert_eq!(text(&health.stdout), format!("{admin} is healthy\n"));
    assert_exit(&folder.run(&["status", "--config", "other.yaml"]), 0);

    // An operator who looks for what is wrong with the settings may have only bad ones.
    folder
        .write("bad.yaml", &format!("{settings}colour: red\nadmin: {{ address: \"{admin}\" }}\n"));
    let status = folder.run(&["status", "--config", "bad.yaml"]);
    assert_exit(&status, 0);
    assert!(text(&status.stdout).contains("generation 1"), "{status:#?}");

    folder.write("none.yaml", settings);
    let status = folder.run(&["status", "--config", "none.yaml"]);
    assert_exit(&status, 1);
    assert!(text(&status.stderr).contains("names no admin listener"), "{status:#?}");

    running.signal("TERM");
    assert_exit(&running.finish(), 0);
    for command in ["health", "status", "reload"] {
        let output = folder.run(&[command, "--config", "other.yaml"]);
        assert_exit(&output, 1);
        assert!(text(&output.stderr).contains("Connection refused"), "{output:#?}");
    }
}

#[test]
fn server_that_is_no_admin_listener_is_recognized() {
    let server = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let folder = Folder::before(&server);
    let address = server.url().replace("http://", "");
    let output = folder.run(&["status", "--admin", &address]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("is no admin listener"), "{output:#?}");
}
