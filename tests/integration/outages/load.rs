//! Requests that go on in the background while servers fail, and what became of each.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::callers::Caller;
use crate::support::{Client, Proxy, Request, Response, eventually};

/// Connections of a load, each of which has one request at a time.
pub(super) const CONNECTIONS: usize = 2;

/// Time between two requests of a connection: a load must leave the machine to the servers.
const PACE: Duration = Duration::from_millis(3);

/// When a load ends that no test stops.
const END: Duration = Duration::from_secs(90);

/// Who decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decider {
    Redis,
    /// The proxy, by itself.
    Proxy,
    /// Neither: it was let through or refused, by the `on_store_error` of its limits.
    Neither,
}

impl Decider {
    pub(super) fn of(response: &Response) -> Decider {
        match (response.status, response.field("x-tollgate-store")) {
            (200 | 429, None) => Decider::Redis,
            (200 | 429, Some("local")) => Decider::Proxy,
            (200, Some("open")) | (503, None) => Decider::Neither,
            _ => panic!("an answer that nothing explains\n{response:?}"),
        }
    }
}

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Its caller's place among those of the load.
    caller: usize,
    sent: Instant,
    came: Instant,
    pub(super) status: u16,
    pub(super) decider: Decider,
}

impl Answer {
    pub(super) fn took(&self) -> Duration {
        self.came - self.sent
    }
}

/// Requests of some callers, one after the other, on a few connections that are kept.
pub(super) struct Load {
    shared: Arc<Shared>,
    connections: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<Vec<Answer>>,
    is_stopping: AtomicBool,
}

impl Load {
    /// Begins, and waits until it runs.
    pub(super) fn start(proxy: &Proxy, callers: &[Caller]) -> Load {
        let shared = Arc::<Shared>::default();
        let requests: Vec<Request> = callers.iter().map(Caller::request).collect();
        let connections = (0..CONNECTIONS).map(|number| {
            let mut client = proxy.connect();
            let shared = Arc::clone(&shared);
            let requests = requests.clone();
            // They do not ask for the same caller at the same time.
            let first = number * requests.len() / CONNECTIONS;
            thread::spawn(move || shared.send(&mut client, &requests, first))
        });
        let connections = connections.collect();
        let load = Load { shared, connections };
        load.wait_for(50, |answer| answer.decider == Decider::Redis);
        load
    }

    /// Waits until so many more requests in a row were decided by Redis.
    pub(super) fn wait_until_decided(&self) {
        const IN_A_ROW: usize = 100;
        self.wait_for(IN_A_ROW, |answer| answer.decider == Decider::Redis);
    }

    /// Waits until so many more requests in a row were not.
    pub(super) fn wait_until_undecided(&self, requests: usize) {
        self.wait_for(requests, |answer| answer.decider != Decider::Redis);
    }

    /// Waits until all callers are denied by Redis.
    pub(super) fn wait_until_denied(&self) {
        const IN_A_ROW: usize = 40;
        let is_denied = |answer: &Answer| (answer.status, answer.decider) == (429, Decider::Redis);
        self.wait_for(IN_A_ROW, is_denied);
    }

    fn wait_for(&self, requests: usize, is_so: impl Fn(&Answer) -> bool) {
        let before = self.shared.answers.lock().unwrap().len();
        eventually("the load goes as expected", || {
            assert!(!self.connections.iter().any(JoinHandle::is_finished), "the load has ended");
            let answers = self.shared.answers.lock().unwrap();
            let in_a_row = answers[before..].iter().rev().take_while(|answer| is_so(answer));
            (in_a_row.count() >= requests).then_some(())
        });
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> Answers {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        for connection in self.connections.drain(..) {
            connection.join().unwrap();
        }
        Answers(std::mem::take(&mut *self.shared.answers.lock().unwrap()))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn send(&self, client: &mut Client, requests: &[Request], first: usize) {
        let begun = Instant::now();
        for number in first.. {
            if self.is_stopping.load(Ordering::Relaxed) || begun.elapsed() > END {
                return;
            }
            let caller = number % requests.len();
            let sent = Instant::now();
            let response = client.send(&requests[caller]);
            let came = Instant::now();
            let decider = Decider::of(&response);
            let answer = Answer { caller, sent, came, status: response.status, decider };
            self.answers.lock().unwrap().push(answer);
            thread::park_timeout(PACE);
        }
    }
}

/// What became of all requests of a load, in the order in which the answers came.
pub(super) struct Answers(Vec<Answer>);

impl Answers {
    pub(super) fn count(&self, is_so: impl Fn(&Answer) -> bool) -> usize {
        self.0.iter().filter(|answer| is_so(answer)).count()
    }

    /// Those that Redis did not decide about.
    pub(super) fn undecided(&self) -> Answers {
        let is_undecided = |answer: &&Answer| answer.decider != Decider::Redis;
        Answers(self.0.iter().filter(is_undecided).copied().collect())
    }

    /// Those that were sent from this moment on.
    pub(super) fn since(&self, moment: Instant) -> Answers {
        Answers(self.0.iter().filter(|answer| answer.sent >= moment).copied().collect())
    }

    /// The longest time between two decisions of Redis among which were requests that it did not
    /// decide about.
    pub(super) fn longest_gap(&self) -> Duration {
        let mut longest = Duration::ZERO;
        let mut decided = None::<Instant>;
        let mut is_gap = false;
        for answer in &self.0 {
            is_gap |= answer.decider != Decider::Redis;
            if answer.decider == Decider::Redis {
                if let Some(before) = decided.filter(|_| is_gap) {
                    longest = longest.max(answer.came - before);
                }
                (decided, is_gap) = (Some(answer.came), false);
            }
        }
        longest
    }

    /// How long after this moment the first answer came from Redis.
    pub(super) fn decided_after(&self, moment: Instant) -> Duration {
        let mut decided = self.0.iter().filter(|answer| answer.decider == Decider::Redis);
        let first = decided.find(|answer| answer.came >= moment);
        first.expect("Redis decides in the end").came - moment
    }

    /// The longest that one took.
    pub(super) fn slowest(&self) -> Duration {
        self.0.iter().map(Answer::took).max().unwrap_or_default()
    }

    /// How many requests passed of each caller that has a counter, with the one that made it.
    pub(super) fn passed(&self, callers: &[Caller]) -> Vec<u64> {
        let passed = |number| self.count(|it| it.caller == number && it.status == 200) as u64;
        (0..callers.len()).map(|number| 1 + passed(number)).collect()
    }

    /// What passed of these callers, and what Redis knows of it.
    pub(super) fn balance(&self, proxy: &Proxy, callers: &[Caller]) -> Balance {
        let mut balance = Balance::default();
        for (passed, caller) in self.passed(callers).into_iter().zip(callers) {
            let admitted = passed + 1;
            let counted = caller.count_one(proxy);
            balance.not_counted += admitted.saturating_sub(counted);
            balance.not_admitted += counted.saturating_sub(admitted);
        }
        balance
    }

    /// Fails the test unless all were decided by Redis, and passed.
    pub(super) fn assert_untouched(&self) {
        let touched: Vec<_> = self.0.iter().filter(|answer| answer.status != 200).collect();
        assert!(touched.is_empty() && self.undecided().0.is_empty(), "{touched:?} {self}");
    }
}

/// In a few words.
impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |decider| self.count(|answer| answer.decider == decider);
        let errors = self.count(|answer| answer.status >= 500);
        write!(
            f,
            "{} requests: {} by redis, {} by the proxy, {} undecided, {errors} errors, slowest {:?}",
            self.0.len(),
            count(Decider::Redis),
            count(Decider::Proxy),
            count(Decider::Neither),
            self.slowest()
        )
    }
}

/// What was let through and what was counted, where they differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Balance {
    /// Requests that passed, and that Redis knows nothing of: so many may pass beyond the limits.
    pub(super) not_counted: u64,
    /// Requests that Redis has counted, and that did not pass.
    pub(super) not_admitted: u64,
}

/// Prints what a test has measured.
#[expect(clippy::print_stderr, reason = "figures are for people")]
pub(super) fn print_figures(figures: &str) {
    eprintln!("figures: {figures}");
}
