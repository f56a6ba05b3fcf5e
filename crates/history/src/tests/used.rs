//! What requests have used and cost.

use tollgate_usage::logged::LoggedUse;

use super::{Format, Logs};

/// What a line of a format says of it.
fn used(format: Format, columns: &[(&str, &str)], line: &str) -> LoggedUse {
    let outcome = Logs::of(format!("{line}\n")).format(format).columns(columns).read();
    assert_eq!(outcome.summary.bad, 0, "{line}: {:?}", outcome.reasons());
    outcome.records.into_iter().next().unwrap().used
}

#[test]
fn lengths_of_bodies_are_read_in_each_format() {
    for (format, line, expected) in [
        (
            Format::Combined,
            r#"192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] "GET / HTTP/1.1" 200 418 "-" "-""#,
            (None, Some(418)),
        ),
        (
            Format::Common,
            r#"192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] "GET / HTTP/1.1" 304 -"#,
            (None, None),
        ),
        (
            Format::NginxJson,
            r#"{"msec":"1795250460.1","remote_addr":"192.0.2.1","request":"GET / HTTP/1.1","status":"200","body_bytes_sent":"418","request_length":"99"}"#,
            (Some(99), Some(418)),
        ),
        (
            Format::Haproxy,
            r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in b/s 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /i HTTP/1.1""#,
            (None, Some(2750)),
        ),
        (
            Format::Envoy,
            r#"[2016-04-15T20:17:00.310Z] "POST / HTTP/2" 204 - 154 7 109 100 "10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80""#,
            (Some(154), Some(7)),
        ),
        (
            Format::TollgateText,
            "2026-11-21T08:41:00.123Z 1f 203.0.113.7 user:42 pro POST /v1 route=/** 200 in=9 out=112 total=1.377ms",
            (Some(9), Some(112)),
        ),
    ] {
        let used = used(format, &[], line);
        assert_eq!((used.request_bytes, used.response_bytes), expected, "{line}");
    }
}

#[test]
fn costs_that_a_response_told_are_read_by_limit() {
    let shown = |used: LoggedUse| {
        let costs = used.costs.into_iter();
        costs
            .map(|cost| (cost.limit.map(String::from), cost.units, cost.reserved))
            .collect::<Vec<_>>()
    };
    let text = |rest: &str| {
        let line = format!(
            "2026-11-21T08:41:00.123Z 1f 203.0.113.7 user:42 pro POST /v1 route=/** 200 {rest} out=1 \
             total=1ms"
        );
        shown(used(Format::TollgateText, &[], &line))
    };
    let none: Vec<(Option<String>, Option<u64>, Option<u64>)> = Vec::new();
    assert_eq!(text("cost=130 reserved=408 cost_source=openai"), [(None, Some(130), Some(408))]);
    assert_eq!(text("cost=408 reserved=408 cost_source=reserve"), none);
    assert_eq!(text("cost=2 reserved=1 cost_source=response_bytes"), none);
    let json = |limits: &str| {
        let line = format!(
            r#"{{"time":"2026-11-21T08:41:00.123Z","request_id":"1f","client":"203.0.113.7","caller":null,"tier":null,"method":"POST","host":"a","path":"/v1","route":"/**","status":200,"exempt":false,"decided_by":"memory","denied":null,"denied_by":null,"would_deny":null,"error":null,"limit":"calls","used":1,"of":9,"cost":1,"limits":[{limits}],"user_agent":null,"upstream_ms":1,"request_bytes":5,"response_bytes":6,"total_ms":7}}"#
        );
        let used = used(Format::TollgateJson, &[], &line);
        assert_eq!((used.request_bytes, used.response_bytes), (Some(5), Some(6)));
        shown(used)
    };
    let calls = r#"{"name":"calls","cost":1,"decided_by":"memory"}"#;
    let of = |name: &str, source: &str| {
        format!(r#"{{"name":"{name}","cost":130,"reserved":408,"cost_source":"{source}"}}"#)
    };
    let [tokens, bytes] = [of("tokens", "auto"), of("bytes", "response_bytes")];
    assert_eq!(json(calls), []);
    // What was charged at first is of use where the body of the request told that.
    let of = |name: &str, units, reserved| (Some(name.to_owned()), units, Some(reserved));
    let told = [of("calls", None, 1), of("bytes", None, 408), of("tokens", Some(130), 408)];
    assert_eq!(json(&format!("{calls},{bytes},{tokens}")), told);
}

#[test]
fn a_column_has_the_cost() {
    let line = r#"{"time":"2026-11-21T08:41:00Z","ip":"192.0.2.1","path":"/","spent":{"units":"12.5"},"out":7}"#;
    let columns = [("cost", "spent.units"), ("response_bytes", "out")];
    let used = used(Format::Json, &columns, line);
    assert_eq!((used.costs[0].units, used.response_bytes), (Some(13), Some(7)));
}
