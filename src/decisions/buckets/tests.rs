use proptest::prelude::*;

use super::*;

/// The clock when tests begin, and the year before, of which histories are.
const NOW: i64 = 1_790_000_000_000;
const LAST_YEAR: i64 = NOW - 31_536_000_000;

const ROOM: usize = 10_000;

fn buckets(max_keys: usize) -> Buckets {
    Buckets::new(KeyHasher::new([7; 16]), max_keys)
}

/// One token of five, one each second.
fn one(at: Option<i64>) -> Request {
    Request { max: 5, refill_millis: 1000, refill: 1, take: 1, at, strict: false }
}

fn before(buckets: &mut Buckets, name: &str, at: Option<i64>, now: i64) -> i64 {
    buckets.take(name.as_bytes(), Verb::Reduce, &one(at), now).before
}

#[test]
fn buckets_of_clients_times_are_apart_from_those_of_the_clock() {
    let mut buckets = buckets(ROOM);
    for left in [5, 4, 3] {
        assert_eq!(before(&mut buckets, "a", None, NOW), left);
        assert_eq!(before(&mut buckets, "a", Some(NOW), NOW), left);
    }
    assert_eq!(buckets.len(), 2);
}

#[test]
fn instant_before_the_mark_counts_as_the_mark() {
    let mut buckets = buckets(ROOM);
    let session = |buckets: &mut Buckets, at| {
        let request = Request { strict: true, ..one(Some(at)) };
        let taken = buckets.take(b"a", Verb::Sessionize, &request, NOW);
        (taken.before, taken.session_started)
    };
    assert_eq!(session(&mut buckets, 10_000), (5, 10_000));
    assert_eq!(session(&mut buckets, 0), (4, 10_000), "the session does not begin earlier");
    assert_eq!(session(&mut buckets, 10_999), (3, 10_999));
    assert_eq!(session(&mut buckets, 12_000), (4, 12_000), "two refills came");
    assert_eq!(session(&mut buckets, 5000), (3, 12_000), "and none is taken back");
}

#[test]
fn slow_replay_of_the_last_year_loses_nothing() {
    let mut buckets = buckets(100);
    for name in 0..60 {
        assert_eq!(before(&mut buckets, &name.to_string(), Some(LAST_YEAR), NOW), 5);
    }
    // A day passes here, and half a second there.
    let later = NOW + 86_400_000;
    (0..512).for_each(|_| buckets.sweep_some(100, later));
    for name in 0..60 {
        assert_eq!(before(&mut buckets, &name.to_string(), Some(LAST_YEAR + 500), later), 4);
    }
}

#[test]
fn fast_replay_is_cleaned_up() {
    let mut buckets = buckets(1000);
    for step in 0..50_000 {
        // A bucket each 100 ms there, all of them at one instant here.
        assert_eq!(before(&mut buckets, &step.to_string(), Some(LAST_YEAR + step * 100), NOW), 5);
    }
    assert!((1..=1000).contains(&buckets.len()), "{}", buckets.len());
    assert_eq!(buckets.evicted(), 0, "of 50 buckets that are not full there is room for all");
}

#[test]
fn second_replay_gets_the_replies_of_the_first() {
    let mut buckets = buckets(ROOM);
    let mut replay = |prefix: &str| -> Vec<i64> {
        let step = |step: i64| {
            let name = format!("{prefix}{}", step % 7);
            buckets.sweep_some(100, NOW);
            before(&mut buckets, &name, Some(LAST_YEAR + step * 40), NOW)
        };
        (0..2000).map(step).collect()
    };
    let first = replay("first ");
    assert!(first.contains(&0) && first.contains(&3));
    assert_eq!(replay("second "), first);
}

#[test]
fn wrong_clock_of_a_client_ends_no_other_bucket() {
    let mut buckets = buckets(1000);
    for name in 0..600 {
        assert_eq!(before(&mut buckets, &name.to_string(), Some(NOW + 60_000), NOW), 5);
    }
    for (at, left) in [(253_402_300_799_000, 5), (i64::MAX, 5), (0, 4)] {
        assert_eq!(before(&mut buckets, "wrong", Some(at), NOW), left, "at {at}");
    }
    (0..512).for_each(|_| buckets.sweep_some(100, NOW));
    assert_eq!(buckets.len(), 601);
    assert_eq!(before(&mut buckets, "0", Some(NOW + 60_000), NOW), 4);
}

/// A command of a client: how long after the one before, how late it says to be, and of what.
#[derive(Clone, Debug)]
struct Step {
    gap: i64,
    late: i64,
    name: u8,
    verb: Verb,
    request: Request,
    /// A command of live traffic that follows at the same instant.
    live: Option<(u8, Verb, Request)>,
}

fn commands() -> impl Strategy<Value = (u8, Verb, Request)> {
    let parameters =
        prop::sample::select(vec![(1, 1, 1000), (10, 3, 5000), (10, 10, 1), (7, 2, 300)]);
    let verb = prop::sample::select(vec![Verb::Peek, Verb::Reduce, Verb::Sessionize]);
    (0_u8..3, parameters, 1_i64..9, any::<bool>(), verb).prop_map(
        |(name, (max, refill, refill_millis), take, strict, verb)| {
            let take = if verb == Verb::Peek { 0 } else { take };
            (name, verb, Request { max, refill_millis, refill, take, at: None, strict })
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let late = prop_oneof![3 => Just(0), 1 => 0_i64..10_000];
    (0_i64..2000, late, commands(), prop::option::of(commands())).prop_map(
        |(gap, late, (name, verb, request), live)| Step { gap, late, name, verb, request, live },
    )
}

/// What a history is replied, and what live traffic is. For each second of the history, `pace`
/// milliseconds pass here.
fn replay(history: &[Step], pace: i64, with_history: bool) -> [Vec<(i64, i64)>; 2] {
    let mut buckets = buckets(ROOM);
    let [mut replayed, mut live] = [Vec::new(), Vec::new()];
    let (mut now, mut at) = (NOW * 1000, LAST_YEAR);
    for step in history {
        now += step.gap * pace;
        at += step.gap;
        let now = now / 1000;
        buckets.sweep_some(100, now);
        if with_history {
            let request = Request { at: Some(at - step.late), ..step.request };
            let taken = buckets.take(&[step.name], step.verb, &request, now);
            replayed.push((taken.before, taken.session_started));
        }
        if let Some((name, verb, request)) = &step.live {
            let taken = buckets.take(&[*name], *verb, request, now);
            live.push((taken.before, taken.session_started));
        }
    }
    [replayed, live]
}

proptest! {
    /// As fast as it was, a hundred times as fast, and a tenth as fast.
    #[test]
    fn prop_replay_at_any_speed_gets_the_same_replies_and_live_traffic_its_own(
        history in prop::collection::vec(steps(), 1..200),
    ) {
        let [expected, _] = replay(&history, 1000, true);
        for pace in [1000, 10, 10_000] {
            let [replayed, live] = replay(&history, pace, true);
            prop_assert_eq!(&replayed, &expected, "at a pace of {}", pace);
            let [_, alone] = replay(&history, pace, false);
            prop_assert_eq!(live, alone, "at a pace of {}", pace);
        }
    }
}
