//! Servers of several owners are asked at once, so that a request waits as long as for one of them;
//! but an owner that has no room is asked alone.

use super::{find_owners, policy};
use crate::support::{
    Client, Cluster, Gremlin, HOUR, Proxy, Redis, Request, Upstream, eventually, get,
};

/// Three servers, each behind a gremlin, with a counter each.
struct Trio {
    servers: Servers,
    gremlins: [Gremlin; 3],
    _upstream: Upstream,
    proxy: Proxy,
    /// Of a caller, an address and a page: what they are called, and their counters' names. Each
    /// has been charged once.
    owners: [(String, String); 3],
}

enum Servers {
    Shards(Box<[Redis; 3]>),
    Cluster(Cluster),
}

impl Servers {
    fn shards() -> Servers {
        Servers::Shards(Box::new([(); 3].map(|()| Redis::start())))
    }

    fn cluster() -> Servers {
        Servers::Cluster(Cluster::start())
    }

    fn all(&self) -> [&Redis; 3] {
        match self {
            Servers::Shards(servers) => servers.each_ref(),
            Servers::Cluster(cluster) => [0, 1, 2].map(|number| cluster.node(number)),
        }
    }

    /// Has clients find the gremlins in the servers' place. Returns the settings that name them.
    fn hide_behind(&self, gremlins: &[Gremlin; 3]) -> String {
        let urls = gremlins.each_ref().map(Gremlin::url);
        match self {
            Servers::Shards(_) => {
                let shard = |(number, url)| format!("{{ name: shard-{number}, primary: {url} }}");
                let shards: Vec<String> = urls.iter().enumerate().map(shard).collect();
                format!("shards: [{}]", shards.join(", "))
            }
            Servers::Cluster(cluster) => {
                let ports = gremlins.each_ref().map(|gremlin| gremlin.port().to_string());
                for (server, port) in self.all().iter().zip(&ports) {
                    server.command(&["CONFIG", "SET", "cluster-announce-port", port]);
                }
                let is_listed = |node: usize| {
                    let lines: String = cluster.node(node).ask(&["CLUSTER", "NODES"]);
                    ports.iter().all(|port| lines.contains(&format!(":{port}@")))
                };
                eventually("all nodes list the gremlins", || (0..6).all(is_listed).then_some(()));
                format!("cluster: [{}]", urls.join(", "))
            }
        }
    }
}

impl Trio {
    fn start(servers: Servers, rates: [u32; 3], (on_store_error, deadline): (&str, &str)) -> Trio {
        let upstream = Upstream::start();
        let gremlins = servers.all().map(|server| Gremlin::before(server.port()));
        let topology = servers.hide_behind(&gremlins);
        let settings = format!(
            "workers: 1\ntrusted_proxies: [127.0.0.1]\n\
             store: {{ redis: {{ {topology}, clock: proxy }}, deadline: {deadline}, \
             fallback_header: true }}"
        );
        let policy = policy(&upstream, rates, on_store_error);
        let proxy = Proxy::with_settings(&settings, &[&policy]);
        let owners = find_owners(&servers.all(), [0, 1, 2], (&proxy, "one"));
        Trio { servers, gremlins, _upstream: upstream, proxy, owners }
    }

    fn request(&self) -> Request {
        self.request_to(&self.owners[2].0)
    }

    /// By the same caller from the same address.
    fn request_to(&self, page: &str) -> Request {
        get(page).by(&self.owners[0].0).from(&self.owners[1].0)
    }

    /// A request whose answer is not waited for.
    fn begin(&self) -> Client {
        let mut client = self.proxy.connect();
        client.write(self.request().to_bytes());
        client
    }

    /// What each server has counted.
    fn used(&self) -> [u32; 3] {
        let counters = self.servers.all().into_iter().zip(&self.owners);
        let used = counters.map(|(server, (_, counter))| {
            let state: Vec<u8> = server.ask(&["GET", counter]);
            u32::from_le_bytes(*state.first_chunk().expect("it is a fixed window"))
        });
        used.collect::<Vec<_>>().try_into().unwrap()
    }

    fn wait_until_used(&self, expected: [u32; 3]) {
        let is_so = || self.used() == expected;
        eventually(&format!("{expected:?} are used"), || is_so().then_some(()));
    }

    /// Waits until the other servers than this one have counted so many. What became of its own
    /// charge depends on how long the machine has let it be silent.
    fn wait_until_others_used(&self, slow: usize, expected: u32) {
        let is_so = || {
            let used = self.used();
            (0..3).filter(|server| *server != slow).all(|server| used[server] == expected)
        };
        eventually(&format!("{expected} are used"), || is_so().then_some(()));
    }

    /// Scripts that the servers were asked for so far.
    fn calls(&self) -> usize {
        let calls = |server: &Redis| {
            let stats: String = server.ask(&["INFO", "commandstats"]);
            let lines = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_eval"));
            let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next());
            calls.map(|calls| calls.parse::<usize>().unwrap()).sum::<usize>()
        };
        self.servers.all().into_iter().map(calls).sum()
    }

    fn behave(&self) {
        self.gremlins.iter().for_each(Gremlin::behave);
    }
}

const PLENTY: [u32; 3] = [100; 3];

#[test]
fn all_servers_are_asked_before_any_has_answered() {
    for servers in [Servers::shards(), Servers::cluster()] {
        let trio = Trio::start(servers, PLENTY, ("closed", "10s"));
        trio.gremlins.iter().for_each(Gremlin::keep_answers);
        let _client = trio.begin();
        trio.wait_until_used([2; 3]);
    }
}

#[test]
fn client_that_hangs_up_when_some_servers_have_answered_is_not_charged() {
    for slow in 0..3 {
        let trio = Trio::start(Servers::shards(), PLENTY, ("closed", "10s"));
        trio.gremlins[slow].keep_answers();
        let client = trio.begin();
        trio.wait_until_used([2; 3]);
        drop(client);
        eventually("the proxy has seen it", || (trio.proxy.connections() == 0).then_some(()));
        trio.behave();
        trio.wait_until_others_used(slow, 1);
    }
}

/// The first and the last by the order of those that may deny.
const FIRST_AND_LAST: [usize; 2] = [1, 2];

/// How long a server that does not answer is waited for: longer than a busy machine takes for
/// others.
const DEADLINE: &str = "3s";

#[test]
fn server_that_does_not_answer_leaves_the_others_as_they_were_where_limits_are_closed() {
    for slow in FIRST_AND_LAST {
        let trio = Trio::start(Servers::shards(), PLENTY, ("closed", DEADLINE));
        trio.gremlins[slow].keep_answers();
        trio.proxy.send(trio.request()).assert_status(503);
        trio.wait_until_others_used(slow, 1);
    }
}

#[test]
fn server_that_does_not_answer_leaves_the_request_to_the_others_where_limits_are_not_closed() {
    for (on_store_error, slow) in ["open", "local"].into_iter().zip(FIRST_AND_LAST) {
        let trio = Trio::start(Servers::shards(), PLENTY, (on_store_error, DEADLINE));
        trio.gremlins[slow].keep_answers();
        let response = trio.proxy.send(trio.request());
        response.assert_status(200).assert_field("x-tollgate-store", on_store_error);
        trio.wait_until_others_used(slow, 2);
    }
}

/// Has all five requests of an owner pass, and ten more denied. Returns how many scripts the denied
/// requests cost.
fn calls_of_denials(trio: &Trio, denied: impl Fn(usize) -> Request) -> usize {
    for used in 2..=5 {
        trio.proxy.send(trio.request()).assert_status(200);
        assert_eq!(trio.used(), [used; 3]);
    }
    let before = trio.calls();
    for number in 0..10 {
        trio.proxy.send(denied(number)).assert_status(429);
    }
    assert_eq!(trio.used(), [5; 3]);
    trio.calls() - before
}

#[test]
fn owner_that_has_no_room_is_asked_alone_until_it_has() {
    for servers in [Servers::shards(), Servers::cluster()] {
        let trio = Trio::start(servers, [5, 100, 100], ("closed", "10s"));
        // Each to another page: what was denied just now is not asked for again.
        let denied = |number| trio.request_to(&format!("/other-{number}"));
        assert_eq!(calls_of_denials(&trio, denied), 10);

        trio.proxy.advance(HOUR);
        trio.gremlins.iter().for_each(Gremlin::keep_answers);
        let _client = trio.begin();
        trio.wait_until_used([1; 3]);
    }
}

#[test]
fn what_many_share_and_has_no_room_is_asked_alone() {
    let trio = Trio::start(Servers::shards(), [100, 100, 5], ("closed", "10s"));
    let page = &trio.owners[2].0;
    let denied = |number| get(page).by(&format!("other-{number}")).from(&trio.owners[1].0);
    assert_eq!(calls_of_denials(&trio, denied), 10);
}
