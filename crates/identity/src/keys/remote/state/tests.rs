//! Time is simulated: an hour passes by adding one.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{fetch::FetchError, sign::SigningKey};

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The middle of all random bytes.
const MIDDLE: u8 = 127;

/// The default timing of a policy.
const TIMING: Timing =
    Timing { cache: Duration::from_secs(600), cooldown: Duration::from_secs(30), max_stale: HOUR };

/// A new key with this name.
fn jwk(kid: &str) -> Value {
    let pem = SigningKey::generate_ed25519().unwrap().1;
    let der = crate::keys::pem::blocks(pem.as_bytes()).unwrap().remove(0).der;
    let x = URL_SAFE_NO_PAD.encode(&der[der.len() - 32..]);
    json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x })
}

fn fetched(keys: &[&Value]) -> Result<FetchedKeys, RemoteError> {
    let (keys, skipped) =
        KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes(), &[], &[])?;
    Ok(FetchedKeys { keys: Arc::new(keys), skipped })
}

fn failed() -> Result<FetchedKeys, RemoteError> {
    Err(FetchError::Status(500).into())
}

fn kids(state: &State) -> Vec<&str> {
    let keys = state.cached.as_ref().map(|cached| cached.keys.keys.as_slice());
    keys.unwrap_or_default().iter().filter_map(|key| key.kid.as_deref()).collect()
}

fn generation(state: &State) -> u64 {
    state.cached.as_ref().map_or(0, |cached| cached.generation)
}

fn is_usable(state: &State, now: Timestamp) -> bool {
    state.cached.as_ref().is_some_and(|cached| cached.is_usable(now))
}

/// Runs the fetch that is due.
fn fetch(
    state: &mut State,
    now: Timestamp,
    result: Result<FetchedKeys, RemoteError>,
) -> FetchReport {
    assert!(state.start_if_due(now), "no fetch is due");
    state.finish(now, result, MIDDLE)
}

/// A state that fetched these keys at `START`.
fn with(keys: &[&Value]) -> State {
    let mut state = State::new(TIMING);
    fetch(&mut state, START, fetched(keys));
    state
}

/// When the next fetch is due, in whole seconds.
fn time_until_due(state: &State, from: Timestamp) -> Duration {
    let micros = state.next_due.saturating_since(from).as_micros() as u64;
    Duration::from_secs(micros.div_ceil(1_000_000))
}

#[test]
fn the_first_fetch_is_due_at_once_and_only_once() {
    let mut state = State::new(TIMING);
    assert!(state.start_if_due(START));
    assert!(!state.start_if_due(START + HOUR), "one is under way");
    state.finish(START, fetched(&[&jwk("a")]), 0);
    assert!(!state.start_if_due(START));
}

#[test]
fn keys_are_fetched_again_around_four_fifths_of_their_lifetime() {
    for (random, expected) in [(0, 450), (127, 480), (255, 510)] {
        let mut state = State::new(TIMING);
        state.start_if_due(START);
        state.finish(START, fetched(&[&jwk("a")]), random);
        assert_eq!(time_until_due(&state, START).as_secs(), expected, "{random}");
        assert!(!state.start_if_due(START + Duration::from_secs(expected - 1)));
        assert!(state.start_if_due(START + Duration::from_secs(expected)));
    }
    let mut state = State::new(Timing { cache: Duration::ZERO, ..TIMING });
    fetch(&mut state, START, fetched(&[&jwk("a")]));
    assert_eq!(time_until_due(&state, START), MIN_PAUSE);
}

#[test]
fn a_removed_key_is_gone_after_the_next_fetch() {
    let old = jwk("old");
    let new = jwk("new");
    let mut state = with(&[&old]);
    let first = generation(&state);
    let due = START + time_until_due(&state, START);
    fetch(&mut state, due, fetched(&[&old, &new]));
    assert_eq!(kids(&state), ["old", "new"]);
    let both = generation(&state);
    let due = due + time_until_due(&state, due);
    fetch(&mut state, due, fetched(&[&new]));
    assert_eq!(kids(&state), ["new"]);
    assert!(first != 0 && first != both && both != generation(&state));
}

#[test]
fn the_generation_changes_only_with_the_keys() {
    let a = jwk("a");
    let b = jwk("b");
    let mut state = with(&[&a, &b]);
    let first = generation(&state);
    let mut renamed = b.clone();
    renamed["kid"] = "c".into();
    let mut other = jwk("b");
    other["note"] = "a member that does not matter".into();
    let mut now = START;
    for (what, keys, is_same) in [
        ("the same", vec![&a, &b], true),
        ("in another order", vec![&b, &a], true),
        ("with one that is of no use", vec![&b, &Value::Null, &a], true),
        ("one fewer", vec![&a], false),
        ("one more", vec![&a, &b], false),
        ("one renamed", vec![&a, &renamed], false),
        ("another key of the same name", vec![&a, &other], false),
    ] {
        let before = generation(&state);
        now = now + time_until_due(&state, now);
        fetch(&mut state, now, fetched(&keys));
        assert_eq!(generation(&state) == before, is_same, "{what}");
        assert_eq!(state.cached.as_ref().unwrap().fetched, now, "{what}");
    }
    assert_ne!(generation(&with(&[&a, &b])), first, "two sets in one process share a generation");
}

#[test]
fn skipped_keys_are_reported_once() {
    let good = jwk("a");
    let bad = json!({ "kty": "none" });
    let worse = json!(1);
    let mut state = State::new(TIMING);
    let mut now = START;
    for (keys, expected) in [
        (vec![&good, &bad], 1),
        (vec![&good, &bad], 0),
        (vec![&good, &bad, &worse], 2),
        (vec![&good], 0),
        (vec![&good, &bad], 1),
    ] {
        now = now + time_until_due(&state, now);
        let FetchReport::Fetched { skipped, .. } = fetch(&mut state, now, fetched(&keys)) else {
            panic!()
        };
        assert_eq!(skipped.len(), expected, "{keys:?}");
    }
}

#[test]
fn a_set_without_a_usable_key_does_not_replace_a_good_one() {
    let a = jwk("a");
    let mut state = with(&[&a]);
    let due = START + time_until_due(&state, START);
    for keys in [&[][..], &[&json!({ "kty": "oct", "k": "c2VjcmV0" })]] {
        let now = due + time_until_due(&state, due);
        let before = generation(&state);
        assert!(matches!(fetch(&mut state, now, fetched(keys)), FetchReport::Failed(_)));
        assert_eq!((kids(&state), generation(&state)), (vec!["a"], before));
        assert_eq!(state.cached.as_ref().unwrap().fetched, START, "the keys are as old as before");
    }
}

#[test]
fn keys_are_used_for_max_stale_while_the_issuer_is_down() {
    let mut state = with(&[&jwk("a")]);
    let end = START + TIMING.cache + TIMING.max_stale;
    let mut now = START;
    while now < end {
        now = now + time_until_due(&state, now);
        fetch(&mut state, now, failed());
        assert_eq!(is_usable(&state, now), now <= end, "{now}");
    }
    assert!(is_usable(&state, end));
    assert!(!is_usable(&state, end + Duration::from_micros(1)));
    let now = now + time_until_due(&state, now);
    fetch(&mut state, now, fetched(&[&jwk("b")]));
    assert!(is_usable(&state, now), "fetched again when the issuer is back");
    assert!(state.last_error.is_none());
}

#[test]
fn keys_with_another_timing_keep_their_age_and_are_fetched_at_once() {
    let mut old = with(&[&jwk("a")]);
    fetch(&mut old, START + HOUR, failed());
    let now = START + HOUR;
    for cache in [Duration::ZERO, MINUTE, 20 * MINUTE] {
        let mut state = old.with_timing(Timing { cache, ..TIMING });
        assert_eq!((kids(&state), generation(&state)), (kids(&old), generation(&old)));
        assert_eq!(state.cached.as_ref().unwrap().fetched, START);
        assert!(is_usable(&state, START + cache + HOUR));
        assert!(!is_usable(&state, START + cache + HOUR + SECOND));
        fetch(&mut state, now, failed());
        assert_eq!((kids(&state), time_until_due(&state, now)), (vec!["a"], FIRST_BACKOFF));
    }
    let strict = old.with_timing(Timing { max_stale: Duration::ZERO, ..TIMING });
    assert!(!is_usable(&strict, now), "the new timing makes them too old");
    assert!(State::new(TIMING).with_timing(TIMING).cached.is_none());
}

#[test]
fn backoff_doubles_up_to_a_minute() {
    let mut state = State::new(TIMING);
    let mut now = START;
    fetch(&mut state, now, failed());
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let pause = time_until_due(&state, now);
        pauses.push(pause.as_secs());
        now = now + pause;
        fetch(&mut state, now, failed());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    let now = now + MINUTE;
    fetch(&mut state, now, fetched(&[&jwk("a")]));
    assert_eq!(time_until_due(&state, now).as_secs(), 480);
}

#[test]
fn fetches_for_unknown_keys_come_once_in_a_cooldown_and_are_shared() {
    let a = jwk("a");
    let b = jwk("b");
    let mut state = with(&[&a]);
    assert_eq!(state.request_refresh(START + 29 * SECOND), Refresh::Refuse, "any fetch counts");
    let now = START + 30 * SECOND;
    assert_eq!(state.request_refresh(now), Refresh::Start(2));
    assert_eq!(state.request_refresh(now), Refresh::Join(2));
    assert_eq!(state.request_refresh(now + HOUR), Refresh::Join(2));
    state.finish(now, fetched(&[&a, &b]), MIDDLE);
    assert_eq!(kids(&state), ["a", "b"]);
    assert_eq!(state.request_refresh(now + 29 * SECOND), Refresh::Refuse);
    assert_eq!(state.request_refresh(now + 30 * SECOND), Refresh::Start(3));
}

#[test]
fn failed_fetch_counts_for_the_cooldown_and_leaves_the_next_refresh() {
    let mut state = with(&[&jwk("a")]);
    let now = START + MINUTE;
    assert_eq!(state.request_refresh(now), Refresh::Start(2));
    state.finish(now, failed(), MIDDLE);
    assert_eq!(state.request_refresh(now + 29 * SECOND), Refresh::Refuse);
    assert_eq!(
        time_until_due(&state, START).as_secs(),
        480,
        "the cached keys are as fresh as before"
    );
    assert_eq!(state.request_refresh(now + 30 * SECOND), Refresh::Start(3));
}

#[test]
fn ten_thousand_made_up_keys_in_a_minute_cost_two_fetches() {
    for result in [fetched(&[&jwk("a")]), failed()] {
        let mut state = with(&[&jwk("a")]);
        let begin = START + HOUR / 12;
        let mut granted = 0;
        for number in 0..10_000 {
            let now = begin + MINUTE / 10_000 * number;
            assert!(!state.start_if_due(now));
            if let Refresh::Start(_) = state.request_refresh(now) {
                granted += 1;
                state.finish(now, result.clone(), MIDDLE);
            }
        }
        assert_eq!((granted, state.started), (2, 3));
    }
}

#[test]
fn a_clock_that_goes_back_stops_nothing() {
    let mut state = with(&[&jwk("a")]);
    let earlier = Timestamp::from_secs(1_000_000_000);
    assert!(is_usable(&state, earlier));
    state.clamp_to(earlier);
    assert_eq!(state.request_refresh(earlier + 29 * SECOND), Refresh::Refuse);
    assert!(time_until_due(&state, earlier) <= TIMING.cache);
    let end = earlier + TIMING.cache + TIMING.max_stale;
    assert!(is_usable(&state, end) && !is_usable(&state, end + SECOND), "they still grow old");
    assert_eq!(state.request_refresh(earlier + 30 * SECOND), Refresh::Start(2));
}

#[derive(Clone, Debug)]
enum Step {
    Pass(Duration),
    GoBack(Duration),
    Look,
    Refresh,
    End(Option<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..90_000u64).prop_map(|millis| Step::Pass(Duration::from_millis(millis))),
        1 => (0..2_000u64).prop_map(|seconds| Step::Pass(Duration::from_secs(seconds))),
        1 => (0..10_000u64).prop_map(|seconds| Step::GoBack(Duration::from_secs(seconds))),
        4 => Just(Step::Look),
        4 => Just(Step::Refresh),
        4 => proptest::option::of(0..3u8).prop_map(Step::End),
    ]
}

proptest! {
    #[test]
    fn prop_every_history_keeps_the_bounds(steps in proptest::collection::vec(step(), 1..200)) {
        let keys = [jwk("a"), jwk("b"), jwk("c")];
        let mut state = State::new(TIMING);
        let mut now = START;
        let mut under_way = false;
        let mut started = 0;
        // On a clock that never goes back.
        let mut elapsed = Duration::ZERO;
        let mut granted = None;
        let mut fetched_at = None;
        for step in steps {
            match step {
                Step::Pass(time) => (now, elapsed) = (now + time, elapsed + time),
                Step::GoBack(time) => {
                    now = Timestamp::from_micros(now.as_micros() - time.as_micros() as u64);
                    state.clamp_to(now);
                }
                Step::Look => {
                    state.clamp_to(now);
                    if state.start_if_due(now) {
                        prop_assert!(!under_way, "two at once");
                        (under_way, started) = (true, started + 1);
                        granted = Some(elapsed);
                    }
                }
                Step::Refresh => match state.request_refresh(now) {
                    Refresh::Start(number) => {
                        prop_assert!(!under_way, "two at once");
                        let pause = granted.map(|granted| elapsed - granted);
                        prop_assert!(pause.is_none_or(|pause| pause >= TIMING.cooldown));
                        (under_way, started) = (true, started + 1);
                        prop_assert_eq!(number, started);
                        granted = Some(elapsed);
                    }
                    Refresh::Join(number) => prop_assert!(under_way && number == started),
                    Refresh::Refuse => prop_assert!(!under_way),
                },
                Step::End(result) if under_way => {
                    let before = generation(&state);
                    let result = result.map(|key| &keys[usize::from(key)]);
                    state.finish(now, result.map_or_else(failed, |key| fetched(&[key])), 0);
                    under_way = false;
                    match result {
                        Some(key) => {
                            prop_assert_eq!(kids(&state), [key["kid"].as_str().unwrap()]);
                            fetched_at = Some(elapsed);
                        }
                        None => prop_assert_eq!(generation(&state), before),
                    }
                }
                Step::End(_) => {}
            }
            prop_assert_eq!(state.started, started);
            state.clamp_to(now);
            prop_assert!(under_way || time_until_due(&state, now) <= TIMING.cache, "it waits too long");
            let age = fetched_at.map(|fetched_at| elapsed - fetched_at);
            // Going back may give keys time, and never takes any.
            if age.is_some_and(|age| age <= TIMING.cache + TIMING.max_stale) {
                prop_assert!(is_usable(&state, now), "usable keys are not used");
            }
            if age.is_none() {
                prop_assert!(!is_usable(&state, now));
            }
        }
    }
}
