//! Groups as requests, lookups, reloads and failures see them.

use std::num::NonZeroU32;

use http::HeaderValue;
use tollgate_policy::{Balance, Ejection, Protocol};

use super::*;
use crate::MemberState;

const SECOND: Duration = Duration::from_secs(1);

fn server(host: &str, port: u16) -> Server {
    Server {
        host: host.into(),
        port,
        weight: NonZeroU32::MIN,
        authority: HeaderValue::from_static("api"),
    }
}

fn addresses(ports: impl IntoIterator<Item = u16>) -> Upstream {
    Upstream::new("api", ports.into_iter().map(|port| server("127.0.0.1", port)).collect())
}

fn name(host: &str) -> Upstream {
    Upstream::new("api", vec![server(host, 80)])
}

fn found(addresses: &[&str]) -> io::Result<Vec<SocketAddr>> {
    Ok(addresses.iter().map(|address| address.parse().unwrap()).collect())
}

fn failed() -> io::Result<Vec<SocketAddr>> {
    Err(io::ErrorKind::NotFound.into())
}

/// The ports that get requests, in order.
fn chosen(group: &Group, choice: Choice<'_>, now: Instant) -> Vec<u16> {
    let choose = |_| group.choose_at(choice, || now).map(|member| member.address.port());
    let mut ports: Vec<u16> = (0..100).filter_map(choose).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn member(group: &Group, port: u16) -> Arc<Member> {
    let member_set = group.member_set.load();
    let mut members = member_set.members.iter();
    Arc::clone(members.find(|member| member.address.port() == port).unwrap())
}

fn fail(group: &Group, port: u16, now: Instant) {
    (0..5).for_each(|_| group.judge(&member(group, port), now));
}

#[test]
fn all_servers_get_requests_whatever_the_balance() {
    for balance in [Balance::LeastLoaded, Balance::RoundRobin] {
        let group = Group::new(&Upstream { balance, ..addresses([1, 2, 3]) });
        let now = Instant::now();
        assert_eq!(chosen(&group, Choice::default(), now), [1, 2, 3], "{balance:?}");
    }
}

#[test]
fn callers_keep_their_server() {
    let group = Group::new(&Upstream { balance: Balance::Caller, ..addresses([1, 2, 3]) });
    let now = Instant::now();
    let of = |caller| chosen(&group, Choice { caller, tried: &[] }, now);
    let homes: Vec<_> = (0..100).map(|caller| of(caller << 64 | caller)).collect();
    assert!(homes.iter().all(|ports| ports.len() == 1), "{homes:?}");
    assert!([1, 2, 3].iter().all(|port| homes.contains(&vec![*port])), "{homes:?}");
}

#[test]
fn busy_servers_get_less() {
    let group = Group::new(&addresses([1, 2]));
    let busy = member(&group, 1).load();
    let now = Instant::now();
    assert_eq!(chosen(&group, Choice::default(), now), [2]);
    drop(busy);
    assert_eq!(chosen(&group, Choice::default(), now), [1, 2]);
}

#[test]
fn member_that_failed_a_request_gets_it_again_only_if_no_other_is_left() {
    let group = Group::new(&addresses([1, 2]));
    let one = member(&group, 1);
    let two = member(&group, 2);
    let now = Instant::now();
    let of = |tried: &[Arc<Member>]| chosen(&group, Choice { caller: 0, tried }, now);
    assert_eq!(of(&[Arc::clone(&one)]), [2]);
    assert_eq!(of(&[one, two]), [1, 2]);
}

#[test]
fn what_is_tried_again_takes_no_turn_from_others() {
    let group = Group::new(&Upstream { balance: Balance::RoundRobin, ..addresses([1, 2]) });
    let one = member(&group, 1);
    let port = |tried: &[_]| group.choose(Choice { caller: 0, tried }).unwrap().address.port();
    let ports: Vec<u16> =
        (0..3).flat_map(|_| [port(&[]), port(&[Arc::clone(&one)]), port(&[])]).collect();
    assert_eq!(ports, [1, 2, 2, 1, 2, 2, 1, 2, 2]);
}

#[test]
fn who_fails_is_left_out_and_tried_once_its_time_is_over() {
    let group = Group::new(&addresses([1, 2]));
    let now = Instant::now();
    fail(&group, 1, now);
    assert_eq!(chosen(&group, Choice::default(), now), [2]);
    let later = now + 11 * SECOND;
    let tries = (0..100).filter(|_| {
        let chosen = group.choose_at(Choice::default(), || later).unwrap();
        chosen.address.port() == 1
    });
    assert_eq!(tries.count(), 1);
    member(&group, 1).succeed();
    assert_eq!(chosen(&group, Choice::default(), later), [1, 2]);
}

#[test]
fn last_server_is_not_left_out() {
    let ejection = Some(Ejection { most_percent: 100, ..Ejection::default() });
    let group = Group::new(&Upstream { ejection, ..addresses([1, 2, 3]) });
    let now = Instant::now();
    [1, 2, 3, 3].into_iter().for_each(|port| fail(&group, port, now));
    assert_eq!(chosen(&group, Choice::default(), now), [3]);
    let states = |group: &Group| -> Vec<MemberState> {
        group.report(now).iter().map(|server| server.members[0].state).collect()
    };
    let ejected = MemberState::Ejected;
    let serving = MemberState::Serving;
    assert_eq!(states(&group), [ejected, ejected, serving]);

    let alone = Group::new(&addresses([1]));
    fail(&alone, 1, now);
    assert_eq!(states(&alone), [serving]);
}

#[test]
fn last_server_is_not_left_out_by_two_threads_at_once() {
    for _ in 0..50 {
        let group = Group::new(&addresses([1, 2]));
        let now = Instant::now();
        std::thread::scope(|scope| {
            for port in [1, 2] {
                let group = &group;
                scope.spawn(move || fail(group, port, now));
            }
        });
        assert_eq!(chosen(&group, Choice::default(), now).len(), 1);
    }
}

#[test]
fn no_member_is_ejected_without_a_rule() {
    let group = Group::new(&Upstream { ejection: None, ..addresses([1, 2]) });
    let now = Instant::now();
    fail(&group, 1, now);
    assert_eq!(chosen(&group, Choice::default(), now), [1, 2]);
}

#[test]
fn all_get_requests_again_when_none_is_well() {
    let group = Group::new(&addresses([1, 2]));
    let check = tollgate_policy::HealthCheck {
        path: "/".into(),
        host: None,
        interval: SECOND,
        timeout: SECOND,
        healthy_after: NonZeroU32::MIN,
        unhealthy_after: NonZeroU32::MIN,
        statuses: Default::default(),
    };
    let now = Instant::now();
    assert!(member(&group, 1).health.note(false, &check));
    assert_eq!(chosen(&group, Choice::default(), now), [2]);
    assert!(member(&group, 2).health.note(false, &check));
    assert_eq!(chosen(&group, Choice::default(), now), [1, 2]);
}

#[test]
fn all_addresses_of_a_name_are_used_and_share_its_weight() {
    let mut upstream = name("api.internal");
    upstream.servers.push(server("127.0.0.1", 1));
    upstream.balance = Balance::RoundRobin;
    let group = Group::new(&upstream);
    let now = Instant::now();
    assert_eq!(chosen(&group, Choice::default(), now), [1]);
    group.end_lookup("api.internal", 80, &found(&["10.0.0.1:80", "10.0.0.2:80"]), now);
    let ports = (0..100).map(|_| group.choose(Choice::default()).unwrap().address.port());
    assert_eq!(ports.filter(|port| *port == 1).count(), 50);
}

#[test]
fn failed_lookup_changes_nothing() {
    let group = Group::new(&name("api.internal"));
    let now = Instant::now();
    group.end_lookup("api.internal", 80, &found(&["10.0.0.1:80"]), now);
    let before = group.choose(Choice::default()).unwrap();
    group.end_lookup("api.internal", 80, &failed(), now);
    assert!(Arc::ptr_eq(&before, &group.choose(Choice::default()).unwrap()));
}

#[test]
fn addresses_that_stay_keep_what_is_known_and_counts_never_fall() {
    let group = Group::new(&name("api.internal"));
    let now = Instant::now();
    let end = |addresses: &[&str]| {
        group.end_lookup("api.internal", 80, &found(addresses), now);
    };
    end(&["10.0.0.1:80", "10.0.0.2:80"]);
    let members = group.member_set.load().members.clone();
    let _loads: Vec<_> = members.iter().map(Member::load).collect();
    members.iter().for_each(|member| member.fail());
    end(&["10.0.0.2:80", "10.0.0.3:80"]);
    assert!(Arc::ptr_eq(&members[1], &group.member_set.load().members[0]));
    let report = &group.report(now)[0];
    assert_eq!((report.requests, report.failures, report.members.len()), (2, 2, 2));
}

#[tokio::test]
async fn request_waits_for_the_first_lookup_and_no_longer_than_it_may() {
    let group = Group::new(&name("api.internal"));
    assert!(group.choose(Choice::default()).is_none());
    assert!(!group.resolved(Duration::from_millis(1)).await);

    let waiting = tokio::spawn({
        let group = Arc::clone(&group);
        async move { group.resolved(Duration::MAX).await }
    });
    tokio::task::yield_now().await;
    group.end_lookup("api.internal", 80, &found(&["10.0.0.1:80"]), Instant::now());
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn no_request_waits_for_a_name_that_cannot_be_resolved() {
    let group = Group::new(&name("api.internal"));
    group.end_lookup("api.internal", 80, &failed(), Instant::now());
    assert!(!group.resolved(Duration::MAX).await);
}

#[test]
fn servers_that_stay_keep_what_is_known_across_a_reload() {
    let group = Group::new(&addresses([1, 2]));
    let now = Instant::now();
    fail(&group, 1, now);
    let one = member(&group, 1);
    let load = member(&group, 2).load();

    let mut changed = addresses([3, 2, 1]);
    changed.servers[2].weight = NonZeroU32::MIN.saturating_add(9);
    changed.balance = Balance::RoundRobin;
    group.update(&changed);
    assert!(Arc::ptr_eq(&one, &member(&group, 1)));
    assert_eq!(chosen(&group, Choice::default(), now), [2, 3]);
    assert_eq!(member(&group, 2).in_flight(), 1);
    drop(load);

    group.update(&Upstream { ejection: None, ..changed });
    assert_eq!(chosen(&group, Choice::default(), now), [1, 2, 3]);
    assert!(group.speaks_like(&addresses([4])));
    assert!(!group.speaks_like(&Upstream { protocol: Protocol::Http2, ..addresses([1]) }));
}

#[test]
fn stricter_rule_holds_at_once() {
    let group = Group::new(&addresses([1, 2]));
    let failures = NonZeroU32::MIN;
    let ejection = Some(Ejection { failures, ..Ejection::default() });
    group.update(&Upstream { ejection, ..addresses([1, 2]) });
    member(&group, 1).fail();
    assert_eq!(chosen(&group, Choice::default(), Instant::now()), [2]);
}
