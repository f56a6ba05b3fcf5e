//! One server that fails. Alice's counter shows who decides: what Redis has counted stays there,
//! and what the process decides in its place begins there.

mod answers;
mod connections;
mod deadline;
mod emptied;
mod fallback;
mod full;
mod late;
mod recovery;
mod refunded;
mod written_back;

use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_store::Unanswered;

use crate::support::{Policy, Proxy, Redis, Response, Upstream, eventually};

/// A server that has gone, before any proxy has found it.
fn gone() -> Redis {
    let redis = Redis::start();
    redis.kill();
    redis
}

/// Ten an hour for each caller, with more fields.
fn ten(upstream: &Upstream, fields: &str) -> Policy {
    Policy::before(upstream).core(&format!("rate: 10/hour, {fields}"))
}

/// Whether Redis has decided about the only limit of a request.
fn is_decided(response: &Response) -> bool {
    response.field("x-tollgate-store").is_none() && response.field("x-ratelimit-used").is_some()
}

/// What alice has used after one more request, as Redis has counted it.
fn used_in_redis(proxy: &Proxy) -> u64 {
    let response = proxy.get_as("alice");
    assert!(is_decided(&response), "{response:?}");
    response.number("x-ratelimit-used")
}

/// What she has used after one more request that Redis has not decided about.
fn used_here(proxy: &Proxy) -> u64 {
    let response = proxy.get_as("alice");
    response.assert_field("x-tollgate-store", "local");
    response.number("x-ratelimit-used")
}

/// Waits until Redis decides, as the responses to other callers show.
fn wait_until_decided(proxy: &Proxy) {
    eventually("redis decides", || is_decided(&stranger(proxy)).then_some(()));
}

/// Waits until it does so no more.
fn wait_until_undecided(proxy: &Proxy) {
    eventually("redis is away", || (!is_decided(&stranger(proxy))).then_some(()));
}

/// Waits until Redis has all that was admitted without it.
fn wait_until_written_back(proxy: &Proxy) {
    eventually("all charges are written back", || (proxy.stores().pending() == 0).then_some(()));
}

/// A request of somebody who has never asked before: no denial of theirs is remembered here.
fn stranger(proxy: &Proxy) -> Response {
    static STRANGERS: AtomicU32 = AtomicU32::new(0);
    let number = STRANGERS.fetch_add(1, Ordering::Relaxed);
    proxy.get_as(&format!("stranger-{number}"))
}

const REASONS: [Unanswered; 6] = [
    Unanswered::Away,
    Unanswered::Busy,
    Unanswered::Timeout,
    Unanswered::Lost,
    Unanswered::Refused,
    Unanswered::BadReply,
];

/// How many decisions Redis did not make for this reason.
fn undecided(proxy: &Proxy, reason: Unanswered) -> u64 {
    proxy.stores().counts.unanswered(reason)
}

/// How many it did not make at all.
fn all_undecided(proxy: &Proxy) -> u64 {
    REASONS.iter().map(|reason| undecided(proxy, *reason)).sum()
}
