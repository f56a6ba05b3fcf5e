//! Which server gets a request, and which gets none for a while.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use super::before;
use crate::support::{Policy, Proxy, Upstream, eventually};

/// A server that answers with a status that the test sets.
fn moody() -> (Upstream, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let said = Arc::clone(&status);
    let upstream = Upstream::scripted(move |exchange| {
        let status = said.load(Ordering::SeqCst);
        exchange.write(format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n"));
    });
    (upstream, status)
}

#[test]
fn servers_take_turns() {
    let servers = [Upstream::start(), Upstream::start(), Upstream::start()];
    let policy = before(&servers.each_ref(), "balance: round_robin");
    let proxy = Proxy::start(&policy);
    for _ in 0..12 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(servers.each_ref().map(Upstream::count), [4, 4, 4]);
}

#[test]
fn every_server_gets_some_by_default() {
    let servers = [Upstream::start(), Upstream::start(), Upstream::start()];
    let proxy = Proxy::start(&before(&servers.each_ref(), ""));
    // Two of three are compared each time: that one is never drawn does not happen.
    for _ in 0..100 {
        proxy.get("/").assert_status(200);
    }
    assert!(servers.iter().all(|server| server.count() > 0));
}

#[test]
fn servers_get_requests_by_weight() {
    let servers = [Upstream::start(), Upstream::start()];
    let [heavy, light] = servers.each_ref().map(Upstream::url);
    let fields = format!("servers: [{{ url: \"{heavy}\", weight: 3 }}, \"{light}\"]");
    let proxy = Proxy::start(&Policy::before_servers(&format!("{fields}, balance: round_robin")));
    for _ in 0..12 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(servers.each_ref().map(Upstream::count), [9, 3]);
}

#[test]
fn caller_keeps_the_server() {
    let servers = [Upstream::start(), Upstream::start(), Upstream::start()];
    let proxy = Proxy::start(&before(&servers.each_ref(), "balance: caller"));
    for caller in 0..100 {
        let before = servers.each_ref().map(Upstream::count);
        for _ in 0..3 {
            proxy.get_as(&format!("user-{caller}")).assert_status(200);
        }
        let after = servers.each_ref().map(Upstream::count);
        let got: Vec<usize> = (0..3).map(|at| after[at] - before[at]).collect();
        assert!(got.contains(&3), "caller {caller}: {got:?}");
    }
    assert!(servers.iter().all(|server| server.count() > 0));
}

#[test]
fn server_that_fails_gets_nothing_for_a_while_and_comes_back() {
    let ((bad, status), good) = (moody(), Upstream::start());
    status.store(500, Ordering::SeqCst);
    let fields = "balance: round_robin, retries: off, \
                  ejection: { failures: 2, status: [5xx], time: 2s, max_time: 2s }";
    let proxy = Proxy::start(&before(&[&bad, &good], fields));
    let failed = (0..4).filter(|_| proxy.get("/").status == 500).count();
    assert_eq!(failed, 2);
    eventually("it is left out", || (proxy.server_state(0) == "ejected").then_some(()));

    status.store(200, Ordering::SeqCst);
    eventually("it is back", || {
        proxy.get("/");
        (proxy.server_state(0) == "serving").then_some(())
    });
    let before = bad.count();
    for _ in 0..4 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(bad.count() - before, 2);
}

#[test]
fn no_request_fails_when_a_server_is_gone() {
    let servers = [Upstream::start(), Upstream::refusing(), Upstream::start()];
    let proxy = Proxy::start(&before(&servers.each_ref(), "balance: round_robin"));
    for _ in 0..30 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(servers[0].count() + servers[2].count(), 30);
}

/// Gives up each request with a body before that has come, in one of two ways.
fn impatient(answer: &'static str) -> Upstream {
    Upstream::scripted_at_head(move |exchange| {
        if exchange.request.method == "GET" {
            return exchange.answer_ok();
        }
        exchange.write(answer);
        exchange.close();
    })
}

#[test]
fn slow_upload_is_not_its_servers_fault() {
    for answer in ["", "HTTP/1.1 503 Slow\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"] {
        let servers = [impatient(answer), impatient(answer)];
        let fields = "balance: round_robin, retries: off, \
                      ejection: { failures: 1, status: [5xx], time: 1h, max_time: 1h }";
        let proxy = Proxy::start(&before(&servers.each_ref(), fields));
        for _ in 0..14 {
            let mut client = proxy.connect();
            client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nsome");
            assert!([502, 503].contains(&client.read().status));
        }
        for at in 0..2 {
            assert_eq!(proxy.server_state(at), "serving", "{answer:?}");
        }
        for _ in 0..4 {
            proxy.get("/").assert_status(200);
        }
    }
}

#[test]
fn at_most_half_of_the_servers_are_left_out_unless_more_may_be() {
    for (fields, expected) in [("", 2), (", max_ejected: 80", 4), (", max_ejected: 1", 1)] {
        let servers: [_; 5] = std::array::from_fn(|_| moody());
        servers.iter().for_each(|(_, status)| status.store(500, Ordering::SeqCst));
        let upstreams: Vec<&Upstream> = servers.iter().map(|(server, _)| server).collect();
        let fields = format!(
            "balance: round_robin, retries: off, \
             ejection: {{ failures: 1, status: [5xx], time: 1h, max_time: 1h{fields} }}"
        );
        let proxy = Proxy::start(&before(&upstreams, &fields));
        for _ in 0..30 {
            proxy.get("/").assert_status(500);
        }
        let ejected = (0..5).filter(|at| proxy.server_state(*at) == "ejected").count();
        assert_eq!(ejected, expected, "{fields}");
    }
}

#[test]
fn last_server_gets_requests_whatever_it_answers() {
    let one = moody();
    let other = moody();
    one.1.store(500, Ordering::SeqCst);
    other.1.store(500, Ordering::SeqCst);
    let fields = "ejection: { failures: 1, status: [5xx], time: 1h, max_time: 1h }";
    let proxy = Proxy::start(&before(&[&one.0, &other.0], fields));
    for _ in 0..20 {
        proxy.get("/").assert_status(500);
    }
    let mut counts = [one.0.count(), other.0.count()];
    counts.sort_unstable();
    assert_eq!(counts, [1, 19]);
}

#[test]
fn server_that_is_left_out_stays_so_across_a_reload() {
    let ((bad, status), good) = (moody(), Upstream::start());
    status.store(503, Ordering::SeqCst);
    let rule = "ejection: { failures: 1, status: [503], time: 1h, max_time: 1h }";
    let policy = |fields: &str| before(&[&bad, &good], &format!("{fields}, retries: off, {rule}"));
    let proxy = Proxy::start(&policy("balance: round_robin"));
    for _ in 0..4 {
        proxy.get("/");
    }
    assert_eq!(bad.count(), 1);
    proxy.install(&[&policy("balance: least_loaded")]);
    for _ in 0..10 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(bad.count(), 1);

    // A server that is new has done nothing yet.
    proxy.install(&[&before(&[&good], "")]);
    proxy.install(&[&policy("balance: round_robin")]);
    let failed = (0..4).filter(|_| proxy.get("/").status == 503).count();
    assert_eq!(failed, 1);
}
