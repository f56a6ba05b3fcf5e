//! How long requests took, and the order that follows from it.

use std::time::Duration;

use super::Logs;

/// A line of Caddy that was written at a second, and whose request took so long.
fn caddy(written: u64, took: &str, target: &str) -> String {
    format!(
        r#"{{"level":"info","ts":{},"msg":"handled request","request":{{"remote_ip":"192.0.2.1","method":"GET","host":"a","uri":"{target}"}},"duration":{took},"status":200}}"#,
        1_795_250_460 + written
    ) + "\n"
}

#[test]
fn requests_that_took_longer_than_ten_seconds_come_when_they_came() {
    let mut text = String::new();
    for second in 0..2000 {
        text += &caddy(second, "0.02", "/short");
        if second % 100 == 99 {
            text += &caddy(second, "90", "/long");
        }
    }
    let outcome = Logs::of(text).read();
    assert_eq!(outcome.summary.late, 0);
    let long: Vec<_> =
        outcome.records.iter().filter(|record| record.target.as_str() == "/long").collect();
    assert_eq!(long.len(), 20);
    for (record, end) in long.iter().zip((99..).step_by(100)) {
        assert_eq!(record.time.as_micros() / 1_000_000, 1_795_250_460 + end - 90);
    }
}

#[test]
fn a_late_request_ends_when_it_did() {
    // The first 5000 lines say nothing of long requests.
    let mut text: String = (0..5000).map(|second| caddy(second, "0.5", "/short")).collect();
    text += &caddy(5000, "300", "/long");
    text += &caddy(5000, "7000", "/longer");
    text += &(5001..6000).map(|second| caddy(second, "0.5", "/short")).collect::<String>();
    let outcome = Logs::of(text).read();
    assert_eq!(outcome.summary.late, 2);
    for name in ["/long", "/longer"] {
        let late = outcome.records.iter().find(|record| record.target.as_str() == name).unwrap();
        let end = late.time + late.took.unwrap();
        assert_eq!(end.as_micros() / 1_000_000, 1_795_250_460 + 5000, "{name}");
        assert!(late.took.unwrap() < Duration::from_secs(15), "{name}: {:?}", late.took);
    }
}

#[test]
fn durations_are_read_in_each_format() {
    for (line, expected) in [
        (
            r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in b/s 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /i HTTP/1.1""#,
            Some(109),
        ),
        (
            r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in b/s 10/0/30/69/+109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /i HTTP/1.1""#,
            Some(109),
        ),
        (
            r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in b/s 10/0/30/69/-1 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /i HTTP/1.1""#,
            None,
        ),
        (
            r#"haproxy[1]: {"accept_date":"2026-11-21T08:41:00Z","client_ip":"::1","http_method":"GET","http_uri":"/i","status_code":200,"Ta":109}"#,
            Some(109),
        ),
        (
            r#"172.18.0.1 - - [21/Nov/2026:08:41:00 +0000] "GET / HTTP/1.1" 200 418 "-" "-" 7 "whoami@docker" "http://172.18.0.3:80" 109ms"#,
            Some(109),
        ),
        (
            r#"[2016-04-15T20:17:00.310Z] "POST / HTTP/2" 204 - 154 0 109 100 "10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80""#,
            Some(109),
        ),
        (
            r#"[2020-11-25T21:26:18.409Z] "GET / HTTP/1.1" 418 - via_upstream - "-" 0 135 109 - "-" "curl/7.73.0-DEV" "84961386" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin default"#,
            Some(109),
        ),
        (&caddy(0, "0.109", "/"), Some(109)),
        (&caddy(0, r#""1m0.109s""#, "/"), Some(60_109)),
        ("time,path,duration\n1795250460,/,0.109\n", Some(109)),
        ("time,path,duration_ms\n1795250460,/,109\n", Some(109)),
    ] {
        let outcome = Logs::of(line).read();
        let took = outcome.records[0].took;
        assert_eq!(took, expected.map(Duration::from_millis), "{line}");
        let notes = outcome.summary.notes.join("\n");
        assert!(!notes.contains("duration"), "{line}: {notes}");
    }
}

#[test]
fn durations_that_cannot_be_read_are_counted() {
    for took in ["-5.0", r#""abc""#, r#""1,5""#, "1e18"] {
        let outcome = Logs::of(caddy(0, took, "/a") + &caddy(1, "0.5", "/b")).read();
        assert_eq!(outcome.records[0].took, None, "{took}");
        let notes = outcome.summary.notes.join("\n");
        assert!(notes.contains("of 1 requests the duration is in no form"), "{took}: {notes}");
    }
}

#[test]
fn the_first_long_request_says_how_long_others_may_take() {
    let mut text: String = (0..3000).map(|second| caddy(second, "0.5", "/short")).collect();
    for end in (3000..9000).step_by(100) {
        text += &caddy(end, "590", "/long");
        text += &(end..end + 100).map(|second| caddy(second, "0.5", "/short")).collect::<String>();
    }
    let outcome = Logs::of(text).read();
    // Those that had begun before it was known.
    assert!((1..=6).contains(&outcome.summary.late), "{}", outcome.summary.late);
}
