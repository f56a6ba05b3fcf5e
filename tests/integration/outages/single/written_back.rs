//! What proxies admit while Redis is away is written back to it: no outage gives a caller a fresh
//! share.

use crate::support::{Gremlin, Policy, Proxy, Redis, Upstream, algorithms};

const LIMIT: u64 = 20;
/// A proxy of a fleet of two, and its connection to Redis.
struct Member {
    proxy: Proxy,
    gremlin: Gremlin,
}

impl Member {
    fn start(redis: &Redis, upstream: &Upstream, algorithm: &str) -> Member {
        let gremlin = Gremlin::before(redis.port());
        let store = format!("redis: {{ url: {} }}, instances: 2, deadline: 500ms", gremlin.url());
        let limit = format!("rate: {LIMIT}/day, algorithm: {algorithm}");
        let proxy = Proxy::with_store(&store, &Policy::before(upstream).core(&limit));
        let member = Member { proxy, gremlin };
        member.wait_until_decided();
        member
    }

    /// Waits until Redis decides, as the responses to other callers show.
    fn wait_until_decided(&self) {
        super::wait_until_decided(&self.proxy);
    }

    /// How many of these requests of alice pass.
    fn admit(&self, requests: u64) -> u64 {
        (0..requests).map(|_| u64::from(self.proxy.get_as("alice").status == 200)).sum()
    }

    fn lose_redis(&self) {
        self.gremlin.refuse();
        super::wait_until_undecided(&self.proxy);
    }

    /// Waits until Redis has all that was admitted without it.
    fn wait_until_written_back(&self) {
        super::wait_until_written_back(&self.proxy);
    }

    fn find_redis(&self) {
        self.gremlin.behave();
        self.wait_until_decided();
    }
}

fn fleet(redis: &Redis, upstream: &Upstream, algorithm: &str) -> [Member; 2] {
    [(); 2].map(|()| Member::start(redis, upstream, algorithm))
}

#[test]
fn many_outages_grant_one_share() {
    for algorithm in algorithms() {
        let upstream = Upstream::start();
        let redis = Redis::start();
        let fleet = fleet(&redis, &upstream, algorithm);
        let mut admitted = fleet[0].admit(4);
        for _ in 0..3 {
            fleet.iter().for_each(Member::lose_redis);
            admitted += fleet.iter().map(|member| member.admit(LIMIT)).sum::<u64>();
            fleet.iter().for_each(Member::find_redis);
            fleet.iter().for_each(Member::wait_until_written_back);
            admitted += fleet.iter().map(|member| member.admit(2)).sum::<u64>();
        }
        // One proxy has used up its part after the four; the other, which knows nothing of her from
        // Redis, has not.
        assert_eq!(admitted, LIMIT + 2, "{algorithm}");
    }
}

#[test]
fn proxy_that_was_cut_off_writes_back_what_others_did_not_see() {
    for algorithm in algorithms() {
        let upstream = Upstream::start();
        let redis = Redis::start();
        let [alone, other] = fleet(&redis, &upstream, algorithm);
        assert_eq!(alone.admit(4), 4);
        alone.lose_redis();
        assert_eq!(alone.admit(LIMIT), 8, "{algorithm}: its part of what is left");
        assert_eq!(other.admit(5), 5);
        alone.find_redis();
        assert_eq!(alone.admit(1), 1, "{algorithm}");
        assert_eq!(other.proxy.used("alice", "core"), 18, "{algorithm}");
        assert_eq!(other.admit(LIMIT), 2, "{algorithm}");
    }
}

#[test]
fn pending_charges_are_written_back_without_further_requests() {
    for algorithm in algorithms() {
        let upstream = Upstream::start();
        let redis = Redis::start();
        let [alone, other] = fleet(&redis, &upstream, algorithm);
        alone.lose_redis();
        assert_eq!(alone.admit(3), 3);
        assert!(alone.proxy.stores().pending() > 0);
        alone.gremlin.behave();
        alone.wait_until_written_back();
        assert_eq!(other.proxy.used("alice", "core"), 3, "{algorithm}");
    }
}

#[test]
fn proxy_that_ends_writes_pending_charges_back_first() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let [alone, other] = fleet(&redis, &upstream, "fixed_window");
    alone.gremlin.stall();
    for _ in 0..3 {
        alone.proxy.get_as("alice").assert_field("x-tollgate-store", "local");
    }
    alone.gremlin.behave();
    drop(alone);
    assert_eq!(other.proxy.used("alice", "core"), 3);
}
