//! The scripts on a real server.

mod differential;
mod server;

use std::time::Duration;

use proptest::prelude::*;
use redis::Value;
use tollgate_limit::{
    Algorithm, AlgorithmKind, FixedWindow, Gcra, Key, Leases, Level, Log, Quota, Retry, SlidingLog,
    Standing, StateVariant, TokenBucket, Verdict, Window, with_algorithm,
};

use self::server::Server;
use super::{algorithm::MAX_ENTRIES, reply_reader::BadReply, *};

const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);
const HOUR: Duration = Duration::from_secs(3600);

/// The time of a proxy's clock.
fn at(now: Timestamp) -> ScriptTime {
    ScriptTime { clock: ScriptClock::Proxy(now), near: now }
}

fn key(entry: u128) -> Key {
    Key { owner: 7, entry }
}

fn per_hour(limit: u32) -> Quota {
    Quota::FixedWindow(FixedWindow { limit, align: Align::FirstRequest(HOUR) })
}

/// One quota of each algorithm, of ten units.
fn one_of_each() -> [Quota; AlgorithmKind::ALL.len()] {
    AlgorithmKind::ALL.map(|kind| Quota::plain(kind, 10, HOUR).unwrap())
}

fn charge_at(server: &mut Server, charge: Charge<'_>, now: Timestamp) -> Reply {
    let charges = [charge];
    server.read(&charges, &super::charge("test", &charges, at(now)))
}

#[test]
fn key_that_was_written_has_a_time_to_live() {
    let mut server = Server::start();
    for (entry, quota) in (0..).zip(one_of_each()) {
        let charge = Charge::new(key(entry), &quota, 1);
        let reply = charge_at(&mut server, charge, NOW);
        server.expect_ttl(&charge, "charge");
        let receipt = reply.decision.outcomes[0].receipt.unwrap();
        let back = Adjustment::GiveBack(receipt);
        let settlements = match quota.holds_leases() {
            true => [Adjustment::Renew(receipt), Adjustment::Take],
            false => [Adjustment::Take, back],
        };
        for adjustment in settlements {
            server.run(&settle("test", &charge, adjustment, at(NOW)));
            server.expect_ttl(&charge, "settlement");
        }
        let day_before = Timestamp::from_micros(NOW.as_micros() - 86_400_000_000);
        charge_at(&mut server, Charge { cost: 10, ..charge }, day_before);
        server.expect_ttl(&charge, "healing");
    }
}

#[test]
fn key_outlives_what_it_holds_by_a_second() {
    let mut server = Server::start();
    for (entry, quota) in (0..).zip(one_of_each()) {
        let charge = Charge::new(key(entry), &quota, 10);
        let standing = charge_at(&mut server, charge, NOW).decision.outcomes[0].standing;
        let left = standing.reset.saturating_since(NOW);
        assert!(left >= HOUR, "{quota:?}");
        let expected = left.as_millis() as i64 + 1000;
        let found = server.ttl(&charge);
        assert!((expected - 900..=expected).contains(&found), "{quota:?}: {found} {expected}");
    }
    let quota = TokenBucket { capacity: 10, refill: 0, interval: HOUR, even: false, strict: false };
    let quota = Quota::TokenBucket(quota);
    let charge = Charge::new(key(10), &quota, 10);
    charge_at(&mut server, charge, NOW);
    assert!(server.ttl(&charge) > 399 * 86_400_000, "what never comes back is kept");
}

#[test]
fn denial_and_peek_write_nothing() {
    let mut server = Server::start();
    let quotas = one_of_each();
    let too_much = Charge::new(key(0), &quotas[0], 11);
    let charges: Vec<Charge<'_>> = (1..)
        .zip(&quotas)
        .map(|(entry, quota)| Charge::new(key(entry), quota, 1))
        .chain([too_much])
        .collect();
    let reply = server.read(&charges, &super::charge("test", &charges, at(NOW)));
    assert_eq!(reply.decision.verdict, Verdict::Deny);
    assert!(reply.decision.outcomes.iter().all(|outcome| outcome.receipt.is_none()));
    charge_at(&mut server, too_much, NOW);
    server.run(&peek("test", &charges, at(NOW)));
    assert_eq!(server.command(&["DBSIZE"]), Value::Int(0));
}

#[test]
fn script_for_the_most_common_charge_decides_as_the_general_one() {
    let mut server = Server::start();
    let mut numbers = differential::Numbers(42);
    for entry in 0..300 {
        let mut now = NOW;
        for _ in 0..30 {
            let quota = per_hour(numbers.below(12) as u32);
            let charges = [Charge::new(key(entry), &quota, 1 + numbers.below(6) as u32)];
            now = numbers.advance(now, HOUR);
            let special = Call::new(Operation::ChargeFixedWindow, "a", &charges, at(now));
            let general = Call::new(Operation::Charge, "b", &charges, at(now));
            assert_eq!(server.run(&special), server.run(&general));
            let [left, right] = ["a", "b"].map(|prefix| server.get(prefix, charges[0].key));
            assert_eq!(left, right);
        }
    }
}

#[test]
fn only_the_most_common_charge_is_decided_by_its_own_script() {
    let quota = per_hour(10);
    let aligned = Quota::FixedWindow(FixedWindow { limit: 10, align: Align::Epoch(HOUR) });
    let meter = Quota::plain(AlgorithmKind::Gcra, 10, HOUR).unwrap();
    let common = Charge::new(key(0), &quota, 1);
    assert!(is_most_common(&common));
    for other in [
        Charge { cost: 0, ..common },
        Charge { stance: Stance::Observe, ..common },
        Charge { quota: &aligned, ..common },
        Charge { quota: &meter, ..common },
    ] {
        assert!(!is_most_common(&other), "{other:?}");
    }
}

#[test]
fn clock_of_the_server_decides_without_another() {
    let mut server = Server::start();
    for (entry, quota) in (0..).zip(one_of_each()) {
        let charge = Charge::new(key(entry), &quota, 1);
        let charges = [charge];
        let mut decide = |expected| {
            let call = super::charge(
                "test",
                &charges,
                ScriptTime { clock: ScriptClock::Redis, near: NOW },
            );
            let reply = server.read(&charges, &call);
            assert_eq!(reply.decision.verdict, expected, "{quota:?}");
            server.expect_ttl(&charge, "charge");
            reply.decision
        };
        let first = decide(Verdict::Allow);
        for used in 2..=10 {
            let next = decide(Verdict::Allow);
            assert!(next.now > first.now);
            assert_eq!(next.outcomes[0].standing.used, used, "{quota:?}");
        }
        let denied = decide(Verdict::Deny).outcomes[0].standing;
        assert_eq!(denied.remaining, 0);
        if quota.kind() == AlgorithmKind::FixedWindow {
            assert_eq!(denied.reset, first.outcomes[0].standing.reset);
        }
    }
}

#[test]
fn calendar_window_ends_by_the_calendar_whatever_the_clocks_say() {
    let mut server = Server::start();
    let month = tollgate_limit::Calendar::new(tollgate_limit::CalendarUnit::Month, "UTC").unwrap();
    let quota = FixedWindow { limit: 10, align: Align::Calendar(month) };
    let quota = Quota::FixedWindow(quota);
    let end = Timestamp::from_secs(1_796_083_200);
    for (entry, (millis_of_redis, millis_of_proxy)) in
        (0..).zip([(-2000, -3000), (-2000, 1000), (-1, 0), (0, -1), (1000, -2000), (4000, 4000)])
    {
        let instant = |millis: i64| {
            Timestamp::from_micros(end.as_micros().checked_add_signed(millis * 1000).unwrap())
        };
        let charges = [Charge::new(key(entry), &quota, 1)];
        let clock = ScriptClock::Proxy(instant(millis_of_redis));
        let time = ScriptTime { clock, near: instant(millis_of_proxy) };
        let call = super::charge("test", &charges, time);
        let standing = server.read(&charges, &call).decision.outcomes[0].standing;
        let next = Timestamp::from_secs(1_798_761_600);
        let expected = if millis_of_redis < 0 { end } else { next };
        assert_eq!(standing.reset, expected, "{millis_of_redis} {millis_of_proxy}");
    }
}

#[test]
fn seed_is_what_the_counter_holds_unless_it_holds_as_much() {
    let mut server = Server::start();
    for (entry, quota) in (0..).zip(one_of_each()).filter(|(_, quota)| !quota.holds_leases()) {
        let [four, nine] = [4, 9].map(|units| with_algorithm!(&quota, own => after(own, units)));
        let charge = Charge::new(key(entry), &quota, 1);
        let seed = |state: &AnyState| super::seed("test", &charge, state, at(NOW));
        assert_eq!(server.run(&seed(&four).unwrap()), Value::Int(1));
        server.expect_ttl(&charge, "seed");
        assert_eq!(state_of(&mut server, &charge), four);

        charge_at(&mut server, charge, NOW);
        assert_eq!(server.run(&seed(&four).unwrap()), Value::Int(0), "{four:?}");
        assert_eq!(charge_at(&mut server, charge, NOW).decision.outcomes[0].standing.used, 6);

        // Elsewhere it has gone on.
        assert_eq!(server.run(&seed(&nine).unwrap()), Value::Int(1), "{nine:?}");
        let used = charge_at(&mut server, charge, NOW).decision.outcomes[0].standing.used;
        assert_eq!(used, 10, "{nine:?}");
    }
}

/// The state of a counter of which so many units were taken at once.
fn after<A: Algorithm<State: StateVariant>>(algorithm: &A, units: u32) -> AnyState {
    let mut state = A::State::default();
    algorithm.take(&mut state, units, NOW);
    state.to_any()
}

fn state_of(server: &mut Server, charge: &Charge<'_>) -> AnyState {
    let reply = server.run(&super::state("test", charge, at(NOW)));
    read_state(charge, &reply).unwrap().unwrap()
}

#[test]
fn what_was_charged_before_a_reset_is_not_copied_and_what_was_charged_after_it_is() {
    let mut server = Server::start();
    let quota = per_hour(10);
    let charge = Charge::new(key(0), &quota, 1);
    let state = Window { used: 4, reset: NOW + HOUR }.to_any();
    let calls = |known| {
        [super::seed, super::add]
            .map(|copy| copy("test", &charge, &state, at(NOW)).unwrap().after_reset(known))
    };
    for (reset, stale) in [(7, None), (8, Some(7))] {
        server.execute(&super::reset("test", &[charge.key], reset, HOUR));
        let [seed, add] = calls(stale);
        assert_eq!(server.run(&seed), Value::Int(2), "{reset}");
        assert_eq!(server.run(&add), Value::Int(0), "{reset}");
        let [seed, add] = calls(Some(reset));
        assert_eq!(server.run(&seed), Value::Int(1), "{reset}");
        assert_eq!(server.run(&add), Value::Int(1), "{reset}");
        let used = charge_at(&mut server, charge, NOW).decision.outcomes[0].standing.used;
        assert_eq!(used, 9, "{reset}");
    }
}

#[test]
fn seed_of_a_meter_with_a_coarse_grain_is_exact() {
    let mut server = Server::start();
    let quota = Gcra::new(1_000_000, 24 * HOUR, 1_000_000, 1).unwrap();
    let mut level = Level::default();
    quota.take(&mut level, 999_999, NOW);
    let quota = Quota::Gcra(quota);
    let charge = Charge::new(key(0), &quota, 1);
    server.run(&seed("test", &charge, &level.to_any(), at(NOW)).unwrap());
    assert_eq!(state_of(&mut server, &charge), level.to_any());
}

#[test]
fn seed_that_is_over_is_none() {
    let mut server = Server::start();
    let quota = per_hour(10);
    let charge = Charge::new(key(0), &quota, 1);
    let over = Window { used: 4, reset: NOW }.to_any();
    let call = seed("test", &charge, &over, at(NOW)).unwrap();
    assert_eq!(server.run(&call), Value::Int(0));
    assert_eq!(server.command(&["DBSIZE"]), Value::Int(0));
    let leases = AnyState::Concurrency(Leases::default());
    assert!(seed("test", &charge, &leases, at(NOW)).is_none());
}

#[test]
fn log_is_carried_with_its_receipts_and_a_long_one_in_a_bounded_call() {
    let mut server = Server::start();
    let quota = SlidingLog { limit: 10_000, window: HOUR };
    let mut log = Log::default();
    let mut now = NOW;
    let mut receipts = Vec::new();
    for _ in 0..7_000 {
        receipts.push(quota.take(&mut log, 1, now));
        now = now + Duration::from_millis(1);
    }
    let last = *receipts.last().unwrap();
    let quota = Quota::SlidingLog(quota);
    let charge = Charge::new(key(0), &quota, 1);
    let call = seed("test", &charge, &log.to_any(), at(now)).unwrap();
    assert!(
        call.argument.as_slice().len() <= 24 * (MAX_ENTRIES + 3),
        "{}",
        call.argument.as_slice().len()
    );
    assert_eq!(server.run(&call), Value::Int(1));
    let used_at = |server: &mut Server, now| {
        charge_at(server, Charge { cost: 0, ..charge }, now).decision.outcomes[0].standing.used
    };
    assert_eq!(used_at(&mut server, now), 7_000);
    // Seven make up one, and leave with the last of them.
    assert_eq!(used_at(&mut server, NOW + HOUR + Duration::from_millis(699)), 6_300);
    assert_eq!(used_at(&mut server, NOW + HOUR + Duration::from_millis(705)), 6_300);
    assert_eq!(used_at(&mut server, NOW + HOUR + Duration::from_millis(706)), 6_293);
    let back = Adjustment::GiveBack(last);
    assert_eq!(server.run(&settle("test", &charge, back, at(now))), Value::Int(1));
    assert_eq!(used_at(&mut server, now), 6_999);
}

#[test]
fn what_is_no_state_is_none() {
    let mut server = Server::start();
    for (entry, quota) in (0..).zip(one_of_each()).filter(|(_, quota)| !quota.holds_leases()) {
        let charge = Charge::new(key(entry), &quota, 1);
        let name = String::from_utf8(key_name("test", charge.key).to_vec()).unwrap();
        for garbage in ["", "1", "a text that is longer than any state, but for that of logs"] {
            server.command(&["SET", &name, garbage]);
            let reply = charge_at(&mut server, charge, NOW);
            assert_eq!(reply.decision.outcomes[0].standing.used, 1, "{quota:?} {garbage}");
        }
    }
}

#[test]
fn level_survives_a_change_of_its_grain() {
    let mut server = Server::start();
    let day = 24 * HOUR;
    let fine = Quota::Gcra(Gcra::new(1000, day, 1000, 1).unwrap());
    let coarse = Quota::Gcra(Gcra::new(1_000_000, day, 1_000_000, 1).unwrap());
    for (entry, [first, second]) in (0..).zip([[&fine, &coarse], [&coarse, &fine]]) {
        charge_at(&mut server, Charge::new(key(entry), first, 100), NOW);
        let reply = charge_at(&mut server, Charge::new(key(entry), second, 1), NOW);
        assert_eq!(reply.decision.outcomes[0].standing.used, 101);
    }
}

#[test]
fn replies_that_no_script_returns_are_recognised() {
    let quotas = one_of_each();
    let charges = [Charge::new(key(0), &quotas[0], 1)];
    let error = |reply| read(&charges, &reply).unwrap_err();
    assert_eq!(error(Value::Nil), BadReply::Kind);
    assert_eq!(error(Value::Int(1)), BadReply::Kind);
    assert_eq!(error(Value::BulkString(vec![0; 24])), BadReply::Length(24));
    assert_eq!(error(Value::BulkString(vec![0; 26])), BadReply::Length(26));
    assert_eq!(error(Value::BulkString(vec![255; 25])), BadReply::Number);
    assert!(read(&charges, &Value::BulkString(vec![0; 25])).is_ok());
}

proptest! {
    #[test]
    fn prop_no_reply_makes_it_panic(reply in any_value(), costs: [u32; AlgorithmKind::ALL.len()]) {
        let quotas = one_of_each();
        let charges: Vec<Charge<'_>> = (0..)
            .zip(&quotas)
            .zip(costs)
            .map(|((entry, quota), cost)| Charge::new(key(entry), quota, cost))
            .collect();
        for length in 0..=charges.len() {
            let _ = read(&charges[..length], &reply);
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let double =
        prop_oneof![any::<f64>(), Just(-1.0), Just(1e300), (0_u64..1 << 60).prop_map(|n| n as f64)];
    let doubles = prop::collection::vec((any::<bool>(), double), 0..30).prop_map(|numbers| {
        let packed = numbers.into_iter().flat_map(|(flag, number)| {
            let flag = flag.then_some(1);
            flag.into_iter().chain(number.to_le_bytes())
        });
        Value::BulkString(packed.collect())
    });
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Double),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Value::BulkString),
        doubles,
        any::<String>().prop_map(Value::SimpleString),
        Just(Value::Okay),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::Array))
}

/// Charges that a counter in Redis and another one had, each with the milliseconds since the one
/// before.
type Costs = [Vec<(u64, u32)>; 2];

/// That what the other counter has can be added, or joined, in Redis as it is here.
fn assert_carried<A: Algorithm<State: StateVariant>>(
    server: &mut Server,
    (algorithm, charge): (&A, Charge<'_>),
    [ours, theirs]: &Costs,
    (operation, wait): (Operation, i64),
) {
    let mut state = A::State::default();
    let mut other = A::State::default();
    let mut end = NOW;
    let mut now = NOW;
    for (millis, cost) in ours {
        now = now + Duration::from_millis(*millis);
        algorithm.take(&mut state, *cost, now);
        let charge = Charge { cost: *cost, ..charge };
        server.run(&settle("test", &charge, Adjustment::Take, at(now)));
    }
    for (millis, cost) in theirs {
        end = end + Duration::from_millis(*millis);
        algorithm.take(&mut other, *cost, end);
    }
    // The clock may be behind what was charged by others, by what a counter bears.
    let now = now.max(end).saturating_add_signed(wait * 1000);
    let time = at(now);
    let is_more = match operation {
        Operation::Add => {
            algorithm.add(&mut state, &other, now);
            server.run(&super::add("test", &charge, &other.to_any(), time).unwrap());
            None
        }
        _ => {
            let is_more = algorithm.join(&mut state, &other, now);
            let call = super::seed("test", &charge, &other.to_any(), time).unwrap();
            Some((server.run(&call), Value::Int(is_more.into())))
        }
    };
    let place = format!("{charge:?} {ours:?} {theirs:?} {operation:?} at {now:?}");
    if let Some((found, expected)) = is_more {
        assert_eq!(found, expected, "{place}");
    }
    let found = server.run(&super::state("test", &charge, time));
    let found = read_state(&charge, &found).unwrap().unwrap();
    let found: &A::State = StateVariant::from_any(&found).unwrap();
    for wait in [0, 700, 1_500, 3_000, 4_500, 6_500] {
        let at = now + Duration::from_millis(wait);
        let [found, expected] = [found, &state].map(|state| {
            let Standing { used, reset, .. } = algorithm.standing(state, at);
            // A window that is over begins anew, whichever it was.
            (used, (used > 0).then_some(reset))
        });
        assert_eq!(found, expected, "{place} and {wait} ms later");
    }
    let found = charge_at(server, Charge { cost: 0, ..charge }, now).decision.outcomes[0];
    let found = Standing { retry: Retry::Now, ..found.standing };
    assert_eq!(found, algorithm.standing(&state, now), "{place}");
}

#[test]
fn scripts_join_levels_that_drain_within_one_microsecond_as_the_algorithm_does() {
    let quick = Gcra::new(3_000_000, Duration::from_secs(1), 10, 10).unwrap();
    let quota = Quota::from(quick.clone());
    let mut server = Server::start();
    for (entry, [ours, theirs]) in (0..).zip([[1, 3], [3, 1], [2, 2]]) {
        let costs = [ours, theirs].map(|cost| vec![(0, cost)]);
        let charge = Charge::new(key(entry), &quota, 1);
        assert_carried(&mut server, (&quick, charge), &costs, (Operation::Seed, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn prop_scripts_add_and_join_as_the_algorithms_do(
        ours in prop::collection::vec((0..2_000_u64, 1..4_u32), 0..9),
        theirs in prop::collection::vec((0..2_000_u64, 1..4_u32), 1..9),
        wait in -6_500..9_000_i64,
        entry: u128,
    ) {
        const WINDOW: Duration = Duration::from_secs(6);
        let mut server = Server::start();
        let costs = [ours, theirs];
        let interval = WINDOW / 3;
        let bucket = TokenBucket { capacity: 10, refill: 2, interval, even: false, strict: false };
        let even = TokenBucket { refill: 7, even: true, ..bucket.clone() };
        let log = SlidingLog { limit: 5, window: WINDOW };
        let plain = AlgorithmKind::ALL.map(|kind| Quota::plain(kind, 10, WINDOW).unwrap());
        let quotas = [bucket.into(), even.into(), log.into()].into_iter().chain(plain);
        for (index, quota) in (0..).zip(quotas.filter(|quota| !quota.holds_leases())) {
            for (number, operation) in [Operation::Add, Operation::Seed].into_iter().enumerate() {
                let key = key(entry ^ (100 * number as u128 + index));
                let charge = Charge::new(key, &quota, 1);
                with_algorithm!(&quota, own => {
                    assert_carried(&mut server, (own, charge), &costs, (operation, wait));
                });
            }
        }
    }
}
