//! Certificates that are replaced while traffic flows.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use super::listener;
use crate::support::{Policy, Proxy, Signer, Upstream, dial, last_request};

#[test]
fn twenty_renewals_under_load_lose_no_request() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let listener = listener(&format!("certificates: [{pair}]"));
    let proxy = Proxy::with_listeners(&listener, "workers: 2", &[&Policy::before(&upstream)]);
    let answered = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let shown = thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut shown = std::collections::HashSet::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let client = signer.client(&["http/1.1"]);
                        let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
                        shown.insert(stream.conn.peer_certificates().unwrap()[0].to_vec());
                        let answer = last_request(&mut stream, "/", "").unwrap();
                        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                    shown
                })
            })
            .collect();
        for _ in 0..20 {
            let before = answered.load(Ordering::Relaxed);
            signer.sign("api", &["api.example.com"]);
            assert_eq!(proxy.renew_certificates(&listener), Ok(1));
            assert_eq!(proxy.renew_certificates(&listener), Ok(0), "it has them already");
            while answered.load(Ordering::Relaxed) < before + 3
                && !clients.iter().any(|client| client.is_finished())
            {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let shown = clients.into_iter().flat_map(|client| client.join().unwrap());
        shown.collect::<std::collections::HashSet<_>>()
    });
    assert!(shown.len() > 15, "{} certificates were seen", shown.len());
}

#[test]
fn open_connections_go_on_when_the_certificate_is_replaced() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let listener = listener(&format!("certificates: [{pair}]"));
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(&upstream)]);
    let client = signer.client(&[]);
    let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
    signer.sign("api", &["api.example.com"]);
    assert_eq!(proxy.renew_certificates(&listener), Ok(1));
    assert!(last_request(&mut stream, "/", "").unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn broken_pair_is_reported_and_the_old_one_stays() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let other = signer.sign("other", &["api.example.com"]);
    assert_ne!(pair, other);
    let listener = listener(&format!("certificates: [{pair}]"));
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(&upstream)]);
    let certificate = signer.path("api.pem");
    let key = signer.path("api.key");
    let good = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    let others_key = fs::read(signer.path("other.key")).unwrap();
    for (certificate_now, key_now, problem) in [
        (&b"nothing"[..], &good.1[..], "no certificate in"),
        (&good.0, b"nothing", "no private key in"),
        (&good.0, &good.0, "no private key in"),
        (&good.0, &others_key, "is not the key of"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &good.1,
            "cannot be read",
        ),
    ] {
        fs::write(&certificate, certificate_now).unwrap();
        fs::write(&key, key_now).unwrap();
        let problems = proxy.renew_certificates(&listener).unwrap_err();
        assert!(problems.contains(problem), "{problems}");
        assert!(problems.contains("tollgate.yaml:2:"), "{problems}");
        dial(proxy.address(), &signer.client(&[]), "api.example.com").unwrap();
    }
    fs::remove_file(&key).unwrap();
    let problems = proxy.renew_certificates(&listener).unwrap_err();
    assert!(problems.contains("cannot read"), "{problems}");
    dial(proxy.address(), &signer.client(&[]), "api.example.com").unwrap();
}
