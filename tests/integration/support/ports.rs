//! Ports for what a test starts later, or never.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use socket2::{Domain, Socket, Type};

/// Where the nodes of a Redis Cluster talk to each other: so far above the port for clients.
const BUS: u16 = 10_000;

/// A free port, whose bus port is free as well.
///
/// Both are below the ports that the system gives to outgoing connections and to listeners that name
/// none: nobody takes the port of a server that a test will start, or has stopped and will start
/// again. Another process may be faster all the same, so who starts a server must be ready to try
/// again.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    static ASKED: AtomicU32 = AtomicU32::new(0);
    // Tests that run in several processes begin at different places.
    let begin = process::id().wrapping_mul(7919);
    let is_free = |port: &u16| {
        [*port, port + BUS].iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
    };
    let mut candidates = (0..BUS).map(|_| {
        let number = begin.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed));
        FIRST + (number % u32::from(BUS)) as u16
    });
    candidates.find(is_free).expect("some port is free")
}

/// A free port of this machine, as an address.
pub(crate) fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// A port that nobody listens at, and nobody else gets while this is kept: connections are refused.
pub(crate) struct ClosedPort(Socket);

impl ClosedPort {
    pub(crate) fn take() -> ClosedPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        ClosedPort(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }
}
