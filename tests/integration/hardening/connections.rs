//! How many connections there may be: past that, they are closed as they are made.

use tollgate_upstream::downstream::Fault;

use crate::support::{Client, Policy, Proxy, Upstream, eventually, frames::Frames, get};

fn proxy(upstream: &Upstream, limits: &str) -> Proxy {
    let settings = format!("workers: 2\nlimits: {{ {limits} }}");
    Proxy::with_settings(&settings, &[&Policy::before(upstream)])
}

/// That one more connection is closed at once, and that there is room when one has gone.
fn assert_full_at(proxy: &Proxy, places: usize, fault: Fault) {
    let mut clients: Vec<Client> = (0..places).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(&get("/")).assert_status(200);
    }
    assert_eq!(proxy.connections(), places);
    for refused in 1..=3 {
        proxy.connect().assert_closed();
        assert_eq!(proxy.faults().total(fault), refused);
    }
    clients[0].send(&get("/")).assert_status(200);
    clients.pop();
    eventually("there is room again", || (proxy.connections() < places).then_some(()));
    proxy.get("/").assert_status(200);
    clients.clear();
    eventually("all have gone", || (proxy.connections() == 0).then_some(()));
}

#[test]
fn connections_in_all_are_bounded() {
    let upstream = Upstream::start();
    assert_full_at(&proxy(&upstream, "connections: 5"), 5, Fault::Full);
}

#[test]
fn connections_of_an_address_are_bounded() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "connections_per_address: 4");
    assert_full_at(&proxy, 4, Fault::AddressFull);
}

#[test]
fn place_is_given_back_however_a_connection_ends() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "connections: 100");
    for _ in 0..10 {
        // Silent, in the middle of a head, refused, answered, HTTP/2 that ends well and that does
        // not.
        drop(proxy.connect());
        proxy.connect().write("GET / HT");
        proxy.connect().write("x : y\r\n");
        proxy.get("/").assert_status(200);
        drop(Frames::open(proxy.address()));
        Frames::open(proxy.address()).write([0xff; 100]);
    }
    eventually("all have gone", || (proxy.connections() == 0).then_some(()));
}
