//! Many reloads under load: nothing fails, every count is exact, and nothing grows.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use super::{EVENTS, Served, with_limit};
use crate::support::{Client, Upstream, get, token};

const CLIENTS: usize = 4;
/// After these the program has all the memory that it needs.
const WARM_UP: u64 = 50;
const RELOADS: u64 = 150;
/// What memory may seem to grow by when it does not.
const SLACK_KIB: u64 = 8 * 1024;

/// The memory that it has, in KiB.
fn resident(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.running.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors(served: &Served) -> usize {
    fs::read_dir(format!("/proc/{}/fd", served.running.id())).unwrap().count()
}

/// Ends what waits for it, even when a test fails.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn reloads_without_end_lose_no_request_no_count_and_no_memory() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, EVENTS);
    let policy = with_limit(&served.policy(), 1_000_000);
    served.folder.write("policies/api.yaml", &policy);
    served.reload().assert_status(200);
    let is_over = AtomicBool::new(false);
    let address = served.address;
    let over = &is_over;
    thread::scope(|scope| {
        let end = End(&is_over);
        // Each client is a user of its own, and knows what it has used.
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let token = token(&format!("client-{number}"));
                    let mut client = Client::connect(address);
                    let mut sent = 0;
                    while !over.load(Ordering::Relaxed) {
                        let response = client.send(&get("/").token(&token));
                        sent += 1;
                        response.assert_status(200);
                        response.assert_field("x-ratelimit-used", &sent.to_string());
                    }
                    sent
                })
            })
            .collect();
        let reload = |number: u64| {
            let changed = with_limit(&policy, 1_000_000 + number);
            served.folder.write("policies/.new", &changed);
            let folder = served.folder.path();
            fs::rename(folder.join("policies/.new"), folder.join("policies/api.yaml")).unwrap();
            served.reload().assert_status(200);
        };
        (0..WARM_UP).for_each(reload);
        let before = resident(&served);
        let opened = descriptors(&served);
        let begun = Instant::now();
        (WARM_UP..WARM_UP + RELOADS).for_each(reload);
        let seconds = begun.elapsed().as_secs_f64();
        let after = resident(&served);
        let open = descriptors(&served);
        drop(end);
        let sent: Vec<u64> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        eprintln!(
            "{RELOADS} reloads in {seconds:.1} s, {sent:?} requests, {before} to {after} KiB"
        );
        assert!(after <= before + SLACK_KIB, "{before} to {after} KiB");
        assert!(open <= opened + 3, "{opened} to {open} descriptors");
        assert_eq!(upstream.count() as u64, sent.iter().sum::<u64>());
    });
    let status = served.status();
    assert_eq!(status["reloads"]["failed"], 0, "{status}");
    assert!(served.generation() >= WARM_UP + RELOADS);
}
