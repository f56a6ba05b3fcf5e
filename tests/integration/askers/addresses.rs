//! The client's address, as a proxy that asks names it, and fields in which its client does.

use std::fs;

use tollgate_upstream::{FAMILIES_OF_PROXIES, NAMES_OF_PROXIES};

use crate::{
    docs::root,
    support::{Door, Policy, Proxy, Request, Upstream, get},
};

/// An allow list, and a limit by address.
fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream).limits(&["core: { per: client.ip, rate: 1/hour }"]).routes(&[
        "{ match: { path: /inside }, auth: none, allow: [10.0.0.0/8], limits: [] }",
        "{ match: { path: /set }, auth: none, limits: [], request_headers: { add: { x-real-ip: ours } } }",
        "{ match: { path: /free }, auth: none, limits: [] }",
        "{ match: { path: /** }, auth: none, limits: [core] }",
    ])
}

fn claiming(request: Request) -> Request {
    request.field("forwarded", "for=10.0.0.1").field("x-real-ip", "10.0.0.1")
}

#[test]
fn only_x_forwarded_for_says_who_the_client_of_an_asker_is() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy(&upstream)]);
    for (door, address) in
        [(Door::Forward, "203.0.113.1"), (Door::Nginx, "203.0.113.2"), (Door::Envoy, "203.0.113.3")]
    {
        let status = |request| door.judge(&proxy, &request, address).status;
        assert_eq!(status(claiming(get("/inside"))), 403, "{door:?}");
        assert_eq!(status(claiming(get("/"))), 200, "{door:?}");
        let elsewhere = get("/").field("forwarded", "for=203.0.113.77");
        assert_eq!(status(elsewhere), 429, "{door:?}");
    }
}

#[test]
fn envoy_removes_what_the_proxy_removes() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy(&upstream)]);
    let forged = [
        "x-real-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "forwarded",
        "incap-client-ip",
        "x-true-client-ip",
        "x-host",
        "remote-user",
        "x-auth-request-email",
        "client-cert",
        "x-ssl-client-verify",
        "x-forwarded-host",
        "x-original-url",
        "proxy",
        "x.real.ip",
    ];
    let kept = [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-client-cert",
        "x-request-id",
        "x-envoy-external-address",
        "upgrade",
        "te",
        "accept",
    ];
    let names = forged.iter().chain(&kept);
    let request =
        |path| names.clone().fold(get(path), |r: Request, name| r.field(name, "10.0.0.1"));
    let judged = Door::Envoy.judge(&proxy, &request("/free"), "203.0.113.1");
    assert_eq!(judged.status, 200);
    for name in forged {
        assert!(judged.removed.iter().any(|own| own == name), "{name} stays: {judged:?}");
    }
    for name in kept {
        assert!(!judged.removed.iter().any(|own| own == name), "{name} goes: {judged:?}");
    }
    // What the policy says of such a field is what the server gets.
    let set = Door::Envoy.judge(&proxy, &get("/set").field("x-real-ip", "10.0.0.1"), "203.0.113.1");
    assert_eq!(set.fields.get("x-real-ip").map(String::as_str), Some("ours"), "{set:?}");
    assert!(!set.removed.iter().any(|name| name == "x-real-ip"), "{set:?}");
}

#[test]
fn envoy_keeps_what_a_trusted_proxy_says() {
    let upstream = Upstream::start();
    let settings = format!("{}\ntrusted_proxies: [10.9.0.0/16]", Door::LISTENERS);
    let proxy = Proxy::with_settings(&settings, &[&policy(&upstream)]);
    let request = ["x-real-ip", "x-forwarded-host", "forwarded"]
        .into_iter()
        .fold(get("/free").from("203.0.113.1"), |r, name| r.field(name, "203.0.113.1"));
    let judged = Door::Envoy.judge(&proxy, &request, "10.9.0.1");
    assert_eq!(judged.status, 200);
    let goes = |name: &str| judged.removed.iter().any(|own| own == name);
    assert!(!goes("x-real-ip") && !goes("x-forwarded-host") && goes("forwarded"), "{judged:?}");
}

#[test]
fn asker_whose_address_of_a_client_cannot_be_read_is_refused() {
    let upstream = Upstream::start();
    let settings = format!("{}\ntrusted_proxies: [10.9.0.0/16]", Door::LISTENERS);
    let proxy = Proxy::with_settings(&settings, &[&policy(&upstream)]);
    for door in [Door::Forward, Door::Nginx] {
        for told in ["unknown", "", "203.0.113.1, unknown", "203.0.113.1,", "0.0.0.0", "_hidden"] {
            let judged = door.judge(&proxy, &get("/free"), told);
            assert_eq!(judged.status, 400, "{door:?} {told:?}");
        }
        // What comes before the client's own address is of its making.
        for told in ["unknown, 203.0.113.1", "203.0.113.1:4711", "unknown, 10.9.0.1"] {
            let judged = door.judge(&proxy, &get("/free"), told);
            assert_eq!(judged.status, 200, "{door:?} {told:?}");
        }
    }
}

/// Each removes, or sets itself, what the proxy removes.
#[test]
fn shipped_files_of_askers_remove_what_the_proxy_removes() {
    let read = |file: &str| {
        let text = fs::read_to_string(root().join("config/beside").join(file)).unwrap();
        text.to_ascii_lowercase()
    };
    let families = FAMILIES_OF_PROXIES.iter().flat_map(|(begin, ends)| {
        ends.iter().map(move |end| (format!("{begin}{end}"), format!("{begin}*")))
    });
    let others = ["forwarded", "x-original-url", "x-rewrite-url", "proxy"];
    let named =
        NAMES_OF_PROXIES.iter().chain(&others).map(|name| (name.to_string(), String::new()));
    let all: Vec<(String, String)> = named.chain(families).collect();
    let nginx = read("nginx/nginx.conf");
    let caddy = read("caddy/Caddyfile");
    let haproxy = read("haproxy/haproxy.cfg");
    let traefik = read("traefik/dynamic.yml");
    let envoy = read("envoy/authorize.yaml");
    for (name, family) in &all {
        let begin = family.trim_end_matches('*');
        assert!(nginx.contains(&format!("proxy_set_header {name} ")), "nginx: {name}");
        let of_caddy = [name, family].map(|own| format!("request_header -{own}\n"));
        assert!(of_caddy.iter().any(|line| caddy.contains(line)), "Caddy: {name}");
        let of_haproxy = [format!("{name}\n"), format!("{begin} -m beg\n")];
        let is_there = |line: &String| haproxy.contains(&format!("del-header {line}"));
        assert!(of_haproxy.iter().any(is_there), "HAProxy: {name}");
        // Traefik and Envoy write these themselves.
        if !["x-real-ip", "x-forwarded-prefix"].contains(&&**name) {
            assert!(traefik.contains(&format!(" {name}: \"\"\n")), "Traefik: {name}");
        }
        if !["x-envoy-external-address", "x-forwarded-client-cert"].contains(&&**name) {
            assert!(envoy.contains(&format!("{{ remove: {name} }}")), "Envoy: {name}");
        }
    }
}
