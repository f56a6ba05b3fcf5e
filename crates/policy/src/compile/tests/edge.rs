//! What upstreams and routes come to: servers, failures, rewriting, CORS.

use std::num::NonZeroU32;

use http::HeaderMap;
use tollgate_wire::target::EncodedSlash;

use super::*;
use crate::{
    Balance, Bounds, Cors, Ejection, Framework, HealthCheck, LetterCase, MatrixParams,
    OriginPattern, Origins, PathInfo, PathReading, Preflight, Protocol, Retries, Sharing, Suffix,
    TrailingSlash, Transport, Upstream,
};

/// The upstream with these fields.
fn upstream(fields: &str) -> Upstream {
    let text = format!(
        "version: 1\nupstreams: {{ api: {{ {fields} }} }}\nroutes: [{{ match: {{ path: /** }} }}]\n"
    );
    let policy = load(Path::new("api.yaml"), &text, &sources());
    let mut policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
    policy.upstreams.remove(0)
}

/// The route for everything with these fields, in a policy with these sections.
fn route_in(sections: &str, fields: &str) -> Route {
    let text = format!(
        "version: 1\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
         {sections}routes: [{{ match: {{ path: /** }}{fields} }}]\n"
    );
    let policy =
        load(Path::new("api.yaml"), &text, &sources().with_variable("PASSWORD", "hunter2"));
    let mut policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
    policy.routes.remove(0)
}

fn route(fields: &str) -> Route {
    route_in("", fields)
}

/// With a certificate and its key.
fn sources() -> Sources {
    let client = rcgen::generate_simple_self_signed(["client.internal".into()]).unwrap();
    Sources::system()
        .with_file("client.pem", client.cert.pem())
        .with_file("client.key", client.signing_key.serialize_pem())
}

fn statuses(all: impl IntoIterator<Item = u16>) -> Statuses {
    all.into_iter().fold(Statuses::default(), Statuses::with)
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

#[test]
fn paths_are_read_as_a_framework_does_and_as_is_said_beside_it() {
    let paths = |written: &str| {
        upstream(&format!("servers: [http://127.0.0.1:9000], paths: {written}")).paths.unwrap()
    };
    let express = PathReading::of(Framework::Express);
    assert_eq!(express.case, LetterCase::Ignore);
    assert_eq!(paths("express"), express);
    assert_eq!(paths("{ framework: express }"), express);
    assert_eq!(
        paths("{ framework: express, case: exact, suffix: ignore, trailing_slash: ignore }"),
        PathReading { case: LetterCase::Exact, suffix: Suffix::Ignore, ..express }
    );
    let own = PathReading {
        framework: None,
        case: LetterCase::Ignore,
        trailing_slash: TrailingSlash::Ignore,
        matrix_params: MatrixParams::Strip,
        suffix: Suffix::Keep,
        path_info: PathInfo::Strip,
    };
    assert_eq!(paths("{ case: ignore, matrix_params: strip, path_info: strip }"), own);
    assert_eq!(paths("{}"), PathReading::default());
    let unsaid = upstream("servers: [http://127.0.0.1:9000]");
    assert_eq!(unsaid.paths, None);
}

#[test]
fn servers_have_hosts_ports_and_weights() {
    let servers = upstream(
        "servers: [http://API.internal, \"http://[::1]:9001\", { url: http://10.0.0.1:80, weight: 7 }]",
    )
    .servers;
    let described: Vec<_> = servers
        .iter()
        .map(|own| (&*own.host, own.port, own.weight.get(), own.authority.to_str().unwrap()))
        .collect();
    assert_eq!(
        described,
        [
            ("api.internal", 80, 1, "api.internal"),
            ("::1", 9001, 1, "[::1]:9001"),
            ("10.0.0.1", 80, 7, "10.0.0.1:80"),
        ]
    );
}

#[test]
fn upstream_is_as_it_is_by_default_where_nothing_is_said() {
    let own = upstream("servers: [http://127.0.0.1:9000]");
    let usual = Upstream::new("api", own.servers.clone());
    assert_eq!(format!("{own:?}"), format!("{usual:?}"));
    let empty = upstream("servers: [http://127.0.0.1:9000], ejection: {}, retries: {}, queue: {}");
    assert_eq!(format!("{empty:?}"), format!("{usual:?}"));
}

#[test]
fn upstream_is_as_it_is_written() {
    let own = upstream(
        "servers: [http://h], protocol: h2, balance: round_robin, max_connections: 2, \
         queue: { size: 0, timeout: 5s }, shares: off, max_unread: 2MiB, keep_alive: 1s, resolve_every: 1m, \
         ejection: { failures: 1, status: [5xx], time: 10m }, retries: { attempts: 2, budget: 5, status: [503] }, \
         health_check: { path: \"/up?x\", host: \"h:1\", interval: 10ms, timeout: 1s, healthy_after: 1, \
         unhealthy_after: 9, status: [204] }",
    );
    assert_eq!((own.protocol, own.balance), (Protocol::Http2, Balance::RoundRobin));
    let bounds =
        Bounds { queue: 0, queue_timeout: 5 * SECOND, shares: Sharing::Off, ..Bounds::default() };
    let bounds = Bounds { max_unread: 2 << 20, ..bounds };
    assert_eq!(own.bounds, Bounds { max_connections: 2.try_into().unwrap(), ..bounds });
    assert_eq!((own.keep_alive, own.resolve_every), (SECOND, 60 * SECOND));
    let time = 600 * SECOND..=600 * SECOND;
    let ejection =
        Ejection { failures: number(1), statuses: statuses(500..600), time, ..Ejection::default() };
    assert_eq!(own.ejection, Some(ejection));
    let retries = Retries { attempts: 2, budget_percent: 5, statuses: statuses([503]) };
    assert_eq!(own.retries, retries);
    let check = HealthCheck {
        path: "/up?x".into(),
        host: Some(http::HeaderValue::from_static("h:1")),
        interval: Duration::from_millis(10),
        timeout: SECOND,
        healthy_after: number(1),
        unhealthy_after: number(9),
        statuses: statuses([204]),
    };
    assert_eq!(own.health_check, Some(check));
}

#[test]
fn what_is_off_is_off() {
    let own = upstream("servers: [http://h], ejection: off, retries: off");
    assert_eq!(own.ejection, None);
    assert_eq!((own.retries.attempts, own.retries.budget_percent), (0, 0));
}

#[test]
fn tls_is_for_https_and_differs_by_what_it_is_made_of() {
    let tls = |fields: &str| match upstream(&format!("servers: [https://10.0.0.1]{fields}")) {
        Upstream { transport: Transport::Tls(tls), servers, .. } => {
            assert_eq!(servers[0].port, 443);
            tls
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(tls(""), tls(""));
    let named = tls(", tls: { server_name: api.example.com }");
    assert_eq!(named.server_name.as_ref().unwrap().to_str(), "api.example.com");
    assert_ne!(named, tls(""));
    assert_ne!(named, tls(", tls: { server_name: b.example.com }"));
    let shown =
        tls(", tls: { ca_file: client.pem, certificate_file: client.pem, key_file: client.key }");
    assert!(shown.config.client_auth_cert_resolver.has_certs());
    assert!(!named.config.client_auth_cert_resolver.has_certs());
    // Each compilation has another certificate.
    assert_ne!(tls(", tls: { ca_file: client.pem }"), tls(", tls: { ca_file: client.pem }"));
}

#[test]
fn bodies_are_bounded_in_bytes() {
    for (written, expected) in [
        ("0", 0),
        ("1000", 1000),
        ("1_000", 1000),
        ("7B", 7),
        ("64KiB", 65_536),
        ("10 MiB", 10 << 20),
        ("2GiB", 2 << 30),
    ] {
        assert_eq!(route(&format!(", max_body: {written}")).max_body, Some(expected), "{written}");
    }
    assert_eq!(route("").max_body, None);
}

#[test]
fn only_websocket_is_switched_to_unless_a_route_says_otherwise() {
    let upgrades = |fields: &str| route(fields).upgrades.join(" ");
    assert_eq!(upgrades(""), "websocket");
    assert_eq!(upgrades(", upgrades: [WebSocket, Foo/2]"), "websocket foo/2");
    assert_eq!(upgrades(", upgrades: []"), "");
}

#[test]
fn fields_are_removed_then_set_then_added() {
    let edits = route(
        ", request_headers: { set: { X-A: new, x-n: 5, x-secret: \"a ${PASSWORD}\" }, \
         add: { x-a: more }, remove: [x-gone] }",
    )
    .request_headers;
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-a", "old"), ("x-a", "older"), ("x-gone", "1"), ("x-kept", "1")] {
        headers.append(name, http::HeaderValue::from_static(value));
    }
    edits.apply(&mut headers);
    let all = |name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert_eq!(all("x-a"), ["new", "more"]);
    assert_eq!(
        (all("x-n"), all("x-gone"), all("x-kept")),
        (vec!["5".parse().unwrap()], vec![], vec!["1".parse().unwrap()])
    );
    assert_eq!(headers["x-secret"], "a hunter2");
    assert!(headers["x-secret"].is_sensitive() && headers["x-n"].is_sensitive());
}

#[test]
fn route_says_what_pages_may_do_or_the_policy_does() {
    let sections = "cors: { origins: [\"*\"] }\n";
    let of = |fields: &str| route_in(sections, fields).cors.map(|cors| (*cors).clone());
    let everybody = Cors { origins: Origins::Any, credentials: false, preflight: Preflight::Check };
    assert_eq!(of(""), Some(everybody));
    assert_eq!(of(", cors: off"), None);
    assert_eq!(route("").cors, None);
    let own = of(
        ", cors: { origins: [\"https://*.example.com:8443\", https://a.example], credentials: true, \
         preflight: answer, methods: [GET], headers: [X-A], max_age: 10m }",
    );
    let below =
        OriginPattern::Below { scheme: "https://".into(), suffix: ".example.com:8443".into() };
    let preflight = Preflight::Answer {
        methods: vec![Method::GET],
        headers: vec![http::HeaderName::from_static("x-a")],
        max_age: Some(600 * SECOND),
    };
    let origins = Origins::Patterns(vec![below, OriginPattern::Exact("https://a.example".into())]);
    assert_eq!(own, Some(Cors { origins, credentials: true, preflight }));
}

proptest! {
    /// Whatever prefixes a policy may have, the upstream is asked for a path in normal form.
    #[test]
    fn prop_rewritten_path_is_in_normal_form(
        strip in "(/[av.;%2F]{1,3}){1,2}",
        add in "(/[av.;%2F]{1,3}){1,2}",
        path in "/([av.;]{1,3}|%2F|/){0,6}",
    ) {
        let text = format!(
            "version: 1\npaths: {{ encoded_slash: keep }}\n\
             upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             routes: [{{ match: {{ path: /** }}, strip_prefix: \"{strip}\", add_prefix: \"{add}\" }}]\n"
        );
        let normal = |path: &str| {
            let normal = tollgate_wire::target::normalize_path(path, EncodedSlash::Keep);
            normal.map(std::borrow::Cow::into_owned)
        };
        if let (Ok(policy), Ok(path)) = (try_load(&text), normal(&path)) {
            let rewritten = policy.routes[0].rewrite.rewrite(&path, PathReading::default()).into_owned();
            prop_assert_eq!(normal(&rewritten), Ok(rewritten));
        }
    }
}
