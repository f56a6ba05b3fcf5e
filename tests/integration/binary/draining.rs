//! The end that a signal brings, and how it is cut short.

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Client, Signal, Upstream, eventually, get};

#[test]
fn second_signal_cuts_what_is_in_flight() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let folder = Folder::with_settings(&upstream, "drain: 1h");
    let token = folder.token(&["--sub", "42"]);
    let (mut running, address) = Running::serve(&folder);
    let mut busy = Client::connect(address);
    busy.write(get("/").token(&token).to_bytes());
    asked.wait();
    running.signal("TERM");
    running.wait_for_event("draining");
    running.signal("INT");
    let output = running.finish();
    assert_exit(&output, 0);
    assert!(text(&output.stderr).contains("cut=1"), "{output:#?}");
    busy.assert_closed();
    go.open();
}

#[test]
fn readiness_goes_first_and_requests_are_served_until_the_delay_is_over() {
    let upstream = Upstream::start();
    let settings = "admin: { address: 127.0.0.1:0 }\ndrain_delay: 1h";
    let folder = Folder::with_settings(&upstream, settings);
    let token = folder.token(&["--sub", "42"]);
    let (mut running, address) = Running::serve(&folder);
    let admin = running.wait_for_event("admin listener is open");
    let admin = admin.split("address=").nth(1).unwrap().trim().parse().unwrap();
    send(admin, get("/readyz").host("localhost")).assert_status(200);
    running.signal("TERM");
    eventually("it is not ready", || {
        (send(admin, get("/readyz").host("localhost")).status == 503).then_some(())
    });
    send(address, get("/").token(&token)).assert_status(200);
    // Twice is for those who do not want to wait.
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
}
