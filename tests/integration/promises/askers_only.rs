//! Who may not ask gets no answer to its question.

use crate::support::{Door, Policy, Proxy, Upstream, get, http2, post};

#[test]
fn only_askers_may_ask_at_any_door() {
    let upstream = Upstream::start();
    let settings = Door::LISTENERS.replace("protocol: ", "askers: [10.0.0.0/8], protocol: ");
    let policy = Policy::before(&upstream).rate("9/hour");
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    for door in [Door::Forward, Door::Nginx] {
        let judged = door.judge(&proxy, &get("/"), "10.0.0.1");
        assert_eq!(judged.status, 403, "{door:?}");
        assert!(!judged.fields.contains_key("x-ratelimit-limit"), "{door:?} {judged:?}");
    }
    for path in [
        "/envoy.service.auth.v3.Authorization/Check",
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        "/grpc.health.v1.Health/Check",
    ] {
        let call = http::Request::post(format!("http://tollgate{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body("\0\0\0\0\0".to_owned())
            .unwrap();
        let answer = http2(proxy.asked_at(1), vec![call]).remove(0);
        assert_eq!(answer.headers()["grpc-status"], "7", "{path}");
    }
    let question = post("/json", "{}").by_program();
    crate::support::Client::connect(proxy.asked_at(1)).send(&question).assert_status(403);
}
