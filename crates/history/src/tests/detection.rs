//! How the format of a file is found.

use super::{super::*, Logs, combined};

const CADDY_EVENT: &str = r#"{"level":"info","ts":1795250460,"logger":"tls.obtain","msg":"certificate obtained successfully"}"#;
const CADDY: &str = r#"{"level":"info","ts":1795250460,"msg":"handled request","request":{"remote_ip":"192.0.2.1","method":"GET","host":"a","uri":"/a"},"duration":0.1,"status":200}"#;
const TRAEFIK_EVENT: &str =
    r#"{"level":"info","msg":"Configuration loaded","time":"2026-11-21T08:41:00Z"}"#;
const TRAEFIK: &str = r#"{"ClientHost":"192.0.2.1","DownstreamStatus":200,"Duration":2000000,"RequestMethod":"GET","RequestPath":"/a","level":"info","msg":"","time":"2026-11-21T08:41:02Z"}"#;
const NO_REQUEST: &str = r#"192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] "-" 408 0 "-" "-""#;
const BAD_REQUEST: &str = r#"Feb  6 12:14:14 localhost haproxy[14389]: 1.2.3.4:5 [06/Feb/2009:12:14:14.655] in in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#;
const HAPROXY: &str = r#"Feb  6 12:14:14 localhost haproxy[14389]: 1.2.3.4:5 [06/Feb/2009:12:14:15.655] in in/a 0/0/0/0/500 200 0 - - ---- 1/1/0/0/0 0/0 "GET /a HTTP/1.1""#;
const NGINX_BAD: &str =
    r#"{"time_iso8601":"2026-11-21T08:41:00Z","remote_addr":"::1","request":"","status":"400"}"#;
const ENVOY_BAD: &str =
    r#"[2016-04-15T20:17:00.310Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-""#;

#[test]
fn a_log_may_begin_with_lines_that_are_no_requests() {
    let combined = combined(0, "/a");
    for (first, then, expected) in [
        (CADDY_EVENT, CADDY, Format::Caddy),
        (TRAEFIK_EVENT, TRAEFIK, Format::Traefik),
        (NO_REQUEST, combined.trim_end(), Format::Combined),
        (BAD_REQUEST, HAPROXY, Format::Haproxy),
        ("what is this", CADDY, Format::Caddy),
    ] {
        // Of the most, no request is among what is looked at.
        for count in [1, 60, 5000] {
            let text = format!("{}{then}\n", format!("{first}\n").repeat(count));
            if first == "what is this" && count > 1000 {
                continue;
            }
            let outcome = Logs::of(text).read();
            assert_eq!(outcome.format(), Some(expected), "{count} of {first}");
            assert_eq!(outcome.targets(), ["/a"], "{count} of {first}");
        }
    }
}

#[test]
fn lines_of_the_right_shape_say_the_format_without_any_request() {
    for (line, expected) in [
        (CADDY_EVENT, Format::Caddy),
        (TRAEFIK_EVENT, Format::Traefik),
        (NO_REQUEST, Format::Combined),
        (BAD_REQUEST, Format::Haproxy),
        (NGINX_BAD, Format::NginxJson),
        (ENVOY_BAD, Format::Envoy),
    ] {
        assert_eq!(Logs::of(line).read().format(), Some(expected), "{line}");
    }
}

#[test]
fn requests_of_one_program_are_no_events_of_another() {
    for (format, line) in [(Format::Traefik, CADDY), (Format::Caddy, TRAEFIK)] {
        assert_eq!(Logs::of(line).format(format).read().summary.bad, 1, "{line}");
    }
}

#[test]
fn what_carries_a_line_is_taken_off_and_what_is_not_known_is_bad() {
    let line = combined(0, "/a");
    for prefix in
        ["<190>Nov 21 08:41:00 web1 nginx: ", "2026-11-21T08:41:00.1Z stdout F ", "web-1  | "]
    {
        let outcome = Logs::of(format!("{prefix}{line}")).read();
        assert_eq!(outcome.records[0].client, Some([192, 0, 2, 1].into()), "{prefix}");
        assert_eq!(outcome.format(), Some(Format::Combined), "{prefix}");
    }
    for prefix in ["[x] ", "{a: ", "nginx: "] {
        let outcome = Logs::of(format!("{prefix}{line}")).format(Format::Combined).read();
        let reasons = outcome.reasons();
        assert!(reasons[0].1.contains("in front"), "{prefix}: {reasons:?}");
    }
}

#[test]
fn files_with_the_same_to_say_share_a_sentence() {
    let logs = (0..60).fold(Logs::new(), |logs, second| logs.and(combined(second, "/")));
    let notes = logs.read().summary.notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("0.log and 59 others: the format does not say"), "{notes:?}");
    let logs = Logs::of(combined(0, "/").replace("192.0.2.1", "a.example"))
        .and(combined(1, "/").replace("192.0.2.1", "b.example"));
    let notes = logs.read().summary.notes;
    assert!(notes[1].contains("0.log and 1 other: of 2 requests the client"), "{notes:?}");
}

#[test]
fn what_carries_a_line_of_json_is_no_part_of_it() {
    const NGINX: &str = r#"{"time":"21/Nov/2026:08:41:00 +0000","remote_addr":"192.0.2.1","request":"GET /a HTTP/1.1","status":200,"request_time":5.01}"#;
    const OWN: &str = r#"{"time":"2026-11-21T08:41:00.000Z","request_id":"1","client":"192.0.2.1","caller":null,"tier":null,"method":"GET","host":"a","path":"/a","status":200,"denied":null}"#;
    const ENVOY: &str = r#"{"start_time":"2026-11-21T08:41:00.000Z","method":"GET","path":"/a","response_code":200,"duration":5,"downstream_remote_address":"192.0.2.1:3"}"#;
    for (line, expected) in [
        (NGINX, Format::NginxJson),
        (CADDY, Format::Caddy),
        (TRAEFIK, Format::Traefik),
        (ENVOY, Format::Envoy),
        (OWN, Format::TollgateJson),
    ] {
        for prefix in [
            "",
            "2026-11-21T08:41:00.1Z stdout F ",
            "web-1  | ",
            "<190>Nov 21 08:41:00 web1 nginx: ",
        ] {
            let outcome = Logs::of(format!("{prefix}{line}\n")).read();
            assert_eq!(outcome.format(), Some(expected), "{prefix}{line}");
            assert_eq!(outcome.records[0].client, Some([192, 0, 2, 1].into()), "{prefix}{line}");
        }
    }
}

#[test]
fn a_word_in_front_of_the_address_is_no_client() {
    let line = combined(0, "/a");
    for prefix in ["Nov 21 08:41:00 web1 ", "2026-11-21 08:41:00 ", "web1 nginx "] {
        let outcome = Logs::of(format!("{prefix}{line}")).format(Format::Combined).read();
        assert_eq!(outcome.summary.bad, 1, "{prefix}");
        assert!(outcome.summary.bad_lines[0].reason.contains("in front"), "{prefix}");
    }
}
