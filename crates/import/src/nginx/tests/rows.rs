//! What the rows and the tests of a policy say of it.

use super::{ZONES, import, routes};
use crate::{Finding, Imported, Input, Options, Verdict, nginx::nginx};

/// The verdict and the words of the rows for what is written so.
fn rows<'i>(imported: &'i Imported, there: &str) -> Vec<(Verdict, &'i str)> {
    let own = imported.findings.iter().filter(|finding| finding.there == there);
    own.map(|finding| (finding.verdict, finding.here.as_str())).collect()
}

#[test]
fn rewrite_of_a_server_closes_the_paths_that_it_changes_alone() {
    for (expression, closed) in [
        ("^/old/(.*)$", "/old/**"),
        ("^/old/[0-9]+-x(y|z){2}$", "/old/**"),
        ("^/olds?(?!x)", "/old*/**"),
    ] {
        let rewrite = format!("rewrite \"{expression}\" /new/$1 last");
        let imported =
            import(&format!("server {{ {rewrite}; location /l {{ P; }} location / {{ P; }} }}"));
        let lines: Vec<&str> = routes(&imported.policy).collect();
        assert!(lines[0].contains(&format!("path: {closed} }}")), "{}", imported.policy);
        let denies = |line: &&&str| line.contains("deny: [0.0.0.0/0");
        assert_eq!((lines.iter().filter(denies).count(), lines.len()), (1, 3), "{lines:?}");
        assert!(
            imported.policy.contains("since what a rewrite makes of paths"),
            "{}",
            imported.policy
        );
        assert!(!imported.policy.contains("since what refuses"), "{}", imported.policy);
        assert_eq!(rows(&imported, "location /l")[0].0, Verdict::Same);
    }
    for (there, location) in [
        ("location /l", "rewrite ^/a(?=b)|x$ /new/$1 last; location /l { P; }"),
        ("location /l", "rewrite ^(.*)(?<=x)$ /new/$1 last; location /l { P; }"),
        ("location /l", "location /l { return 404; }"),
        ("location /l", "location /l { if ($arg_a) { return 403; } return 200; }"),
        ("location /l", "location /l { auth_basic x; P; }"),
    ] {
        let imported = import(&format!("server {{ {location} location / {{ P; }} }}"));
        assert!(imported.policy.contains("deny: [0.0.0.0/0"), "{}", imported.policy);
        let rows = rows(&imported, there);
        assert!(rows.iter().all(|(verdict, _)| *verdict == Verdict::Nearly), "{rows:?}");
    }
    // Everybody is refused there with the same status.
    let imported = import("server { location /l { deny all; P; } location / { P; } }");
    assert_eq!(rows(&imported, "location /l")[0].0, Verdict::Same);
}

#[test]
fn what_an_if_refuses_is_closed_also_where_nginx_answers_itself() {
    let text = "server { location /l { if ($arg_a) { return 403; } return 200; } location / { proxy_pass http://x; } }";
    let options = Options { upstream: Some("http://y".into()), ..Options::default() };
    let imported = nginx(&[Input { name: "f".into(), text: text.into() }], &options).unwrap();
    let line = routes(&imported.policy).find(|line| line.contains("/l*/**")).unwrap();
    assert!(line.contains("deny: [0.0.0.0/0"), "{}", imported.policy);
}

#[test]
fn places_that_are_closed_for_one_reason_are_one_thing_to_do() {
    let imported = import(
        "server { location /a/ { root /x; } location /b/ { root /x; } location = /c { return 200 x; } location / { P; } }",
    );
    let asked = imported.policy.lines().filter(|line| line.starts_with("# To do: some routes"));
    assert_eq!(asked.count(), 1, "{}", imported.policy);
    assert!(imported.policy.contains("# At f:1:69, f:1:17, f:1:43: import"), "{}", imported.policy);
    let doubled = |finding: &&Finding| {
        format!("{}{}", finding.there, finding.here).matches("no counterpart").count() > 1
    };
    assert_eq!(imported.findings.iter().find(doubled), None);
}

#[test]
fn tests_send_requests_that_are_counted() {
    let methods = "map $request_method $k { default $binary_remote_addr; GET ''; HEAD ''; }
        limit_req_zone $k zone=w:1m rate=5r/m;";
    let policy = import(&format!(
        "{methods} {ZONES} server {{ location / {{ limit_req zone=b burst=10; limit_req zone=w burst=5; P; }} }}"
    ))
    .policy;
    let line = policy.lines().find(|line| line.contains("at once")).unwrap();
    assert!(line.contains("method: POST") && line.contains("admitted: 6"), "{policy}");
    // No method is counted by both.
    let policy = import(
        "map $request_method $o { POST $binary_remote_addr; } limit_req_zone $o zone=o:1m rate=5r/m;
         map $request_method $p { PUT $binary_remote_addr; } limit_req_zone $p zone=p:1m rate=5r/m;
         server { location / { limit_req zone=o burst=10; limit_req zone=p burst=5; P; } }"
    )
    .policy;
    let line = policy.lines().find(|line| line.contains("at once")).unwrap();
    assert!(line.contains("method: POST") && line.contains("admitted: 11"), "{policy}");
}

#[test]
fn test_of_networks_that_are_not_counted_sends_more_than_a_burst() {
    let policy = import(
        "geo $g { default 1; 10.0.0.0/8 0; } map $g $k { 0 ''; 1 $binary_remote_addr; }
         limit_req_zone $k zone=g:1m rate=1r/s; server { location / { limit_req zone=g burst=20; P; } }",
    )
    .policy;
    let wanted = "address: 10.0.0.0 }, repeat: 22, expect: { admitted: 22 }";
    assert!(policy.contains(wanted), "{policy}");
}

#[test]
fn rows_say_which_room_holds_where_a_zone_has_many() {
    let imported = import(&format!(
        "{ZONES} server {{ location / {{ limit_req zone=b burst=9 nodelay; P; }}
         location /a/ {{ limit_req zone=b burst=1 nodelay; P; }} location /b/ {{ limit_req zone=b burst=2 nodelay; P; }}
         location /c/ {{ limit_req zone=b burst=3 nodelay; P; }} location /d/ {{ limit_req zone=b burst=6 nodelay; P; }} }}"
    ));
    let (verdict, here) = rows(&imported, "limit_req zone=b burst=9 nodelay")[0];
    assert!(verdict == Verdict::Nearly && here.starts_with("2 at once, then 2/second"), "{here}");
    let own = rows(&imported, "limit_req zone=b burst=1 nodelay");
    assert_eq!(own, [(Verdict::Same, "2 at once, then 2/second")]);
    let zone = rows(&imported, "limit_req_zone $binary_remote_addr zone=b:1m rate=2r/s");
    assert_eq!(zone[0].1, "limits b, per client.ip");
}

#[test]
fn status_that_is_not_written_is_503_there() {
    let imported = import(&format!(
        "{ZONES} limit_req_status 429; server {{ limit_conn c 2; location / {{ limit_req zone=b; P; }} }}"
    ));
    let own =
        imported.findings.iter().find(|own| own.there.contains("without `limit_conn_status`"));
    let own = own.unwrap_or_else(|| panic!("{:?}", imported.findings));
    assert!(own.here.contains("503") && own.here.contains("`responses.denied_status`"), "{own:?}");
    let same = rows(&imported, "limit_req_status 429");
    assert!(same[0].1.contains("`responses.denied_status`"), "{same:?}");
}

#[test]
fn constant_fields_of_responses_are_set_by_the_routes() {
    let imported = import(
        "add_header X-Frame-Options DENY always; add_header X-A 'b; c'; proxy_hide_header X-Powered-By;
         server { location / { P; } location /x/ { P; add_header X-B \"$http_origin y\"; add_header Content-Length 0;
         add_header Access-Control-Allow-Origin $http_origin always; add_header Access-Control-Max-Age 5; } }",
    );
    let policy = &imported.policy;
    let set = "response_headers: { set: { x-a: \"b; c\", x-frame-options: DENY }, remove: [x-powered-by] }";
    let line = routes(policy).find(|line| line.contains("path: /** }")).unwrap();
    assert!(line.contains(set), "{policy}");
    // A place replaces what is around it.
    let line = routes(policy).find(|line| line.contains("/x/**")).unwrap();
    assert!(line.contains("response_headers: { remove: [x-powered-by] }"), "{policy}");
    let row = rows(&imported, "add_header X-Frame-Options, X-A");
    assert!(row.len() == 1 && row[0].0 == Verdict::Nearly && row[0].1.contains("refusals"));
    let row = rows(&imported, "add_header Access-Control-Allow-Origin, Access-Control-Max-Age");
    assert!(
        row[0].0 == Verdict::LeftOut && row[0].1.contains("`cors: "),
        "{:?}",
        imported.findings
    );
    assert_eq!(rows(&imported, "add_header X-B $http_origin y")[0].0, Verdict::LeftOut);
    assert_eq!(rows(&imported, "add_header Content-Length …")[0].0, Verdict::LeftOut);
}

#[test]
fn what_clients_and_servers_see_differently_has_a_row() {
    let imported = import(&format!(
        "{ZONES} gzip on; gzip_types a/b; limit_req_status 429; error_page 429 503 @late; proxy_redirect off;
         ssl_certificate c.pem; ssl_certificate_key k.pem; client_header_timeout 5s; expires 1h; more_set_headers 'A: b';
         server {{ location / {{ if ($request_method = 'OPTIONS') {{ return 204; }} limit_req zone=a;
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; P; }} }}"
    ));
    for (there, verdict, here) in [
        ("gzip, gzip_types", Verdict::LeftOut, "compressed"),
        ("ssl_certificate, ssl_certificate_key", Verdict::Nearly, "settings"),
        ("client_header_timeout", Verdict::Nearly, "settings"),
        ("expires", Verdict::LeftOut, "response_headers"),
        ("more_set_headers", Verdict::LeftOut, "response_headers"),
        ("proxy_redirect off", Verdict::Same, "nor does"),
        (
            "error_page 429 503 @late",
            Verdict::LeftOut,
            "{\"message\":\"API rate limit exceeded for",
        ),
        ("if ($request_method …", Verdict::LeftOut, "`cors: { origins: […], preflight: answer }`"),
        ("proxy_set_header Host $host", Verdict::Nearly, "port"),
        (
            "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for",
            Verdict::Nearly,
            "`trusted_proxies`",
        ),
        ("fields of responses", Verdict::Nearly, "`Server`"),
    ] {
        let own = rows(&imported, there);
        let [(found, text)] = own[..] else { panic!("{there}: {:?}", imported.findings) };
        assert!(found == verdict && text.contains(here), "{there}: {found}: {text}");
    }
}

#[test]
fn proxies_in_front_are_one_row() {
    let imported = import(
        "set_real_ip_from 10.0.0.0/8; set_real_ip_from 192.0.2.0/24; real_ip_header CF-Connecting-IP ; server { location / { P; } }",
    );
    let own = rows(&imported, "set_real_ip_from, 2 times");
    assert!(own.len() == 1 && own[0].0 == Verdict::Nearly, "{:?}", imported.findings);
    let own = rows(&imported, "real_ip_header CF-Connecting-IP");
    assert!(own[0].0 == Verdict::Nearly && own[0].1.contains("Cloudflare writes that as well"));
    assert!(imported.policy.contains("trusted_proxies: [10.0.0.0/8, 192.0.2.0/24]"));
    let imported = import("set_real_ip_from 10.0.0.0/8; server { location / { P; } }");
    assert_eq!(rows(&imported, "real_ip_header X-Real-IP, the default")[0].0, Verdict::LeftOut);
    assert!(
        import("set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol; server { location / { P; } }")
            .findings
            .iter()
            .any(|own| own.here.contains("proxy_protocol: { trusted:"))
    );
}

#[test]
fn rows_of_a_server_that_is_closed_say_so() {
    let imported = import(
        "server { location / { P; } location = /a { P; } location ~ (?i)x { deny all; } }
         server { server_name b; location /b { P; } }",
    );
    for there in ["location /", "location = /a"] {
        let own = rows(&imported, there);
        assert!(own[0].0 == Verdict::Nearly && own[0].1.contains("closed (403)"), "{own:?}");
    }
    assert_eq!(rows(&imported, "location /b")[0].0, Verdict::Same);
}

#[test]
fn limits_of_connections_and_traffic_have_a_row() {
    let imported = import(
        "upstream app { server a:1 max_conns=5; } vhost_traffic_status_limit_traffic in:1g 503;
         server { location / { proxy_pass http://app; } }",
    );
    for there in ["server a:1 max_conns=5", "vhost_traffic_status_limit_traffic in:1g 503"] {
        assert_eq!(rows(&imported, there)[0].0, Verdict::LeftOut, "{:?}", imported.findings);
    }
}

#[test]
fn what_is_closed_says_how_to_open_it() {
    for guard in [
        "auth_basic x;",
        "auth_request /a;",
        "auth_jwt x;",
        "ssl_verify_client on;",
        "modsecurity on;",
        "deny what;",
        "if ($a) { return 403; }",
        "rewrite x y last;",
        "root /x;",
    ] {
        let location = if guard.starts_with("root") { guard.into() } else { format!("{guard} P;") };
        let imported =
            import(&format!("server {{ location /x/ {{ {location} }} location / {{ P; }} }}"));
        let asked = imported.policy.lines().find(|line| line.starts_with("# At f:"));
        let asked = asked.unwrap_or_else(|| panic!("{guard}\n{}", imported.policy));
        let says = ["take the `deny` out", "in place of all addresses"];
        assert!(says.iter().any(|text| asked.contains(text)), "{asked}");
    }
}
