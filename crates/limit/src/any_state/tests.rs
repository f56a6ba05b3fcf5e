//! Proxies that lose their store and find it again, at random: at most one share for each proxy
//! passes beyond a limit.

use std::{fmt::Debug, num::NonZeroU32, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{Align, FixedWindow, Gcra, SlidingLog, SlidingWindow, TokenBucket};

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const WINDOW: Duration = Duration::from_secs(10);
const LIMIT: u32 = 12;
const PROXIES: u32 = 3;
/// What all proxies may let through without the store.
const SHARES: u32 = LIMIT;

/// What happens to a proxy, and how long after the step before.
#[derive(Clone, Copy, Debug)]
struct Step {
    proxy: usize,
    millis: u64,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request arrives.
    Request,
    /// The store goes out of reach, or becomes reachable again.
    Switch,
    /// The proxy writes its pending units to the store without a request, if it is reachable.
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event =
        prop_oneof![12 => Just(Event::Request), 4 => Just(Event::Switch), 1 => Just(Event::Flush)];
    let millis = prop_oneof![20 => Just(0), 4 => 0_u64..800, 1 => 0_u64..12_000];
    let step = (0..PROXIES as usize, millis, event);
    prop::collection::vec(
        step.prop_map(|(proxy, millis, event)| Step { proxy, millis, event }),
        1..300,
    )
}

/// A counter, and those of proxies that share it.
struct Fleet<'a, A: Algorithm> {
    whole: &'a A,
    part: &'a A,
    store: A::State,
    proxies: Vec<Proxy<A::State>>,
}

#[derive(Clone, Default)]
struct Proxy<S> {
    state: S,
    /// What `state` was before the first local decision since pending units were last written.
    base: Option<S>,
    is_local: bool,
}

impl<'a, A: Algorithm<State: StateVariant>> Fleet<'a, A> {
    fn new(whole: &'a A, part: &'a A) -> Self {
        let proxies = vec![Proxy::default(); PROXIES as usize];
        Fleet { whole, part, store: A::State::default(), proxies }
    }

    /// Returns whether a request passed.
    fn step(&mut self, proxy: usize, event: Event, now: Timestamp) -> bool {
        match event {
            Event::Switch => self.proxies[proxy].is_local ^= true,
            Event::Flush if self.proxies[proxy].is_local => {}
            Event::Flush => self.flush(proxy, now),
            Event::Request if self.proxies[proxy].is_local => {
                let Proxy { state, base, .. } = &mut self.proxies[proxy];
                base.get_or_insert_with(|| state.clone());
                return take(self.part, state, now);
            }
            Event::Request => {
                self.flush(proxy, now);
                let passes = take(self.whole, &mut self.store, now);
                let known = &self.store.to_count().share(NonZeroU32::new(PROXIES).unwrap());
                known.store_in(&mut self.proxies[proxy].state);
                return passes;
            }
        }
        false
    }

    fn flush(&mut self, proxy: usize, now: Timestamp) {
        let Proxy { state, base, .. } = &mut self.proxies[proxy];
        if let Some(base) = base.take()
            && let Some(pending) = self.part.beyond(state, &base, now)
        {
            self.whole.add(&mut self.store, &pending, now);
        }
    }
}

fn take<A: Algorithm>(algorithm: &A, state: &mut A::State, now: Timestamp) -> bool {
    let fits = algorithm.admits(state, 1, now);
    if fits {
        algorithm.take(state, 1, now);
    }
    fits
}

/// When requests passed.
fn passed<A: Algorithm<State: StateVariant>>(
    whole: &A,
    part: &A,
    steps: &[Step],
) -> Vec<Timestamp> {
    let mut fleet = Fleet::new(whole, part);
    let mut now = START;
    let mut passed = Vec::new();
    for step in steps {
        now = now + Duration::from_millis(step.millis);
        if fleet.step(step.proxy, step.event, now) {
            passed.push(now);
        }
    }
    passed
}

/// Asserts that between any two instants no more pass than `most` allows for the time between.
fn assert_no_more_than(passed: &[Timestamp], most: impl Fn(Duration) -> u64) {
    for (first, from) in passed.iter().enumerate() {
        for (count, until) in (1..).zip(&passed[first..]) {
            let span = until.saturating_since(*from);
            assert!(count <= most(span), "{count} passed in {span:?}");
        }
    }
}

/// Asserts that no more pass in any aligned window.
fn assert_no_more_in_a_window(passed: &[Timestamp], most: u32) {
    let window_of = |at: &Timestamp| at.as_micros() / WINDOW.as_micros() as u64;
    for window in passed.chunk_by(|one, next| window_of(one) == window_of(next)) {
        assert!(window.len() <= most as usize, "{} passed in a window", window.len());
    }
}

/// How many pass in one instant with six outages, if each proxy requests all that it can get in
/// each outage, and one unit between two outages.
fn six_outages<A: Algorithm<State: StateVariant>>(whole: &A, part: &A) -> usize {
    let every_proxy =
        |event| (0..PROXIES as usize).map(move |proxy| Step { proxy, millis: 0, event });
    let outage = || {
        let requests = (0..LIMIT).flat_map(|_| every_proxy(Event::Request));
        every_proxy(Event::Switch).chain(requests).chain(every_proxy(Event::Switch))
    };
    let steps = (0..6).flat_map(|_| outage().chain(every_proxy(Event::Request)));
    passed(whole, part, &steps.collect::<Vec<Step>>()).len()
}

#[test]
fn many_outages_grant_one_share() {
    let most = (LIMIT + SHARES) as usize;
    let window = |limit| FixedWindow { limit, align: Align::Epoch(WINDOW) };
    assert!(six_outages(&window(LIMIT), &window(LIMIT / PROXIES)) <= most);
    let windows = |limit| SlidingWindow::new(limit, WINDOW).unwrap();
    assert!(six_outages(&windows(LIMIT), &windows(LIMIT / PROXIES)) <= most);
    let log = |limit| SlidingLog { limit, window: WINDOW };
    assert!(six_outages(&log(LIMIT), &log(LIMIT / PROXIES)) <= most);
    let (refill, interval) = (1, WINDOW);
    let bucket = |capacity| TokenBucket { capacity, refill, interval, even: false, strict: false };
    assert!(six_outages(&bucket(LIMIT), &bucket(LIMIT / PROXIES)) <= most);
    let meter = |units| Gcra::new(units, WINDOW, units, 1).unwrap();
    assert!(six_outages(&meter(LIMIT), &meter(LIMIT / PROXIES)) <= most);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn prop_fixed_windows_let_a_share_of_each_proxy_through(steps in steps()) {
        let window = |limit| FixedWindow { limit, align: Align::Epoch(WINDOW) };
        let passed = passed(&window(LIMIT), &window(LIMIT / PROXIES), &steps);
        assert_no_more_in_a_window(&passed, LIMIT + SHARES);
    }

    #[test]
    fn prop_sliding_windows_let_a_share_of_each_proxy_through(steps in steps()) {
        let windows = |limit| SlidingWindow::new(limit, WINDOW).unwrap();
        let passed = passed(&windows(LIMIT), &windows(LIMIT / PROXIES), &steps);
        assert_no_more_in_a_window(&passed, LIMIT + SHARES);
    }

    #[test]
    fn prop_logs_let_a_share_of_each_proxy_through(steps in steps()) {
        let log = |limit| SlidingLog { limit, window: WINDOW };
        let passed = passed(&log(LIMIT), &log(LIMIT / PROXIES), &steps);
        let most = |span| if span < WINDOW { LIMIT + SHARES } else { u32::MAX };
        assert_no_more_than(&passed, |span| most(span).into());
    }

    #[test]
    fn prop_buckets_let_a_share_of_each_proxy_through(steps in steps()) {
        let interval = WINDOW / 2;
        let bucket = |capacity| {
            let refill = capacity / 2;
            TokenBucket { capacity, refill, interval, even: false, strict: false }
        };
        let passed = passed(&bucket(LIMIT), &bucket(LIMIT / PROXIES), &steps);
        // Refills come in steps, and a step may be just due where time begins.
        let refills = |span: Duration| span.as_micros().div_ceil(interval.as_micros()) as u64 + 1;
        assert_no_more_than(&passed, |span| {
            u64::from(LIMIT + SHARES) + refills(span) * u64::from(LIMIT + SHARES) / 2
        });
    }

    #[test]
    fn prop_meters_let_a_share_of_each_proxy_through(steps in steps()) {
        let meter = |units| Gcra::new(units, WINDOW, units, 1).unwrap();
        let passed = passed(&meter(LIMIT), &meter(LIMIT / PROXIES), &steps);
        let units = u64::from(LIMIT + SHARES);
        assert_no_more_than(&passed, |span| {
            units + (u128::from(units) * span.as_micros() / WINDOW.as_micros()) as u64 + 1
        });
    }
}
