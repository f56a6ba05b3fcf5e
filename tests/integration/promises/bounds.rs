//! The bounds of connections hold wherever workers serve them.

use crate::support::{
    Door, Policy, Proxy, Upstream,
    frames::{ENHANCE_YOUR_CALM, Frames, PING, frame},
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
