//! One address that shows tokens without end, and the callers at other addresses, with no limit in
//! the policy that would stop it.

use serde_json::json;

use crate::support::{
    Answer, Authority, Client, INTROSPECTION, IssuerKey, JWKS, Policy, Proxy, SECOND, Signal,
    Upstream, eventually,
    frames::{END_STREAM, Frames, GET, head, reset},
    get,
};

/// Requests of the flood, each with a token of its own.
const FLOOD: usize = 400;
/// Tokens of an address that its issuer is asked about at once, and those that wait for that.
const SHARE: usize = 16;
const WAITING: usize = 128;

/// Clients behind a proxy that says who they are.
const SETTINGS: &str = "workers: 2\ntrusted_proxies: [127.0.0.1]";

/// Opaque tokens, of which the authority knows those that are good.
fn asking(authority: &Authority, upstream: &Upstream) -> Policy {
    let introspection = format!(
        "introspection: {{ url: \"{}\", client_id: tollgate, client_secret_env: TEST_SECRET, \
         timeout: 30s }}",
        authority.url(INTROSPECTION)
    );
    Policy::before(upstream)
        .identity(&[&introspection])
        .routes(&["{ match: { path: /** }, auth: required, limits: [] }"])
}

/// An authority that knows twelve tokens and takes its time for those of the flood.
fn slow_authority(go: &Signal) -> Authority {
    let authority = Authority::start();
    for number in 0..12 {
        authority.know_token(&format!("good-{number}"), json!({ "sub": number.to_string() }));
    }
    authority.answer(INTROSPECTION, Answer::HeldFor("token=flood", go.clone()));
    authority
}

/// Sends the flood, each request on a connection of its own, and reads no answer.
fn flood(proxy: &Proxy, address: impl Fn(usize) -> String) -> Vec<Client> {
    let send = |number| {
        let mut client = proxy.connect();
        let request = get("/").token(&format!("flood-{number}")).from(&address(number));
        client.write(request.to_bytes());
        client
    };
    (0..FLOOD).map(send).collect()
}

fn assert_all_served(proxy: &Proxy, address: impl Fn(usize) -> String) {
    for number in 0..12 {
        let token = format!("good-{number}");
        proxy.send(get("/").token(&token).from(&address(number))).assert_status(200);
    }
}

/// That a caller at the flood's address is served, though none of its tokens was answered about.
fn assert_neighbour_is_served(authority: &Authority, proxy: &Proxy) {
    authority.know_token("neighbour", json!({ "sub": "neighbour" }));
    let neighbour = get("/").token("neighbour").from("203.0.113.9");
    eventually("a turn is given back", || {
        (proxy.send(neighbour.clone()).status == 200).then_some(())
    });
}

#[test]
fn callers_at_other_addresses_are_served_and_leaving_gives_all_back() {
    let go = Signal::default();
    let authority = slow_authority(&go);
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(SETTINGS, &[&asking(&authority, &upstream)]);
    let clients = flood(&proxy, |_| "203.0.113.9".into());
    authority.wait_for(INTROSPECTION, SHARE);
    proxy.wait_until_logged_times(" 429 ", FLOOD - SHARE - WAITING);
    assert_all_served(&proxy, |number| format!("198.51.100.{number}"));
    assert_eq!(authority.count(INTROSPECTION), SHARE + 12);

    // Those behind the flood's address are served as soon as it has gone.
    drop(clients);
    assert_neighbour_is_served(&authority, &proxy);
    go.open();
}

#[test]
fn answer_to_one_too_many_says_when_to_come_back() {
    let go = Signal::default();
    let authority = slow_authority(&go);
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(SETTINGS, &[&asking(&authority, &upstream)]);
    let _clients = flood(&proxy, |_| "203.0.113.9".into());
    proxy.wait_until_logged_times(" 429 ", FLOOD - SHARE - WAITING);
    let refused = proxy.send(get("/").token("flood-last").from("203.0.113.9"));
    refused
        .assert_status(429)
        .assert_field("retry-after", "1")
        .assert_no_field("www-authenticate")
        .assert_no_limit();
    go.open();
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let go = Signal::default();
    let authority = slow_authority(&go);
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(SETTINGS, &[&asking(&authority, &upstream)]);
    let _clients = flood(&proxy, |number| format!("2001:db8:0:9::{number:x}"));
    proxy.wait_until_logged_times(" 429 ", FLOOD - SHARE - WAITING);
    assert_all_served(&proxy, |number| format!("2001:db8:1:{number:x}::1"));
    go.open();
}

#[test]
fn neighbours_wait_for_their_turn_and_are_served() {
    const NEIGHBOURS: usize = 100;
    let authority = Authority::start();
    let upstream = Upstream::start();
    let go = Signal::default();
    authority.answer(INTROSPECTION, Answer::Held(go.clone()));
    let proxy = Proxy::with_settings(SETTINGS, &[&asking(&authority, &upstream)]);
    let mut clients = Vec::new();
    for number in 0..NEIGHBOURS {
        let token = format!("good-{number}");
        authority.know_token(&token, json!({ "sub": token }));
        let mut client = proxy.connect();
        client.write(get("/").token(&token).from("203.0.113.9").to_bytes());
        clients.push(client);
    }
    authority.wait_for(INTROSPECTION, SHARE);
    assert_eq!(authority.count(INTROSPECTION), SHARE);
    go.open();
    for client in &mut clients {
        client.read().assert_status(200);
    }
    // Known tokens do not wait.
    assert_eq!(authority.count(INTROSPECTION), NEIGHBOURS);
}

#[test]
fn streams_of_http2_share_like_connections() {
    const CONNECTIONS: usize = 8;
    let go = Signal::default();
    let authority = slow_authority(&go);
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(SETTINGS, &[&asking(&authority, &upstream)]);
    let streams = || (0..FLOOD / CONNECTIONS).map(|at| at as u32 * 2 + 1);
    let open = |connection| {
        let mut frames = Frames::open(proxy.address());
        for stream in streams() {
            let token = format!("Bearer flood-{connection}-{stream}");
            let fields = [("authorization", &*token), ("x-forwarded-for", "203.0.113.9")];
            frames.write(head(stream, END_STREAM, &[&GET[..], &fields].concat()));
        }
        frames
    };
    let mut connections: Vec<Frames> = (0..CONNECTIONS).map(open).collect();
    authority.wait_for(INTROSPECTION, SHARE);
    proxy.wait_until_logged_times(" 429 ", FLOOD - SHARE - WAITING);
    assert_all_served(&proxy, |number| format!("198.51.100.{number}"));
    assert_eq!(authority.count(INTROSPECTION), SHARE + 12);

    // The streams are reset, and the connections stay.
    for frames in &mut connections {
        frames.write(streams().flat_map(reset).collect::<Vec<u8>>());
    }
    assert_neighbour_is_served(&authority, &proxy);
    go.open();
}

#[test]
fn made_up_key_names_cause_one_fetch_and_keep_no_known_caller_waiting() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let go = Signal::default();
    let known = IssuerKey::new("known");
    let new = IssuerKey::new("new");
    authority.publish(&[&known]);
    let issuer = format!(
        "{{ name: main, issuer: \"{}\", jwks_url: \"{}\", cooldown: 30s }}",
        authority.issuer(),
        authority.url(JWKS)
    );
    let policy = Policy::before(&upstream)
        .issuers(&[&issuer])
        .routes(&["{ match: { path: /** }, auth: required, limits: [] }"]);
    let proxy = Proxy::with_settings(SETTINGS, &[&policy]);
    proxy.send(get("/").token(&known.token(&authority, "first"))).assert_status(200);
    proxy.advance(31 * SECOND);
    authority.answer(JWKS, Answer::Held(go.clone()));
    let send = |token: String, address: &str| {
        let mut client = proxy.connect();
        client.write(get("/").token(&token).from(address).to_bytes());
        client
    };
    let made_up = |number| known.token_naming(&format!("made-up-{number}"), &authority, "flood");
    let mut flood: Vec<Client> =
        (0..FLOOD).map(|number| send(made_up(number), "203.0.113.9")).collect();
    authority.wait_for(JWKS, 2);
    // Callers of the flood's address, too.
    for number in 0..12 {
        let token = known.token(&authority, &format!("caller-{number}"));
        proxy.send(get("/").token(&token).from("203.0.113.9")).assert_status(200);
    }
    // The issuer has another key, which is in the answer that all of them wait for.
    let mut late = send(new.token(&authority, "late"), "198.51.100.1");
    authority.publish(&[&known, &new]);
    go.open();
    for client in &mut flood {
        client.read().assert_status(401);
    }
    late.read().assert_status(200);
    assert_eq!(authority.count(JWKS), 2);
}

#[test]
fn address_that_hangs_up_each_time_is_charged_all_the_same() {
    let go = Signal::default();
    let authority = slow_authority(&go);
    let upstream = Upstream::start();
    let policy = asking(&authority, &upstream)
        .limits(&["address: { per: client.ip, rate: 5/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [address] }"]);
    let proxy = Proxy::with_settings(SETTINGS, &[&policy]);
    let request = |number| get("/").token(&format!("flood-{number}")).from("203.0.113.9");
    // The first goes away before it is charged; those after it are charged first.
    for number in 0..6 {
        let mut client = proxy.connect();
        client.write(request(number).to_bytes());
        authority.wait_for(INTROSPECTION, number + 1);
        drop(client);
        proxy.wait_until_logged_times(" 499 ", number + 1);
    }
    proxy.send(request(6)).assert_status(429).assert_field("x-ratelimit-used", "5");
    assert_eq!(authority.count(INTROSPECTION), 6);
    go.open();
}
