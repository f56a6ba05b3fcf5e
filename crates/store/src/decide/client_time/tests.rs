use std::time::Duration;

use proptest::prelude::*;
use tollgate_limit::{
    Align, Calendar, CalendarUnit, FixedWindow, Gcra, KeyHasher, LimitId, Quota, Receipt,
    SlidingLog, SlidingWindow, TokenBucket, Verdict,
};

use super::*;
use crate::NoRoom;

/// The clock when tests begin, and the year before, of which histories are.
const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);
const LAST_YEAR: Timestamp = Timestamp::from_secs(1_790_000_000 - 31_536_000);

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn fixed(align: Align) -> Quota {
    Quota::FixedWindow(FixedWindow { limit: 5, align })
}

fn bucket(strict: bool) -> Quota {
    let (capacity, refill, interval) = (5, 2, MINUTE);
    Quota::TokenBucket(TokenBucket { capacity, refill, interval, even: false, strict })
}

/// Five units in a minute, or in an hour, of every algorithm that has windows.
fn quotas() -> Vec<Quota> {
    vec![
        fixed(Align::FirstRequest(MINUTE)),
        fixed(Align::Epoch(MINUTE)),
        fixed(Align::Calendar(Calendar::new(CalendarUnit::Hour, "Europe/Berlin").unwrap())),
        Quota::SlidingWindow(SlidingWindow::new(5, MINUTE).unwrap()),
        Quota::SlidingLog(SlidingLog { limit: 5, window: MINUTE }),
        bucket(false),
        bucket(true),
        Quota::Gcra(Gcra::new(5, MINUTE, 5, 5).unwrap()),
    ]
}

/// A charge on the counter of this number for an owner.
fn charge(owner: u64, number: usize, quota: &Quota) -> Charge<'_> {
    let owner = KeyHasher::new([3; 16]).hash([(b'k', &owner.to_le_bytes()[..])]);
    let limit = LimitId::new("test", &number.to_string(), "", 60);
    Charge::new(Key::new(owner, owner, limit), quota, 1)
}

fn client_timed(max_keys: usize) -> ClientTimed {
    ClientTimed::new(max_keys.into())
}

/// Whether one unit is admitted.
fn fits(counters: &ClientTimed, own: Charge<'_>, at: Timestamp) -> bool {
    counters.charge(&[own], at, NOW).unwrap().verdict == Verdict::Allow
}

#[test]
fn no_late_instant_moves_a_counter_back() {
    for quota in quotas() {
        let counters = client_timed(100);
        let own = charge(1, 0, &quota);
        for _ in 0..5 {
            assert!(fits(&counters, own, NOW), "{quota:?}");
        }
        for late in [NOW, LAST_YEAR, Timestamp::default()] {
            assert!(!fits(&counters, own, late), "{quota:?} at {late}");
            assert_eq!(counters.peek(&[own], late).outcomes[0].standing.used, 5, "{quota:?}");
        }
        assert!(!fits(&counters, own, NOW + SECOND), "{quota:?}");
        assert!(fits(&counters, own, NOW + MINUTE * 62), "{quota:?}");
        assert!(fits(&counters, own, LAST_YEAR), "late and with room: {quota:?}");
        assert_eq!(counters.peek(&[own], LAST_YEAR).outcomes[0].standing.used, 2, "{quota:?}");
    }
}

#[test]
fn each_counter_of_a_call_has_its_own_mark() {
    let quota = fixed(Align::FirstRequest(MINUTE));
    let counters = client_timed(100);
    let [ahead, behind] = [1, 2].map(|owner| charge(owner, 0, &quota));
    assert!(fits(&counters, ahead, NOW));
    let decision = counters.charge(&[ahead, behind], LAST_YEAR, NOW).unwrap();
    let resets = [0, 1].map(|own| decision.outcomes[own].standing.reset);
    assert_eq!(resets, [NOW + MINUTE, LAST_YEAR + MINUTE]);
    assert!(decision.outcomes.iter().all(|own| own.decided_by == DecidedBy::ClientTime));
}

#[test]
fn slow_replay_of_the_last_year_loses_nothing() {
    let quota = fixed(Align::FirstRequest(MINUTE));
    let counters = client_timed(100);
    (0..60).for_each(|owner| assert!(fits(&counters, charge(owner, 0, &quota), LAST_YEAR)));
    // A day passes here, and half a second there.
    (0..200).for_each(|_| counters.sweep(NOW + MINUTE * 1440));
    let at = LAST_YEAR + SECOND / 2;
    for owner in 0..60 {
        assert_eq!(counters.peek(&[charge(owner, 0, &quota)], at).outcomes[0].standing.used, 1);
    }
}

#[test]
fn second_replay_gets_the_answers_of_the_first() {
    let quotas = quotas();
    let counters = client_timed(1000);
    let replay = |first_owner: u64| -> Vec<Decision> {
        let step = |step: u32| {
            (0..128).for_each(|_| counters.sweep(NOW));
            let number = step as usize % quotas.len();
            let own = charge(first_owner + u64::from(step) % 5, number, &quotas[number]);
            counters.charge(&[own], LAST_YEAR + SECOND * step / 5, NOW).unwrap()
        };
        (0..500).map(step).collect()
    };
    let first = replay(0);
    assert!(first.iter().any(|own| own.verdict == Verdict::Deny));
    assert!(replay(5) == first);
}

#[test]
fn fast_replay_and_a_second_one_find_room() {
    let quota = fixed(Align::FirstRequest(MINUTE));
    let counters = client_timed(1000);
    let mut now = NOW;
    for round in 0..2 {
        for step in 0..20_000 {
            // A second passes there, and a millisecond here.
            now = now + SECOND / 1000;
            let own = charge(round << 32 | step, 0, &quota);
            let at = LAST_YEAR + SECOND * step as u32;
            let decision = counters.charge(&[own], at, now);
            assert_eq!(decision.map(|own| own.verdict), Ok(Verdict::Allow), "{round}, {step}");
        }
        assert!(counters.count() <= 1000);
    }
}

#[test]
fn room_is_bounded_and_does_not_grow_by_time_that_passes_here() {
    let quota = fixed(Align::FirstRequest(MINUTE));
    let counters = client_timed(100);
    (0..100).for_each(|owner| assert!(fits(&counters, charge(owner, 0, &quota), NOW)));
    let late = NOW + MINUTE * 1000;
    let refused = counters.charge(&[charge(100, 0, &quota)], NOW, late);
    assert_eq!(refused, Err(NoRoom::Full));
    assert!(fits(&counters, charge(100, 0, &quota), NOW + MINUTE));
}

#[test]
fn charge_can_be_corrected_until_its_counter_is_past_or_may_be_dropped() {
    let quota = fixed(Align::FirstRequest(MINUTE));
    let counters = client_timed(100);
    let own = charge(1, 0, &quota);
    let decision = counters.charge(&[own], LAST_YEAR, NOW).unwrap();
    let outcome = &decision.outcomes[0];
    let ends = outcome.standing.reset;
    assert!(!counters.has_ended(&[own], ends), "the clock does not matter");
    assert!(fits(&counters, charge(2, 0, &quota), NOW), "nor does a later replay");
    assert!(!counters.has_ended(&[own], ends));
    let back = Adjustment::GiveBack(outcome.receipt.unwrap());
    assert_eq!(counters.settle(&own, back, LAST_YEAR, NOW).unwrap().used, 0);
    assert!(fits(&counters, own, LAST_YEAR + MINUTE));
    assert!(counters.has_ended(&[own], ends), "its counter has gone on");

    let other = charge(3, 0, &quota);
    assert!(fits(&counters, other, LAST_YEAR));
    (4..104).for_each(|owner| drop(counters.charge(&[charge(owner, 0, &quota)], NOW, NOW)));
    assert!(counters.has_ended(&[other], ends), "there was no room for what is over");
}

/// A charge of the program: how long after the one before, how late it is, on which counters.
#[derive(Clone, Debug)]
struct Step {
    gap: Duration,
    late: Duration,
    asked: Asked,
    /// A charge of live traffic that follows.
    live: Option<Asked>,
    /// Gives back what the latest charge took.
    gives_back: bool,
}

/// Counters by owner and number, and how many units of each.
type Asked = Vec<(u64, usize, u32)>;

fn asked() -> impl Strategy<Value = Asked> {
    let counters = prop::collection::btree_map((0_u64..3, 0..quotas().len()), 0_u32..4, 1..4);
    counters.prop_map(|all| all.into_iter().map(|((a, b), cost)| (a, b, cost)).collect())
}

fn steps() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![(0_u64..5000), (0_u64..90_000), Just(4_000_000)];
    let late = prop_oneof![4 => Just(0), 1 => 0_u64..200_000];
    let gives_back = prop_oneof![4 => Just(false), 1 => Just(true)];
    (gap, late, asked(), prop::option::of(asked()), gives_back).prop_map(
        |(gap, late, asked, live, gives_back)| Step {
            gap: Duration::from_millis(gap),
            late: Duration::from_millis(late),
            asked,
            live,
            gives_back,
        },
    )
}

fn charges<'q>(asked: &Asked, quotas: &'q [Quota]) -> Vec<Charge<'q>> {
    let own = |&(owner, number, cost): &(u64, usize, u32)| Charge {
        cost,
        ..charge(owner, number, &quotas[number])
    };
    asked.iter().map(own).collect()
}

/// What a history is answered, and what live traffic is. For a thousand units of time of the
/// history, `pace` pass here.
fn replay(history: &[Step], pace: u32, with_history: bool) -> [Vec<Decision>; 2] {
    let quotas = quotas();
    let (counters, memory) = (client_timed(1000), MemoryStore::new(1000, [0; 16]));
    let [mut replayed, mut live] = [Vec::new(), Vec::new()];
    let (mut now, mut at) = (NOW, LAST_YEAR);
    for step in history {
        now = now + step.gap * pace / 1000;
        at = at + step.gap;
        counters.sweep(now);
        memory.sweep(now);
        if with_history {
            let charges = charges(&step.asked, &quotas);
            let at = at.saturating_sub(step.late);
            let decision = counters.charge(&charges, at, now).unwrap();
            let receipts = decision.outcomes.iter().map(|own| own.receipt);
            let taken: Vec<(&Charge<'_>, Option<Receipt>)> =
                charges.iter().zip(receipts).filter(|_| step.gives_back).collect();
            for (own, receipt) in taken {
                if let Some(receipt) = receipt {
                    counters.settle(own, Adjustment::GiveBack(receipt), at, now).unwrap();
                }
            }
            replayed.push(decision);
            replayed.push(counters.peek(&charges, at));
        }
        if let Some(asked) = &step.live {
            live.push(memory.charge(&charges(asked, &quotas), now).unwrap());
        }
    }
    [replayed, live]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// As fast as it was, a hundred times as fast, and a tenth as fast.
    #[test]
    fn prop_replay_at_any_speed_gets_the_same_answers_and_live_traffic_its_own(
        history in prop::collection::vec(steps(), 1..150),
    ) {
        let [expected, _] = replay(&history, 1000, true);
        for pace in [1000, 10, 10_000] {
            let [replayed, live] = replay(&history, pace, true);
            prop_assert_eq!(&replayed, &expected, "at a pace of {}", pace);
            let [_, alone] = replay(&history, pace, false);
            prop_assert_eq!(live, alone, "at a pace of {}", pace);
        }
    }

    /// However late they come, they are decided as at the mark of each counter, and a counter that
    /// has no room gains none.
    #[test]
    fn prop_late_charges_never_give_a_counter_room(
        history in prop::collection::vec(steps(), 1..100),
        late in 0_u64..100_000_000,
    ) {
        let quotas = quotas();
        let counters = client_timed(1000);
        let mut at = LAST_YEAR;
        for step in history {
            at = at + step.gap;
            let charges = charges(&step.asked, &quotas);
            counters.charge(&charges, at, NOW).unwrap();
            let before = counters.peek(&charges, at);
            counters.charge(&charges, at.saturating_sub(Duration::from_secs(late)), NOW).unwrap();
            let after = counters.peek(&charges, at);
            for (before, after) in before.outcomes.iter().zip(&after.outcomes) {
                prop_assert!(after.standing.used >= before.standing.used);
                prop_assert!(after.standing.reset >= before.standing.reset);
            }
        }
    }
}
