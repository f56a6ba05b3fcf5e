//! Requests whose limits are of several owners, and so on several nodes of a cluster: all are
//! charged or none.

mod at_once;

use super::callers::{find_counter, primaries, settings};
use crate::support::{Cluster, Policy, Proxy, Redis, Request, Upstream, eventually, get};

/// So many requests an hour of a caller, of an address and to a page: all three on GET, each alone
/// on another method, so that its counter can be made first.
fn policy(upstream: &Upstream, [caller, address, page]: [u32; 3], on_store_error: &str) -> Policy {
    let limits = [
        format!("core: {{ per: caller, rate: {caller}/hour, on_store_error: {on_store_error} }}"),
        format!(
            "address: {{ per: client.ip, rate: {address}/hour, on_store_error: {on_store_error} }}"
        ),
        format!("page: {{ per: path, rate: {page}/hour, on_store_error: {on_store_error} }}"),
    ];
    Policy::before(upstream).limits(&limits.each_ref().map(String::as_str)).routes(&[
        "{ match: { path: /**, methods: [GET] }, limits: [core, address, page] }",
        "{ match: { path: /**, methods: [PUT] }, limits: [core] }",
        "{ match: { path: /**, methods: [DELETE] }, limits: [address] }",
        "{ match: { path: /**, methods: [PATCH] }, limits: [page] }",
    ])
}

fn start(cluster: &Cluster, upstream: &Upstream) -> Proxy {
    let policy = policy(upstream, [5, 8, 20], "closed");
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
    let upstream = Upstream::start();
    let cluster = Cluster::start();
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

/// A request, of many, that makes a counter on this server; and the counter's name.
fn find(
    servers: &[&Redis],
    home: usize,
    proxy: &Proxy,
    request: impl Fn(usize) -> Request,
) -> (usize, String) {
    const MANY: usize = 60;
    let send = |number| {
        proxy.send(request(number)).assert_status(200);
    };
    let mut made = (0..MANY).map(|number| (number, find_counter(servers, || send(number))));
    let found = made.find(|(_, (is, _))| *is == home).expect("each server has some");
    (found.0, found.1.1)
}

/// A caller, an address and a page whose counters are on these servers, and the counters' names.
/// All three have been charged once.
fn find_owners(
    servers: &[&Redis],
    [caller, address, page]: [usize; 3],
    (proxy, salt): (&Proxy, &str),
) -> [(String, String); 3] {
    let named = |(number, counter), name: &dyn Fn(usize) -> String| (name(number), counter);
    let caller_of = |number| format!("{salt}-{number}");
    let address_of = |number| format!("203.0.113.{number}");
    let page_of = |number| format!("/{salt}-{number}");
    let by = |number| Request::new("PUT", "/").by(&caller_of(number));
    let from = |number| Request::new("DELETE", "/").from(&address_of(number));
    let to = |number| Request::new("PATCH", &page_of(number));
    [
        named(find(servers, caller, proxy, by), &caller_of),
        named(find(servers, address, proxy, from), &address_of),
        named(find(servers, page, proxy, to), &page_of),
    ]
}

#[test]
fn owner_whose_node_is_dead_leaves_the_others_as_they_were() {
    const DEAD: usize = 1;
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let proxy = start(&cluster, &upstream);
    let servers = primaries(&cluster);
    let [(lost, _), (address, _), (lost_page, _)] =
        find_owners(&servers, [DEAD, 2, DEAD], (&proxy, "lost"));
    let caller = |number| format!("found-{number}");
    let page = |number| format!("/found-{number}");
    let found = |number| Request::new("PUT", "/").by(&caller(number));
    let found = caller(find(&servers, 0, &proxy, found).0);
    let found_page = |number| Request::new("PATCH", &page(number));
    let found_page = page(find(&servers, 0, &proxy, found_page).0);
    let send = |caller: &str, page: &str| proxy.send(get(page).by(caller).from(&address)).status;
    assert_eq!([send(&lost, &lost_page), send(&found, &found_page)], [200, 200]);
    assert_used(&proxy, &found, &address, [2, 3]);

    // With its replica, so that no server takes its place.
    cluster.node(cluster.replica_of(DEAD)).kill();
    cluster.node(DEAD).kill();
    for _ in 0..3 {
        assert_eq!(send(&lost, &found_page), 503);
        assert_eq!(send(&found, &lost_page), 503);
        assert_used(&proxy, &found, &address, [2, 3]);
    }
    assert_eq!(send(&found, &found_page), 200);
    assert_used(&proxy, &found, &address, [3, 4]);
}
