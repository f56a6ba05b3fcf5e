//! Events on standard error, as JSON.

use serde_json::Value;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Upstream, get};

fn events(stderr: &[u8]) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text(stderr).lines().map(parse).collect()
}

#[test]
fn json_events_are_one_object_a_line_from_the_first_to_the_last() {
    let upstream = Upstream::start();
    let folder =
        Folder::with_settings(&upstream, "log: { format: json }\naccess_log: { format: json }");
    let (running, address) = Running::serve(&folder);
    send(address, get("/")).assert_status(401);
    running.signal("TERM");
    let output = running.finish();
    assert_exit(&output, 0);
    let events = events(&output.stderr);
    let messages: Vec<&str> =
        events.iter().map(|event| event["message"].as_str().unwrap()).collect();
    assert!(messages.contains(&"listening") && messages.contains(&"stopped"), "{messages:?}");
    for event in &events {
        assert_eq!(event.as_object().unwrap().len(), 5, "{event}");
        assert!(event["time"].as_str().unwrap().ends_with('Z'), "{event}");
        assert!(event["fields"].is_object() && event["level"].is_string(), "{event}");
    }
    let listening = events.iter().find(|event| event["message"] == "listening").unwrap();
    assert_eq!(listening["fields"]["address"], address.to_string());
}
