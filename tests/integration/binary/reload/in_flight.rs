//! Requests that are under way, and counters that are in use, while the policy changes.

use super::{ON_REQUEST, Served, with_limit};
use crate::support::{Client, Signal, Upstream, get};

/// How much the user has used after one more request.
fn used(served: &Served) -> u64 {
    served.ask().number("x-ratelimit-used")
}

#[test]
fn request_in_flight_ends_as_it_began_and_its_refund_goes_where_it_was_charged() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let served = Served::start(&upstream, ON_REQUEST);
    let policy = served.policy();
    assert_eq!(used(&served), 1);
    let mut held = Client::connect(served.address);
    held.write(get("/held").revalidating().token(&served.token).to_bytes());
    asked.wait();

    // Another algorithm counts anew.
    let other =
        with_limit(&policy, 500).replace("per: caller,", "per: caller, algorithm: sliding_window,");
    served.folder.write("policies/api.yaml", &other);
    served.reload().assert_status(200);
    assert_eq!((used(&served), served.limit()), (1, 500));
    go.open();
    let unchanged = held.read();
    unchanged.assert_status(304).assert_field("x-ratelimit-limit", "1000");
    unchanged.assert_field("x-ratelimit-used", "1");
    assert_eq!(used(&served), 3, "nothing was given back here");

    served.folder.write("policies/api.yaml", &policy);
    served.reload().assert_status(200);
    assert_eq!(used(&served), 2, "but here");
}

#[test]
fn counters_go_on_under_another_rate() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    let before = served.ask();
    for limit in [2000, 2, 3000] {
        served.folder.write("policies/api.yaml", &with_limit(&served.policy(), limit));
        served.reload().assert_status(200);
        served.ask();
    }
    let after = served.ask();
    after.assert_field("x-ratelimit-used", "4");
    assert_eq!(after.field("x-ratelimit-reset"), before.field("x-ratelimit-reset"));
}

#[test]
fn connections_stay() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    let mut client = Client::connect(served.address);
    client.send(&get("/").token(&served.token)).assert_status(200);
    for limit in 2001..2005 {
        served.folder.write("policies/api.yaml", &with_limit(&served.policy(), limit));
        served.reload().assert_status(200);
        let response = client.send(&get("/").token(&served.token));
        response.assert_field("x-ratelimit-limit", &limit.to_string());
    }
    assert_eq!(upstream.connections(), 1);
}
