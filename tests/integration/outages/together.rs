//! Several proxies on one cluster: they limit as one.

use std::{collections::HashMap, thread, time::Instant};

use super::{
    callers::{decided, settings},
    load::print_figures,
};
use crate::support::{Cluster, MINUTE, Policy, Proxy, Request, Upstream, get};

/// Sends one of each of these requests to the proxies in turn, `rounds` times to each. Returns
/// how many of each passed.
fn send_to_all(proxies: &[Proxy], requests: &[Request], rounds: usize) -> Vec<usize> {
    let passing = |proxy: &Proxy, round: usize| {
        let mut client = proxy.connect();
        // Not all begin with the same.
        let first = round * requests.len() / (rounds * proxies.len());
        let numbers = (0..requests.len()).map(|number| (number + first) % requests.len());
        let passed = numbers.filter(|number| {
            let response = client.send(&requests[*number]);
            decided(&response).status == 200
        });
        passed.collect::<Vec<usize>>()
    };
    let mut passed = HashMap::<usize, usize>::new();
    thread::scope(|scope| {
        let all = (0..rounds).flat_map(|_| proxies).enumerate();
        let sending = all.map(|(round, proxy)| scope.spawn(move || passing(proxy, round)));
        for sending in sending.collect::<Vec<_>>() {
            for number in sending.join().unwrap() {
                *passed.entry(number).or_default() += 1;
            }
        }
    });
    (0..requests.len()).map(|number| passed.get(&number).copied().unwrap_or(0)).collect()
}

fn start_two(cluster: &Cluster, policy: &Policy) -> [Proxy; 2] {
    let settings = settings(&cluster.settings());
    [(); 2].map(|()| Proxy::with_settings(&settings, &[policy]))
}

#[test]
fn proxies_whose_clocks_differ_limit_as_one() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let policy = Policy::before(&upstream).rate("30/hour");
    let proxies = start_two(&cluster, &policy);
    proxies[1].advance(MINUTE);
    let first = proxies[0].get_as("alice");
    let reset = first.assert_status(200).field("x-ratelimit-reset").unwrap();
    for used in 2..=30 {
        let response = proxies[used % 2].get_as("alice");
        decided(&response).assert_status(200).assert_field("x-ratelimit-used", &used.to_string());
        response.assert_field("x-ratelimit-reset", reset);
    }
    let denied = proxies.each_ref().map(|proxy| proxy.get_as("alice"));
    for response in &denied {
        decided(response).assert_status(429).assert_field("x-ratelimit-reset", reset);
    }
    let [one, other] = denied.map(|response| response.number("retry-after"));
    assert!(one.abs_diff(other) <= 1 && (3_590..=3_600).contains(&one), "{one} {other}");

    // At the same time, too.
    let requests: Vec<Request> = (0..10).map(|it| get("/").by(&format!("other-{it}"))).collect();
    assert_eq!(send_to_all(&proxies, &requests, 20), [30; 10]);
}

#[test]
fn two_thousand_callers_are_limited_exactly_by_two_proxies() {
    const CALLERS: usize = 2_000;
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let policy = Policy::before(&upstream).rate("3/hour");
    let proxies = start_two(&cluster, &policy);
    let requests: Vec<Request> =
        (0..CALLERS).map(|number| get("/").by(&format!("caller-{number}"))).collect();
    let begun = Instant::now();
    let passed = send_to_all(&proxies, &requests, 2);
    print_figures(&format!(
        "cluster, {CALLERS} callers, 3 of 4 requests each, two proxies: {} passed in {:?}",
        passed.iter().sum::<usize>(),
        begun.elapsed()
    ));
    let wrong = passed.iter().filter(|passed| **passed != 3).count();
    assert_eq!(wrong, 0, "callers with another number than three");
}
