//! Servers that are asked how they are.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::before;
use crate::support::{Proxy, Upstream, eventually};

/// A server that is asked at `/healthz`, and well for as long as the test says.
fn patient() -> (Upstream, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(true));
    let said = Arc::clone(&is_well);
    let upstream = Upstream::scripted(move |exchange| {
        let is_question = exchange.request.target == "/healthz?deep=1";
        if is_question && !said.load(Ordering::SeqCst) {
            exchange.write("HTTP/1.1 503 Ill\r\ncontent-length: 0\r\n\r\n");
        } else {
            exchange.answer_ok();
        }
    });
    (upstream, is_well)
}

const CHECK: &str = "balance: round_robin, health_check: { path: \"/healthz?deep=1\", \
                     interval: 20ms, healthy_after: 2, unhealthy_after: 2 }";

fn wait_for(proxy: &Proxy, server: usize, state: &str) {
    eventually(state, || (proxy.server_state(server) == state).then_some(()));
}

/// Requests that were no questions.
fn asked(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.target == "/").count()
}

#[test]
fn server_gets_requests_while_it_is_well() {
    let ((one, is_well), other) = (patient(), Upstream::start());
    let proxy = Proxy::start(&before(&[&one, &other], CHECK));
    is_well.store(false, Ordering::SeqCst);
    wait_for(&proxy, 0, "unhealthy");
    let before = asked(&one);
    for _ in 0..10 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(asked(&one), before);

    is_well.store(true, Ordering::SeqCst);
    wait_for(&proxy, 0, "serving");
    for _ in 0..10 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(asked(&one) - before, 5);
}

#[test]
fn server_that_refuses_connections_is_unhealthy() {
    let servers = [Upstream::refusing(), Upstream::start()];
    let proxy = Proxy::start(&before(&servers.each_ref(), CHECK));
    wait_for(&proxy, 0, "unhealthy");
    assert_eq!(proxy.server_state(1), "serving");
}

#[test]
fn server_that_does_not_answer_is_not_well() {
    let servers = [Upstream::silent(), Upstream::start()];
    let check = "health_check: { path: /, interval: 20ms, timeout: 50ms, unhealthy_after: 1 }";
    let proxy = Proxy::start(&before(&servers.each_ref(), check));
    wait_for(&proxy, 0, "unhealthy");
}

#[test]
fn all_get_requests_when_none_is_well() {
    let (upstream, is_well) = patient();
    is_well.store(false, Ordering::SeqCst);
    let proxy = Proxy::start(&before(&[&upstream], CHECK));
    wait_for(&proxy, 0, "unhealthy");
    proxy.get("/").assert_status(200);
}

#[test]
fn question_is_a_plain_get_on_a_connection_of_its_own() {
    let upstream = Upstream::start();
    let check = "health_check: { path: /up, host: \"api.example.com:8080\", interval: 1h }";
    let _proxy = Proxy::start(&before(&[&upstream], check));
    upstream.wait_for(1);
    let question = upstream.last();
    assert_eq!((question.method.as_str(), question.target.as_str()), ("GET", "/up"));
    for (name, value) in
        [("host", "api.example.com:8080"), ("connection", "close"), ("user-agent", "tollgate")]
    {
        assert_eq!(question.fields.one(name), Some(value), "{name}");
    }
}

#[test]
fn server_that_is_not_asked_any_more_is_well() {
    let ((one, is_well), other) = (patient(), Upstream::start());
    is_well.store(false, Ordering::SeqCst);
    let proxy = Proxy::start(&before(&[&one, &other], CHECK));
    wait_for(&proxy, 0, "unhealthy");
    // What is known stays across a reload that changes something else.
    proxy.install(&[&before(&[&one, &other], &format!("{CHECK}, max_connections: 7"))]);
    assert_eq!(proxy.server_state(0), "unhealthy");
    proxy.install(&[&before(&[&one, &other], "balance: round_robin")]);
    assert_eq!(proxy.server_state(0), "serving");
}
