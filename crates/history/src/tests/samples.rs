//! Lines of each program.

use super::{super::*, Logs, combined, shown};

/// Lines of each format as its program writes them, and what is read of them.
#[rustfmt::skip]
const SAMPLES: &[(Format, &str, &str)] = &[
    (Format::TollgateJson,
     r#"{"time":"2026-11-21T08:41:00.123Z","request_id":"1f","client":"203.0.113.7","caller":"user:42","tier":"free","method":"POST","host":"api.example.com","path":"/search/code","route":"/search/**","status":429,"exempt":false,"decided_by":"memory","denied":"limit","denied_by":"search","would_deny":null,"error":"denied by limit search","limit":"search","used":10,"of":10,"cost":0,"limits":[{"name":"search","mode":"enforce","window_seconds":60,"limit":10,"used":10,"remaining":0,"reset":1795250520,"cost":0,"decision":"deny","decided_by":"memory"}],"user_agent":"curl/8.5.0","upstream_ms":null,"request_bytes":0,"response_bytes":112,"total_ms":0.214}"#,
     "2026-11-21T08:41:00.123Z 203.0.113.7 POST api.example.com /search/code 429 [curl/8.5.0]"),
    (Format::TollgateText,
     r#"2026-11-21T08:41:00.123Z 1f0c 203.0.113.7 user:42 free POST /search/c\x20e route=/search/** 429 search=10/10 decided_by=memory denied=limit denied_by=search error="denied by limit search" out=112 total=0.214ms"#,
     "2026-11-21T08:41:00.123Z 203.0.113.7 POST - /search/c e 429 [-]"),
    (Format::Common,
     r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#,
     "2000-10-10T20:55:36.000Z 127.0.0.1 GET - /apache_pb.gif 200 [-]"),
    (Format::Common,
     r#"uplherc.upl.com - - [01/Aug/1995:00:00:07 -0400] "GET / " 304 0"#,
     "1995-08-01T04:00:07.000Z - GET - / 304 [-]"),
    (Format::Common,
     r#"in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] "GET /a"b" c.txt HTTP/1.0" 404 -"#,
     r#"1995-08-01T04:00:01.000Z - GET - /a"b" c.txt 404 [-]"#),
    (Format::Combined,
     r#"127.0.0.1 - frank smith [10/Oct/2000:13:55:36 -0700] "GET /a?b=\"c\" HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#,
     r#"2000-10-10T20:55:36.000Z 127.0.0.1 GET - /a?b="c" 200 [Mozilla/4.08 [en] (Win98; I ;Nav)]"#),
    // Apache's vhost_combined.
    (Format::Combined,
     r#"www.example.com:443 2001:db8::1 - - [10/Oct/2000:13:55:36 -0700] "GET http://other.example/x?y HTTP/1.1" 200 2326 "-" "-""#,
     "2000-10-10T20:55:36.000Z 2001:db8::1 GET www.example.com /x?y 200 [-]"),
    // nginx's `main`, and its time, which is the end.
    (Format::Combined,
     r#"10.0.0.1 - - [21/Nov/2026:08:41:00 +0000] "GET / HTTP/1.1" 200 615 "-" "curl/8.5.0" "203.0.113.9, 10.0.0.2" 1.250"#,
     "2026-11-21T08:40:58.750Z 10.0.0.1 GET - / 200 [curl/8.5.0]"),
    // Traefik's text format, whose time is the start.
    (Format::Combined,
     r#"172.18.0.1 - - [21/Nov/2026:08:41:00 +0000] "GET /whoami HTTP/1.1" 200 418 "-" "-" 7 "whoami@docker" "http://172.18.0.3:80" 12ms"#,
     "2026-11-21T08:41:00.000Z 172.18.0.1 GET - /whoami 200 [-]"),
    (Format::NginxJson,
     r#"{"time_local":"21/Nov/2026:08:41:00 +0000","msec":"1795250460.500","remote_addr":"10.0.0.1","remote_user":"ann","request":"GET /a?b=c HTTP/1.1","status":"200","body_bytes_sent":"615","request_time":"0.250","http_referer":"","http_user_agent":"curl/8.5.0","host":"example.com:8080"}"#,
     "2026-11-21T08:41:00.250Z 10.0.0.1 GET example.com /a?b=c 200 [curl/8.5.0]"),
    (Format::NginxJson,
     r#"{"time_iso8601":"2026-11-21T08:41:00+01:00","remote_addr":"10.0.0.1","request_method":"GET","uri":"/a","args":"b=c","status":200,"request_time":0.25}"#,
     "2026-11-21T07:40:59.750Z 10.0.0.1 GET - /a?b=c 200 [-]"),
    (Format::Caddy,
     r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"]},"tls":{"resumed":false,"version":772}},"bytes_read":0,"user_id":"","duration":0.5,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#,
     "2022-03-09T21:30:01.024Z 127.0.0.1 GET localhost /a?b 200 [curl/7.82.0]"),
    (Format::Traefik,
     r#"{"ClientAddr":"172.18.0.1:55282","ClientHost":"172.18.0.1","ClientPort":"55282","ClientUsername":"-","DownstreamContentSize":418,"DownstreamStatus":200,"Duration":2000000000,"OriginStatus":0,"RequestAddr":"localhost:8000","RequestHost":"localhost","RequestMethod":"GET","RequestPath":"/api?x=1","RequestProtocol":"HTTP/1.1","StartLocal":"2026-11-21T09:41:00.5+01:00","StartUTC":"2026-11-21T08:41:00.5Z","entryPointName":"web","level":"info","msg":"","time":"2026-11-21T08:41:02Z"}"#,
     "2026-11-21T08:41:00.500Z 172.18.0.1 GET localhost /api?x=1 200 [-]"),
    (Format::Traefik,
     r#"{"ClientHost":"172.18.0.1","DownstreamStatus":200,"Duration":2000000000,"RequestMethod":"GET","RequestPath":"/","time":"2026-11-21T08:41:02Z"}"#,
     "2026-11-21T08:41:00.000Z 172.18.0.1 GET - / 200 [-]"),
    (Format::Envoy,
     r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#,
     "2016-04-15T20:17:00.310Z 10.0.35.28 POST locations /api/v1/locations 204 [nsq2http]"),
    // Istio's.
    (Format::Envoy,
     r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin default"#,
     "2020-11-25T21:26:18.409Z 10.44.1.23 GET httpbin /status/418 418 [curl/7.73.0-DEV]"),
    // A client may write quotes, which Envoy does not escape.
    (Format::Envoy,
     r#"[2016-04-15T20:17:00.310Z] "GET / HTTP/1.1" 204 - 154 0 226 100 "198.51.100.1, 10.0.35.28" "says "hi" "a" "b" there" "cc21d9b0" "example.com:80" "10.0.2.1:80""#,
     r#"2016-04-15T20:17:00.310Z 10.0.35.28 GET example.com / 204 [says "hi" "a" "b" there]"#),
    (Format::Envoy,
     r#"{"start_time":"2026-11-21T08:41:00.310Z","method":"GET","path":"/","protocol":"HTTP/1.1","response_code":200,"duration":226,"authority":"example.com","downstream_remote_address":"10.0.0.1:4711","user_agent":"curl","x_forwarded_for":null}"#,
     "2026-11-21T08:41:00.310Z 10.0.0.1 GET example.com / 200 [curl]"),
    (Format::Haproxy,
     r#"Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#,
     "2009-02-06T12:14:14.655Z 10.0.1.2 GET - /index.html 200 [-]"),
    (Format::Haproxy,
     r#"::ffff:10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in~ static/srv1 10/0/30/69/109 -1 2750 - - CR-- 1/1/1/1/0 0/0 "GET https://example.com/index.html HTTP/2.0""#,
     "2009-02-06T12:14:14.655Z 10.0.1.2 GET example.com /index.html - [-]"),
    (Format::Cloudflare,
     r#"{"ClientIP":"203.0.113.7","ClientRequestHost":"api.example.com","ClientRequestMethod":"GET","ClientRequestPath":"/a","ClientRequestURI":"/a?b=c","ClientRequestUserAgent":"curl","EdgeEndTimestamp":1795250461500000000,"EdgeResponseBytes":512,"EdgeResponseStatus":200,"EdgeStartTimestamp":1795250460500000000,"RayID":"710e98d93d50357d"}"#,
     "2026-11-21T08:41:00.500Z 203.0.113.7 GET api.example.com /a?b=c 200 [curl]"),
    (Format::Cloudflare,
     r#"{"EdgeStartTimestamp":"2026-11-21T08:41:00Z","ClientIP":"2001:db8::1","ClientRequestHost":"a:8443","ClientRequestMethod":"POST","ClientRequestURI":"/a","EdgeResponseStatus":0}"#,
     "2026-11-21T08:41:00.000Z 2001:db8::1 POST a /a - [-]"),
    (Format::Cloudflare,
     r#"{"EdgeEndTimestamp":1795250460,"ClientIP":"203.0.113.7","ClientRequestMethod":"GET","ClientRequestPath":"/a","EdgeResponseStatus":200}"#,
     "2026-11-21T08:41:00.000Z 203.0.113.7 GET - /a 200 [-]"),
    (Format::Gcp,
     r#"{"httpRequest":{"latency":"0.045123s","remoteIp":"203.0.113.7","requestMethod":"GET","requestSize":"310","requestUrl":"https://api.example.com/a?b=c","responseSize":"512","status":200,"userAgent":"curl"},"insertId":"1abc","jsonPayload":{"statusDetails":"response_sent_by_backend"},"logName":"projects/p/logs/requests","receiveTimestamp":"2026-11-21T08:41:01.9Z","resource":{"labels":{"url_map_name":"m"},"type":"http_load_balancer"},"timestamp":"2026-11-21T08:41:00.500123Z"}"#,
     "2026-11-21T08:41:00.500Z 203.0.113.7 GET api.example.com /a?b=c 200 [curl]"),
    // APISIX, as it ships.
    (Format::Combined,
     r#"203.0.113.7 - - [21/Nov/2026:08:41:00 +0000] api.example.com:9080 "GET /a?b=c HTTP/1.1" 200 512 0.250 "-" "curl" 10.42.0.17:8080 200 0.249 "http://api.example.com""#,
     "2026-11-21T08:40:59.750Z 203.0.113.7 GET api.example.com /a?b=c 200 [curl]"),
    // nginx with "$host" before "$request", and with a list of forwarded addresses.
    (Format::Combined,
     r#"203.0.113.7 - ann [21/Nov/2026:08:41:00 +0000] "api.example.com" "GET /a HTTP/1.1" 200 512 "-" "curl""#,
     "2026-11-21T08:41:00.000Z 203.0.113.7 GET api.example.com /a 200 [curl]"),
    (Format::Combined,
     r#"api.example.com "203.0.113.7, 10.0.0.1" 10.2.1.185 - - [21/Nov/2026:08:41:00 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl""#,
     "2026-11-21T08:41:00.000Z 203.0.113.7 GET api.example.com /a 200 [curl]"),
    (Format::Alb,
     r#"https 2026-11-21T08:41:01.500000Z app/shop-alb/50dc6c495c0c9188 203.0.113.7:40000 10.0.3.17:8080 0.001 0.998 0.001 200 200 310 512 "GET https://api.example.com:443/a?b=c HTTP/2.0" "says \x22hi\x22" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/api/73e2d6bc24d8a067 "Root=1-674d0f00-36d228ad5d99923122bbe354" "api.example.com" "session-reused" 0 2026-11-21T08:41:00.500000Z "forward" "-" "-" "10.0.3.17:8080" "200" "-" "-" TID_1234abcd5678ef90 "-" "-" "-""#,
     r#"2026-11-21T08:41:00.500Z 203.0.113.7 GET api.example.com /a?b=c 200 [says "hi"]"#),
    (Format::Alb,
     r#"http 2026-11-21T08:41:01.500000Z app/shop-alb/50dc6c495c0c9188 [2001:db8::1]:40000 - -1 -1 -1 503 - 34 366 "GET http://api.example.com:80/ HTTP/1.1" "curl" - - arn:aws:a "Root=1-5" "-" "-" 0 2026-11-21T08:41:01.400000Z "forward" "-" "-" "-" "-" "-" "-""#,
     "2026-11-21T08:41:01.400Z 2001:db8::1 GET api.example.com / 503 [curl]"),
    // A classic load balancer, whose time is the start.
    (Format::Alb,
     r#"2026-11-21T08:41:00.500000Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -"#,
     "2026-11-21T08:41:00.500Z 192.168.131.39 GET www.example.com / 200 [curl/7.38.0]"),
    (Format::Cloudfront,
     "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query x-host-header time-taken\n2026-11-21\t08:41:01\tFRA56-P4\t512\t203.0.113.7\tGET\td1.cloudfront.net\t/a\t200\t-\tMozilla/5.0%20(X11;%20a+b)\tb=c\tapi.example.com\t0.250",
     "2026-11-21T08:41:00.750Z 203.0.113.7 GET api.example.com /a?b=c 200 [Mozilla/5.0 (X11; a+b)]"),
    // Its second version may write JSON.
    (Format::Cloudfront,
     r#"{"date":"2026-11-21","time":"08:41:01","x-edge-location":"SOF50-P2","timestamp(ms)":"1795250461500","c-ip":"203.0.113.7","cs-method":"GET","cs(Host)":"d1.cloudfront.net","cs-uri-stem":"/a","cs-uri-query":"-","sc-status":"200","time-taken":"0.5"}"#,
     "2026-11-21T08:41:01.000Z 203.0.113.7 GET d1.cloudfront.net /a 200 [-]"),
    (Format::W3c,
     "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2026-11-21 08:41:01\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\n2026-11-21 08:41:01 10.1.0.4 GET /a b=c 443 - 203.0.113.7 Mozilla/5.0+(X11) - 200 0 0 250",
     "2026-11-21T08:41:00.750Z 203.0.113.7 GET - /a?b=c 200 [Mozilla/5.0 (X11)]"),
    (Format::W3c,
     "#Fields: date time c-ip cs-method cs-uri cs-host sc-status time-taken cs(User-Agent)\n2026-11-21 08:41:01 203.0.113.7 GET /a?b=c api.example.com 200 0.250 \"says \"\"hi\"\" there\"",
     "2026-11-21T08:41:00.750Z 203.0.113.7 GET api.example.com /a?b=c 200 [says \"\"hi\"\" there]"),
    (Format::Csv,
     "# an export\ntime,method,path,status,ip,agent\n1795250460.5,GET,/a,200,192.0.2.1,curl\n# the end",
     "2026-11-21T08:41:00.500Z 192.0.2.1 GET - /a 200 [curl]"),
    (Format::Csv,
     "#time,path\n1795250460.5,/a",
     "2026-11-21T08:41:00.500Z - GET - /a - [-]"),
    (Format::Csv,
     "time,method,path,status,ip,agent\n1795250460.5,GET,\"/a,b\",200,192.0.2.1,curl",
     "2026-11-21T08:41:00.500Z 192.0.2.1 GET - /a,b 200 [curl]"),
];

#[test]
fn lines_of_each_program_are_read_and_their_format_is_found() {
    for (format, line, expected) in SAMPLES {
        for line in [(*line).to_owned(), format!("{line}\n"), format!("\u{feff}{line}\r\n\r\n")] {
            let outcome = Logs::of(&line).read();
            assert_eq!(outcome.shown(), [*expected], "{line}: {:?}", outcome.summary);
            assert_eq!(outcome.format(), Some(*format), "{line}");
        }
    }
}

/// A line of ours with these fields more.
fn own(more: &str) -> String {
    format!(
        r#"{{"time":"2026-11-21T08:41:00.123Z","request_id":"1f","client":"203.0.113.7","caller":"user:42","tier":"free","method":"GET","host":null,"path":"/a","status":429,"total_ms":1.5{more}}}"#
    )
}

#[test]
fn our_own_log_says_more() {
    let line = own(
        r#","denied":"limit","asked_by":"nginx","denials":10,"facts":{"tier":"pro","jwt.org":"acme"}"#,
    );
    let text = r#"2026-11-21T08:41:00.123Z 1f 203.0.113.7 user:42 free GET /a route=/** 429 core=1/1 asked_by=nginx denied=limit denied_by=core would_deny="a, b;candidate" denials=10 facts={"tier":"pro","jwt.org":"acme"} error="no: \"room\"" total=1.500ms aborted"#;
    for line in [&line, text] {
        let outcome = Logs::of(line).read();
        let own = outcome.records[0].own.as_ref().unwrap();
        let caller = [&own.caller, &own.tier].map(Option::as_deref);
        assert_eq!(caller, [Some("user:42"), Some("free")], "{line}");
        let words = [&own.denied, &own.asked_by].map(Option::as_deref);
        assert_eq!(words, [Some("limit"), Some("nginx")], "{line}");
        assert_eq!(own.stands_for, 10, "{line}");
        assert_eq!(outcome.records[0].took, Some(std::time::Duration::from_micros(1500)), "{line}");
        let facts = own.facts.as_ref().unwrap();
        assert_eq!(facts["jwt.org"], "acme", "{line}");
    }
}

#[test]
fn what_is_no_request_of_a_client_is_skipped_with_a_reason() {
    for (line, expected) in [
        (own(r#","asked_by":"http""#), "a charge by a program over HTTP"),
        (own(r#","asked_by":"redis""#), "a charge by a program over the Redis protocol"),
        (own(r#","asked_by":"rls""#), "descriptors"),
        (own("").replace("\"GET\"", "\"-\""), "never had a readable head"),
        (
            r#"2026-11-21T08:41:00.123Z 1f 203.0.113.7 - - - - route=- 400 total=1.500ms"#.into(),
            "never had a readable head",
        ),
        (
            r#"127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "OPTIONS * HTTP/1.0" 200 -"#.into(),
            "is about no path",
        ),
        (
            r#"127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "CONNECT a.example:443 HTTP/1.1" 405 -"#
                .into(),
            "CONNECT",
        ),
        (
            r#"{"level":"info","ts":1646861401.5,"msg":"serving initial configuration"}"#.into(),
            "an event of the program",
        ),
        (
            r#"{"logName":"projects/p/logs/x","textPayload":"b","timestamp":"2026-11-21T08:41:00Z"}"#
                .into(),
            "an event of the program",
        ),
    ] {
        let outcome = Logs::of(&line).read();
        let reasons: Vec<_> = outcome.summary.skipped.keys().collect();
        assert!(reasons.len() == 1 && reasons[0].contains(expected), "{line}: {reasons:?}");
        assert!(outcome.records.is_empty());
    }
}

#[test]
fn callers_are_named_by_fields_of_each_format() {
    let caddy = r#"{"level":"info","ts":1646861401.5,"request":{"remote_ip":"::1","method":"GET","host":"a","uri":"/","headers":{"X-Key":["k1"]}},"user_id":"ann","duration":0.5,"status":200}"#;
    for (line, names, expected) in [
        (own(r#","facts":{"jwt.org":"acme","n":7}"#), ["facts.jwt.org", "facts.n"], [Some("acme"), Some("7")]),
        (caddy.to_owned(), ["user_id", "request.headers.X-Key"], [Some("ann"), Some("k1")]),
        (
            r#"a.example - ann [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 5 "-" "-" "203.0.113.9""#.to_owned(),
            ["remote_user", "http_x_forwarded_for"],
            [Some("ann"), Some("203.0.113.9")],
        ),
        (
            r#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 5"#.to_owned(),
            ["remote_user", "remote_addr"],
            [None, Some("192.0.2.1")],
        ),
        ("time;path;Key\n1795250460;/;k1\n".to_owned(), ["key", "other"], [Some("k1"), None]),
    ] {
        let outcome = Logs::of(&line).wanted(&names).read();
        let fields: Vec<_> = outcome.records[0].fields.iter().map(Option::as_deref).collect();
        assert_eq!(fields, expected, "{line}");
    }
}

#[test]
fn columns_are_mapped() {
    let csv = "when,what,took,who,code\n\
               2026-11-21 08:41:00,/a?b,0.5,\"ann \"\"a\"\"\",200\n\
               2026-11-21T08:41:01Z,/b,,bob,\n";
    let columns = [
        ("end", "when"),
        ("path", "what"),
        ("duration", "took"),
        ("caller", "who"),
        ("status", "code"),
    ];
    let outcome = Logs::of(csv).columns(&columns).wanted(&["who"]).read();
    assert_eq!(
        outcome.shown(),
        [
            "2026-11-21T08:40:59.500Z - GET - /a?b 200 [-]",
            "2026-11-21T08:41:01.000Z - GET - /b - [-]"
        ]
    );
    assert_eq!(outcome.records[0].fields[0].as_deref(), Some("ann \"a\""));
    assert_eq!(outcome.summary.lines, 2, "the header is no line of the log");
    assert!(outcome.summary.notes[0].contains("offset"));
}

#[test]
fn columns_may_be_named_anew_in_the_midst_of_a_file() {
    let log = "#Fields: date time c-ip cs-method cs-uri-stem sc-status\n\
               2026-11-21 08:41:00 192.0.2.1 GET /a 200\n\
               2026-11-21 08:41:00 192.0.2.1 GET\n\
               #Software: Microsoft Internet Information Services 10.0\n\
               #Fields: date time cs-method cs-uri-stem c-ip X-Forwarded-For sc-status\n\
               2026-11-21 08:41:01 POST /b 192.0.2.1 203.0.113.7 404\n";
    let outcome = Logs::of(log).read();
    assert_eq!(
        outcome.shown(),
        [
            "2026-11-21T08:41:00.000Z 192.0.2.1 GET - /a 200 [-]",
            "2026-11-21T08:41:01.000Z 192.0.2.1 POST - /b 404 [-]"
        ]
    );
    assert!(outcome.reasons()[0].1.contains("has 4 columns"), "{:?}", outcome.reasons());
    assert_eq!(outcome.summary.notes, [""; 0], "its times are in UTC, and of the end");
    let outcome = Logs::of(log).columns(&[("client", "X-Forwarded-For")]).read();
    assert_eq!(outcome.records[1].client, Some([203, 0, 113, 7].into()));
    let log = "2026-11-21 08:41:00 192.0.2.1 GET /a 200\n";
    let outcome = Logs::of(log).format(Format::W3c).read();
    assert!(outcome.reasons()[0].1.contains("`#Fields:`"), "{:?}", outcome.reasons());
}

#[test]
fn the_side_of_times_is_doubted_only_where_a_line_does_not_say_it() {
    let line = combined(0, "/a");
    assert!(Logs::of(&line).read().summary.notes[0].contains("does not say whether"));
    let with_time = format!("{} 310 0.250 [shop-api-8080] [] -\n", line.trim_end());
    assert_eq!(Logs::of(&with_time).read().summary.notes, [""; 0]);
    assert!(!Logs::of(with_time + &line).read().summary.notes.is_empty());
    let line = format!("\"203.0.113.7, 10.0.0.1\" {line}");
    let notes = Logs::of(line).read().summary.notes;
    assert!(notes.iter().any(|note| note.contains("of 1 requests the client is the first")));
}

#[test]
fn fields_of_json_are_mapped() {
    let line = r#"{"time":"soon","at":{"end":"2026-11-21T08:41:00Z","ms":1500},"req":{"url":"/a","q":"?b=c","from":"192.0.2.1:80"},"who":"user:42","plan":"pro","code":200,"ip":"::1"}"#;
    let columns = [
        ("end", "at.end"),
        ("duration_ms", "at.ms"),
        ("path", "req.url"),
        ("query", "req.q"),
        ("ip", "req.from"),
        ("caller", "who"),
        ("tier", "plan"),
    ];
    let outcome = Logs::of(line).columns(&columns).wanted(&["who"]).read();
    assert_eq!(outcome.shown(), ["2026-11-21T08:40:58.500Z 192.0.2.1 GET - /a?b=c 200 [-]"]);
    assert_eq!(outcome.format(), Some(Format::Json));
    let own = outcome.records[0].own.as_ref().unwrap();
    assert_eq!([&own.caller, &own.tier].map(Option::as_deref), [Some("user:42"), Some("pro")]);
    assert_eq!(outcome.records[0].fields[0].as_deref(), Some("user:42"));
    // The names of a program are known, and what is named goes before them.
    let caddy = r#"{"level":"info","ts":1646861401.5,"request":{"remote_ip":"::1","method":"GET","host":"a","uri":"/","headers":{"X-Real-Ip":["192.0.2.9"]}},"duration":0.5,"status":200}"#;
    let outcome = Logs::of(caddy).columns(&[("client", "request.headers.X-Real-Ip")]).read();
    assert_eq!(outcome.shown(), ["2022-03-09T21:30:01.000Z 192.0.2.9 GET a / 200 [-]"]);
    assert_eq!(outcome.format(), Some(Format::Caddy));
    let list = r#"{"time":"2026-11-21T08:41:00Z","xff":"-, 192.0.2.9,+10.0.0.1","path":"/a","request":"POST /b HTTP/1.1"}"#;
    for (columns, expected) in [
        (&[("client", "xff")][..], "192.0.2.9 POST - /b"),
        (&[("client", "xff"), ("target", "path")], "192.0.2.9 POST - /a"),
    ] {
        let outcome = Logs::of(list).columns(columns).read();
        assert_eq!(outcome.shown(), [format!("2026-11-21T08:41:00.000Z {expected} - [-]")]);
    }
    // A missing field is named in the fault.
    let outcome = Logs::of(r#"{"a":1}"#).columns(&[("time", "when")]).read();
    assert!(outcome.reasons()[0].1.contains("none of the fields when"), "{:?}", outcome.reasons());
}

#[test]
fn a_time_in_two_columns_and_a_query_apart_are_put_together() {
    for (csv, columns, expected) in [
        (
            "date,time,path,query\n2026-11-21,08:41:00.5,/a,b=c\n",
            &[][..],
            "2026-11-21T08:41:00.500Z - GET - /a?b=c - [-]",
        ),
        (
            "day\tclock\tseconds\tpath\n21/Nov/2026\t08:41:00 +0100\t0.5\t/a\n",
            &[("date", "day"), ("end", "clock")],
            "2026-11-21T07:40:59.500Z - GET - /a - [-]",
        ),
        ("date,path\n2026-11-21T08:41:00Z,/a\n", &[], "2026-11-21T08:41:00.000Z - GET - /a - [-]"),
        (
            "date,time,path\nSaturday,1795250460,/a\n",
            &[],
            "2026-11-21T08:41:00.000Z - GET - /a - [-]",
        ),
    ] {
        let outcome = Logs::of(csv).columns(columns).read();
        assert_eq!(outcome.shown(), [expected], "{csv}: {:?}", outcome.summary.bad_lines);
    }
    let json = r#"{"day":"2026-11-21","clock":"08:41:00","path":"/a"}"#;
    let outcome = Logs::of(json).columns(&[("date", "day"), ("time", "clock")]).read();
    assert_eq!(outcome.shown(), ["2026-11-21T08:41:00.000Z - GET - /a - [-]"]);
}

#[test]
fn unknown_column_is_an_error() {
    let error = Logs::of("time,path\n1,/a\n").columns(&[("when", "time")]).error();
    assert!(error.contains("--column when") && error.contains("duration_ms"), "{error}");
}

#[test]
fn addresses_are_read_with_ports_and_names_are_told() {
    let line = |client: &str| {
        format!(
            r#"{{"start_time":"2026-11-21T08:41:00Z","method":"GET","path":"/","response_code":200,"downstream_remote_address":"{client}"}}"#
        )
    };
    for (client, expected) in [
        ("192.0.2.1", Some("192.0.2.1")),
        ("192.0.2.1:80", Some("192.0.2.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("[2001:db8::1]:80", Some("2001:db8::1")),
        ("fe80::1%eth0", Some("fe80::1")),
        ("::ffff:192.0.2.1", Some("192.0.2.1")),
        ("crawler.example", None),
    ] {
        let outcome = Logs::of(line(client)).read();
        let read = outcome.records[0].client.map(|client| client.to_string());
        assert_eq!(read.as_deref(), expected, "{client}");
        assert_eq!(outcome.summary.notes.is_empty(), expected.is_some(), "{client}");
    }
}

/// Logs that the programs have written, for `tests/simulate/programs.py`: six requests, the first
/// one of which took 2.5 seconds, and something that is no HTTP.
#[test]
fn logs_that_programs_have_written_are_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/simulate/logs");
    // HAProxy cuts lines off at 1,024 bytes, and with it a target.
    let long = format!("/{}", "x".repeat(500));
    for (name, format, bad) in [
        ("tollgate-json", Format::TollgateJson, 0),
        ("tollgate-text", Format::TollgateText, 0),
        ("nginx", Format::Combined, 1),
        ("nginx-main", Format::Combined, 1),
        ("nginx-json", Format::NginxJson, 1),
        ("caddy", Format::Caddy, 0),
        ("haproxy", Format::Haproxy, 1),
        ("haproxy-syslog", Format::Haproxy, 1),
        ("envoy", Format::Envoy, 1),
        ("envoy-json", Format::Envoy, 1),
        ("traefik", Format::Combined, 0),
        ("traefik-json", Format::Traefik, 0),
    ] {
        let outcome = Logs::of(std::fs::read(folder.join(format!("{name}.log"))).unwrap()).read();
        assert_eq!(outcome.format(), Some(format), "{name}");
        assert_eq!(outcome.summary.bad, bad, "{name}: {:?}", outcome.reasons());
        let mut requests: Vec<_> = outcome
            .records
            .iter()
            .map(|record| (record.method.as_str(), record.target.as_str()))
            .map(|(method, target)| (method, target.get(..501).unwrap_or(target)))
            .filter(|(_, target)| *target != "/ready")
            .collect();
        let mut expected = [
            ("GET", "/slow"),
            // Our own log has no queries.
            ("GET", if name.starts_with("tollgate") { "/a" } else { "/a?b=c&d=%20e" }),
            ("POST", "/b"),
            ("HEAD", "/c"),
            ("DELETE", "/missing"),
            ("GET", long.as_str()),
        ];
        assert_eq!(requests.first(), expected.first(), "{name}: the slow one came first");
        // Times of nginx's text are whole seconds, and durations have milliseconds.
        requests.sort_unstable();
        expected.sort_unstable();
        assert_eq!(requests, expected, "{name}");
        for record in outcome.records.iter().filter(|record| record.target.as_str() != "/ready") {
            let shown = shown(record);
            // Envoy writes an address of the machine in place of loopback.
            let client = if name == "envoy" { [192, 0, 2, 2] } else { [127, 0, 0, 1] };
            assert_eq!(record.client, Some(client.into()), "{name}: {shown}");
            if let Some(value) = &record.user_agent
                && record.target.as_str() == "/b"
            {
                assert_eq!(value, "says \"hi\" \\ there", "{name}");
            }
            assert!(record.host.as_ref().is_none_or(|host| host == "127.0.0.1"), "{name}: {shown}");
            let is_missing = matches!(record.target.as_str(), "/missing");
            assert_eq!(record.status, Some(if is_missing { 404 } else { 200 }), "{name}: {shown}");
        }
    }
}
