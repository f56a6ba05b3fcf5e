//! What `tollgate run` prints about requests, and what it never prints.

use serde_json::Value;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{SECRET, Upstream, get};

/// What is logged of a good request, a bad token, a token in a cookie and a path that cannot be.
fn logged(format: &str) -> String {
    let upstream = Upstream::start();
    let settings = format!("access_log: {{ format: {format} }}");
    let folder = Folder::with_settings(&upstream, &settings);
    let token = folder.token(&["--sub", "42", "--plan", "pro"]);
    let (running, address) = Running::serve(&folder);
    send(address, get("/x?secret=query").token(&token)).assert_status(200);
    send(address, get("/y").token(&format!("{token}x"))).assert_status(401);
    send(address, get("/y").field("cookie", &token).token(&token)).assert_status(200);
    send(address, get("/a/%00")).assert_status(400);
    running.signal("TERM");
    let output = running.finish();
    assert_exit(&output, 0);
    let everything = format!("{}{}", text(&output.stdout), text(&output.stderr));
    for part in token.split('.').chain(["secret=query", SECRET]) {
        assert!(!everything.contains(part), "{part} is in\n{everything}");
    }
    text(&output.stdout).to_owned()
}

#[test]
fn json_lines_tell_all_and_no_secret() {
    let log = logged("json");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4, "{log}");
    let good = &lines[0];
    for (field, expected) in [
        ("client", Value::from("127.0.0.1")),
        ("caller", "user:42".into()),
        ("tier", "pro".into()),
        ("method", "GET".into()),
        ("path", "/x".into()),
        ("route", "/**".into()),
        ("status", 200.into()),
        ("limit", "core".into()),
        ("used", 1.into()),
        ("of", 20.into()),
    ] {
        assert_eq!(good[field], expected, "{field} of {good}");
    }
    assert!(good["upstream_ms"].is_f64() && good["total_ms"].is_f64(), "{good}");
    assert_eq!(good["request_id"].as_str().unwrap().len(), 32);
    assert!(good["time"].as_str().unwrap().ends_with('Z'));
    let bad = &lines[1];
    assert_eq!((&bad["status"], &bad["caller"]), (&401.into(), &Value::Null));
    assert_eq!(lines[3]["status"], 400);
}

#[test]
fn text_lines_tell_all_and_no_secret() {
    let log = logged("text");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    assert!(lines[0].contains(" 127.0.0.1 user:42 pro GET /x route=/** 200 core=1/20 "), "{log}");
    assert!(lines[1].contains(" 127.0.0.1 - - GET /y route=/** 401 "), "{log}");
    assert!(lines[3].contains(" 400 "), "{log}");
}

#[test]
fn log_may_be_off() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, "access_log: { format: \"off\" }");
    let (running, address) = Running::serve(&folder);
    send(address, get("/")).assert_status(401);
    running.signal("TERM");
    assert_eq!(text(&running.finish().stdout), "");
}
