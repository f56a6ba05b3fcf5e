//! Requests whose limits are of several owners, and so on several nodes of a cluster: all are
//! charged or none.

use super::callers::{find_counter, primaries, settings};
use crate::support::{Cluster, Policy, Proxy, Redis, Request, Upstream, eventually, get};

/// All limits on GET; each alone on another method, so that its counter can be made first.
fn start(cluster: &Cluster, upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 5/hour, on_store_error: closed }",
            "address: { per: client.ip, rate: 8/hour, on_store_error: closed }",
            "page: { per: path, rate: 20/hour, on_store_error: closed }",
        ])
        .routes(&[
            "{ match: { path: /**, methods: [GET] }, limits: [core, address, page] }",
            "{ match: { path: /**, methods: [PUT] }, limits: [core] }",
            "{ match: { path: /**, methods: [DELETE] }, limits: [address] }",
            "{ match: { path: /**, methods: [PATCH] }, limits: [page] }",
        ]);
    Proxy::with_settings(&settings(&cluster.settings()), &[&policy])
}

/// What a caller at an address has used: `core`, `address`.
fn used(proxy: &Proxy, caller: &str, address: &str) -> [u64; 2] {
    let standings = proxy.standings(get("/rate_limit").by(caller).from(address));
    ["core", "address"].map(|limit| standings[limit]["used"].as_u64().unwrap())
}

/// Waits until this is so: what is given back is not waited for, and replicas are behind.
fn assert_used(proxy: &Proxy, caller: &str, address: &str, expected: [u64; 2]) {
    let is_so = || used(proxy, caller, address) == expected;
    eventually(&format!("{caller} at {address} has used {expected:?}"), || is_so().then_some(()));
}

#[test]
fn denial_by_one_owner_gives_back_what_the_others_were_charged() {
    let (upstream, cluster) = (Upstream::start(), Cluster::start());
    let proxy = start(&cluster, &upstream);
    let mut client = proxy.connect();
    let mut send = |caller: &str, address: &str, times: usize| -> Vec<u16> {
        let request = get("/page").by(caller).from(address);
        (0..times).map(|_| client.send(&request).status).collect()
    };
    let [one, two, three, four] = [1, 2, 3, 4].map(|last| format!("203.0.113.{last}"));

    assert_eq!(send("alice", &one, 6), [200, 200, 200, 200, 200, 429]);
    assert_used(&proxy, "alice", &one, [5, 5]);
    assert_eq!(send("bob", &one, 5), [200, 200, 200, 429, 429]);
    assert_used(&proxy, "bob", &one, [3, 8]);
    assert_eq!(send("bob", &two, 3), [200, 200, 429]);
    assert_used(&proxy, "bob", &two, [5, 2]);
    assert_eq!(send("carol", &two, 5), [200; 5]);
    assert_eq!(send("dave", &two, 2), [200, 429]);
    assert_used(&proxy, "dave", &two, [1, 8]);
    assert_eq!(send("dave", &three, 4), [200; 4]);
    // Twenty have passed in all, and the page has no more.
    assert_eq!(send("erin", &four, 3), [429; 3]);
    assert_used(&proxy, "erin", &four, [0, 0]);
    assert_eq!(upstream.count(), 20);
}

/// A value, of many, whose counter is on this server.
fn find(servers: &[&Redis], home: usize, proxy: &Proxy, value: impl Fn(usize) -> Request) -> usize {
    const MANY: usize = 60;
    let request = |number| {
        let response = proxy.send(value(number));
        response.assert_status(200);
    };
    let mut homes = (0..MANY).map(|number| (number, find_counter(servers, || request(number)).0));
    homes.find(|(_, is)| *is == home).expect("each server has some").0
}

#[test]
fn owner_whose_node_is_dead_leaves_the_others_as_they_were() {
    const DEAD: usize = 1;
    let (upstream, cluster) = (Upstream::start(), Cluster::start());
    let proxy = start(&cluster, &upstream);
    let servers = primaries(&cluster);
    let caller = |home, salt: &str| {
        let name = |number| format!("{salt}-{number}");
        name(find(&servers, home, &proxy, |it| Request::new("PUT", "/").by(&name(it))))
    };
    let page = |home, salt: &str| {
        let name = |number| format!("/{salt}-{number}");
        name(find(&servers, home, &proxy, |it| Request::new("PATCH", &name(it))))
    };
    let address = |number| format!("203.0.113.{number}");
    let address =
        address(find(&servers, 2, &proxy, |it| Request::new("DELETE", "/").from(&address(it))));
    let (lost, found) = (caller(DEAD, "lost"), caller(0, "found"));
    let (lost_page, found_page) = (page(DEAD, "lost"), page(0, "found"));
    let send = |caller: &str, page: &str| proxy.send(get(page).by(caller).from(&address)).status;
    assert_eq!([send(&lost, &lost_page), send(&found, &found_page)], [200, 200]);
    assert_used(&proxy, &found, &address, [2, 3]);

    // With its replica: nobody takes its place.
    cluster.node(cluster.replica_of(DEAD)).kill();
    cluster.node(DEAD).kill();
    for _ in 0..3 {
        // Its own counter is charged after the address', and before the page's.
        assert_eq!(send(&lost, &found_page), 503);
        // The page's is charged last.
        assert_eq!(send(&found, &lost_page), 503);
        assert_used(&proxy, &found, &address, [2, 3]);
    }
    assert_eq!(send(&found, &found_page), 200);
    assert_used(&proxy, &found, &address, [3, 4]);
}
