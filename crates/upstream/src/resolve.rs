//! Names of servers: when they are looked up, and what is remembered of it.
//!
//! A lookup that fails changes nothing but when the next one is: addresses that were right a moment
//! ago are better than none.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpStream, lookup_host},
    task::JoinSet,
    time::timeout,
};

/// Asks for the addresses of a name: the system, or what a test puts in its place.
pub(super) type Resolver =
    fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// How long a lookup may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// When a name is looked up again that could not be; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long an address may take to be connected to if it is to be used at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// More addresses of a name are not used.
const MAX_ADDRESSES: usize = 256;

/// The lookups of one name.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// When the next one is; none: at once.
    due: Option<Instant>,
    /// Failures in a row.
    failures: u32,
    has_ended: bool,
}

impl Lookups {
    /// Whether one is to begin now; if so, it does.
    pub(super) fn begin_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_none_or(|due| due <= now);
        if is_due {
            // The end of this one sets it. Should there be none, another begins all the same.
            self.due = Some(now + 2 * LOOKUP_TIMEOUT);
        }
        is_due
    }

    /// One has ended. True if that is news: it has failed, and the one before had not.
    pub(super) fn end(&mut self, now: Instant, has_succeeded: bool, every: Duration) -> bool {
        self.has_ended = true;
        if has_succeeded {
            self.failures = 0;
            self.due = Some(now + every);
            return false;
        }
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures)).min(every);
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now + pause);
        self.failures == 1
    }

    /// Whether it is known what comes of asking.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// `every` may have become shorter.
    pub(super) fn hasten(&mut self, now: Instant, every: Duration) {
        self.due = self.due.map(|due| due.min(now + every));
    }
}

/// Asks the system.
pub(super) fn ask_system(
    host: String,
) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
    Box::pin(async move {
        let addresses = lookup_host((host, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    })
}

/// All addresses of a server, in an order that does not depend on who was asked.
///
/// # Errors
/// The name has no address, or the resolver did not answer in time.
pub(super) async fn look_up(
    resolver: Resolver,
    host: &str,
    port: u16,
) -> io::Result<Vec<SocketAddr>> {
    let found = timeout(LOOKUP_TIMEOUT, resolver(host.to_owned()));
    let found = found.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let mut addresses: Vec<SocketAddr> =
        found.into_iter().map(|address| SocketAddr::new(address.to_canonical(), port)).collect();
    addresses.sort();
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    match addresses.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")),
        false => Ok(listening(addresses).await),
    }
}

/// Of addresses of both families, those that accept a connection; all of them if none does.
///
/// Host names, `localhost` first of all, often have an IPv4 and an IPv6 address while the server
/// listens at one of them only. That is no failure of the server, and no request should have to
/// discover it.
async fn listening(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_mixed =
        addresses.iter().any(SocketAddr::is_ipv4) && addresses.iter().any(SocketAddr::is_ipv6);
    if !is_mixed {
        return addresses;
    }
    let mut attempts = JoinSet::new();
    for address in addresses.clone() {
        attempts.spawn(async move {
            let opened = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
            opened.is_ok_and(|stream| stream.is_ok()).then_some(address)
        });
    }
    let mut open: Vec<SocketAddr> = attempts.join_all().await.into_iter().flatten().collect();
    open.sort();
    if open.is_empty() { addresses } else { open }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    const EVERY: Duration = Duration::from_secs(30);

    #[test]
    fn names_are_looked_up_at_once_and_again() {
        let mut lookups = Lookups::default();
        let now = Instant::now();
        assert!(lookups.begin_if_due(now));
        assert!(!lookups.begin_if_due(now));
        assert!(!lookups.has_ended());
        assert!(!lookups.end(now, true, EVERY));
        assert!(lookups.has_ended());
        assert!(!lookups.begin_if_due(now + EVERY - Duration::from_millis(1)));
        assert!(lookups.begin_if_due(now + EVERY));
    }

    #[test]
    fn failures_are_news_once_and_tried_again_sooner() {
        let mut lookups = Lookups::default();
        let mut now = Instant::now();
        for (number, pause) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            assert!(lookups.begin_if_due(now), "{number}");
            assert_eq!(lookups.end(now, false, EVERY), number == 0, "{number}");
            now += Duration::from_secs(pause) - Duration::from_millis(1);
            assert!(!lookups.begin_if_due(now), "{number}");
            now += Duration::from_millis(1);
        }
        assert!(!lookups.end(now, true, EVERY));
        assert!(lookups.end(now, false, EVERY));
    }

    #[tokio::test]
    async fn addresses_come_in_order_and_once_each() {
        let some: Resolver = |_| {
            let addresses = ["10.0.0.2", "::ffff:10.0.0.1", "10.0.0.2"];
            Box::pin(async move { Ok(addresses.map(|text| text.parse().unwrap()).to_vec()) })
        };
        let expected = ["10.0.0.1:80", "10.0.0.2:80"];
        let expected = expected.map(|text| text.parse().unwrap());
        assert_eq!(look_up(some, "api", 80).await.unwrap(), expected);

        let none: Resolver = |_| Box::pin(async { Ok(Vec::new()) });
        let error = look_up(none, "api", 80).await.unwrap_err();
        assert_eq!(error.to_string(), "the name has no addresses");
    }

    #[tokio::test]
    async fn of_both_kinds_of_addresses_those_are_used_that_are_listened_at() {
        let both: Resolver =
            |_| Box::pin(async { Ok(vec![[127, 0, 0, 1].into(), Ipv6Addr::LOCALHOST.into()]) });
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(look_up(both, "localhost", address.port()).await.unwrap().len(), 2);
        let _listener = socket.listen(1).unwrap();
        assert_eq!(look_up(both, "localhost", address.port()).await.unwrap(), [address]);
    }
}
