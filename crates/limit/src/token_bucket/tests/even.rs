//! Even buckets: the suite, and what they are equal to.

use super::*;

suite::property_tests! { any_bucket(true, false) }

mod apart {
    use super::*;

    suite::property_tests! { any_bucket(true, false) => [prop_clocks_that_are_apart_count_once] }
}

mod strict {
    use super::*;

    suite::property_tests! { any_bucket(true, true) => [
        prop_clocks_that_are_apart_count_once,
        prop_used_and_remaining_make_up_the_limit,
        prop_waiting_until_retry_is_enough_and_less_is_not,
        prop_cost_above_the_capacity_is_never_admitted,
        prop_limit_is_full_at_reset_and_not_before,
        prop_refund_never_leaves_more_than_had_the_charge_not_been,
        prop_refund_of_a_forgotten_charge_changes_nothing,
        prop_service_resumes_after_the_clock_went_back_a_day,
        prop_no_instant_before_its_mark_moves_a_state_back,
        prop_state_that_is_over_decides_as_an_unused_one,
        prop_state_survives_a_snapshot,
        prop_no_input_panics_or_overflows,
    ] }
}

/// A request, and which of the charges before it is given back.
#[derive(Clone, Copy, Debug)]
struct Request {
    advance: u64,
    cost: u32,
    given_back: Option<usize>,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..2_000_000_u64, 0_u32..6, prop::option::weighted(0.2, 0_usize..20));
    let request = request.prop_map(|(advance, cost, given_back)| Request {
        // Many come at once.
        advance: advance.saturating_sub(500_000),
        cost,
        given_back,
    });
    prop::collection::vec(request, 1..80)
}

/// A bucket with its state and receipts.
struct Kept {
    bucket: TokenBucket,
    state: Bucket,
    taken: Vec<(Receipt, u32)>,
}

impl Kept {
    fn new(bucket: TokenBucket) -> Kept {
        Kept { bucket, state: Bucket::default(), taken: Vec::new() }
    }

    fn decide(&mut self, request: &Request, now: Timestamp) -> (bool, Standing) {
        if let Some(index) = request.given_back.filter(|index| *index < self.taken.len()) {
            let (receipt, cost) = self.taken.swap_remove(index);
            self.bucket.give_back(&mut self.state, receipt, cost, now);
        }
        let cost = request.cost;
        let (allowed, standing, receipt) = decide(&self.bucket, &mut self.state, cost, now);
        self.taken.extend(receipt.map(|receipt| (receipt, cost)));
        (allowed, standing)
    }
}

proptest! {
    /// Also where clocks are behind.
    #[test]
    fn prop_even_bucket_with_a_whole_step_is_one_of_single_refills(
        (capacity, refill, micros) in (1_u32..12, 1_u32..200, 1_u64..1_000_000),
        strict: bool,
        requests in requests(),
        behind in prop::collection::vec(0..4_000_000_u64, 80),
    ) {
        let step = Duration::from_micros(micros);
        let even = TokenBucket { capacity, refill, interval: step * refill, even: true, strict };
        let lumps = TokenBucket { refill: 1, interval: step, even: false, ..even.clone() };
        let mut kept = [even, lumps].map(Kept::new);
        let mut clock = START;
        for (position, request) in requests.iter().enumerate() {
            clock = clock + Duration::from_micros(request.advance);
            let now = suite::before(clock, Duration::from_micros(behind[position]));
            let [even, lumps] = kept.each_mut().map(|own| own.decide(request, now));
            prop_assert_eq!(even, lumps, "request {}", position);
            prop_assert_eq!(kept[0].state, kept[1].state, "request {}", position);
        }
    }

    /// Seven a minute are one in each of 60 million sevenths of a microsecond.
    #[test]
    fn prop_even_bucket_is_one_of_single_refills_on_a_finer_clock(
        bucket in any_bucket(true, false),
        requests in requests(),
    ) {
        let parts = bucket.refill;
        let finer = |instant: Timestamp| {
            Timestamp::from_micros(instant.as_micros() * u64::from(parts))
        };
        let single = TokenBucket { refill: 1, even: false, ..bucket.clone() };
        let mut kept = [bucket, single].map(Kept::new);
        let mut now = START;
        for (position, request) in requests.iter().enumerate() {
            now = now + Duration::from_micros(request.advance);
            let even = kept[0].decide(request, now);
            let (allowed, single) = kept[1].decide(request, finer(now));
            let whole = |instant: Timestamp| {
                Timestamp::from_micros(instant.as_micros().div_ceil(parts.into()))
            };
            let retry = match single.retry {
                Retry::At(instant) => Retry::At(whole(instant)),
                retry => retry,
            };
            let [reset, next] = [single.reset, single.next].map(whole);
            prop_assert_eq!(
                even,
                (allowed, Standing { reset, next, retry, ..single }),
                "request {}", position
            );
        }
    }

    #[test]
    fn prop_products_are_divided_exactly(number: u64, by: u64, of in 1..u64::MAX) {
        let product = u128::from(number) * u128::from(by);
        let whole = u64::try_from(product / u128::from(of)).unwrap_or(u64::MAX);
        let found = scaled(number, by, of);
        prop_assert_eq!((found.whole, found.has_rest), (whole, product % u128::from(of) > 0));
    }
}

fn per_minute(capacity: u32, refill: u32) -> TokenBucket {
    let interval = Duration::from_secs(60);
    TokenBucket { capacity, refill, interval, even: true, strict: false }
}

#[test]
fn rate_above_the_capacity_is_reached() {
    let bucket = TokenBucket { interval: SECOND, ..per_minute(50, 100) };
    let mut state = Bucket::default();
    let instants = (0..450).map(|number| START + Duration::from_millis(11) * number);
    let admitted = instants.filter(|now| decide(&bucket, &mut state, 1, *now).0).count();
    assert_eq!(admitted, 450);
}

#[test]
fn seven_a_minute_come_in_sevenths_of_it_and_no_rounding_adds_up() {
    let bucket = per_minute(2, 7);
    let mut state = Bucket::default();
    bucket.take(&mut state, 2, START);
    let mut now = START;
    // Each is taken as soon as it comes, so the bucket is never full.
    for number in 1..=7000_u64 {
        let comes = START + Duration::from_micros((number * 60_000_000).div_ceil(7));
        assert_eq!(bucket.retry(&state, 1, now), Retry::At(comes), "{number}");
        now = comes;
        bucket.take(&mut state, 1, now);
    }
}

#[test]
fn bucket_that_was_kept_in_lumps_goes_on_evenly() {
    let lumps = TokenBucket { even: false, ..per_minute(60, 60) };
    let mut state = Bucket::default();
    lumps.take(&mut state, 60, START);
    let bucket = per_minute(60, 60);
    let later = bucket.standing(&state, START + 30 * SECOND);
    assert_eq!((later.remaining, later.reset), (30, START + 60 * SECOND));
}

#[test]
fn lowered_rate_takes_nothing_of_what_has_come() {
    let mut state = Bucket::default();
    let bucket = per_minute(60, 60);
    bucket.take(&mut state, 60, START);
    // What had come by a charge stays, to the unit.
    let now = START + 30 * SECOND;
    bucket.take(&mut state, 1, now);
    assert_eq!(per_minute(60, 6).standing(&state, now).used, 31);
}

#[test]
fn strict_even_bucket_waits_for_its_next_unit_again() {
    let bucket = TokenBucket { strict: true, ..per_minute(6, 6) };
    let mut state = Bucket::default();
    bucket.take(&mut state, 6, START);
    let (allowed, standing, _) = decide(&bucket, &mut state, 1, START + 9 * SECOND);
    assert_eq!((allowed, standing.retry), (false, Retry::At(START + 19 * SECOND)));
    assert!(decide(&bucket, &mut state, 1, START + 19 * SECOND).0);
}

#[test]
fn longest_of_an_even_bucket_is_what_its_capacity_needs() {
    assert_eq!(per_minute(10, 100).longest(), 6 * SECOND);
    assert_eq!(per_minute(10, 100).refill_time(), Some(6 * SECOND));
    assert_eq!(per_minute(10, 0).longest(), Duration::MAX);
    let most = i32::MAX as u32;
    let longest = TokenBucket { interval: 366 * 86_400 * SECOND, ..per_minute(most, most - 1) };
    assert_eq!(longest.longest().as_micros(), 31_622_400_014_726);
}
