//! The bounds of connections hold wherever workers serve them.

use crate::support::{
    Door, Policy, Proxy, Upstream,
    frames::{ENHANCE_YOUR_CALM, Frames, PING, frame},
    get,
};

#[test]
fn flood_at_a_listener_for_decisions_ends_its_connection() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&Policy::before(&upstream)]);
    for listener in [0, 1] {
        let mut frames = Frames::open(proxy.asked_at(listener));
        let is_ended = (0..2000).any(|_| !frames.write(frame(PING, 0, 0, [0; 8]).repeat(20)));
        let error = frames.read_end();
        assert!(error.is_none_or(|error| error == ENHANCE_YOUR_CALM), "{error:?}");
        assert!(is_ended || error.is_some(), "listener {listener} never ended it");
    }
}

/// Whether it comes in here, or another proxy tells it.
#[test]
fn head_is_held_to_the_same_size_at_every_door() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&Policy::before(&upstream)]);
    let many = (0..101).fold(get("/"), |asked, at| asked.field(&format!("x-{at}"), "a"));
    for (request, expected) in [
        (many, 431),
        (get("/").field("x-large", &"a".repeat(17 * 1024)), 431),
        (get(&format!("/{}", "a".repeat(9 * 1024))), 414),
        (get(&format!("/{}", "a".repeat(7 * 1024))), 200),
    ] {
        for door in Door::ALL {
            let judged = door.judge(&proxy, &request, "203.0.113.9");
            assert_eq!(judged.status, expected, "{door:?}: {} bytes", request.to_bytes().len());
        }
    }
}

/// More fields than a map of them can hold.
#[test]
fn flood_of_fields_in_a_question_of_envoy_is_refused() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&Policy::before(&upstream)]);
    let many = (0..40_000).fold(get("/"), |asked, at| asked.field(&format!("x{at}"), ""));
    assert_eq!(Door::Envoy.judge(&proxy, &many, "203.0.113.9").status, 400);
    assert_eq!(Door::Envoy.judge(&proxy, &get("/"), "203.0.113.9").status, 200);
}
