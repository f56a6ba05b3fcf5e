//! The in-process store, against tables, threads and a model.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use tollgate_limit::{
    Algorithm, AlgorithmKind, Align, AnyState, DecidedBy, FixedWindow, Key, KeyHasher, LimitId,
    Origin, Quota, Retry, StateVariant, WhenFull, with_algorithm,
};

use super::*;

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const FULL: NoRoom = NoRoom::Full;
const MINUTE: Duration = Duration::from_secs(60);
const KINDS: usize = AlgorithmKind::ALL.len();

fn key(owner: u32, limit: &str) -> Key {
    let owner = KeyHasher::new([3; 16]).hash([(b'u', &owner.to_le_bytes()[..])]);
    Key::new(owner, owner, LimitId::new("test", limit, "", 60))
}

fn fixed(limit: u32) -> Quota {
    Quota::FixedWindow(FixedWindow { limit, align: Align::FirstRequest(MINUTE) })
}

/// One quota of each kind, each of two units a minute or so.
fn quotas() -> [Quota; KINDS] {
    AlgorithmKind::ALL.map(|kind| Quota::plain(kind, 2, MINUTE).unwrap())
}

fn charge<'q>(owner: u32, limit: &str, quota: &'q Quota) -> Charge<'q> {
    Charge::new(key(owner, limit), quota, 1)
}

fn allowed(store: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> bool {
    store.charge(charges, now).unwrap().verdict == Verdict::Allow
}

fn used(store: &MemoryStore, charge: &Charge<'_>, now: Timestamp) -> u32 {
    store.peek(std::slice::from_ref(charge), now).outcomes[0].standing.used
}

#[test]
fn units_can_be_given_back_without_the_receipts_of_their_charges() {
    for quota in &quotas() {
        let store = MemoryStore::new(100, [0; 16]);
        let own = charge(1, "core", quota);
        let later = START + Duration::from_millis(700);
        assert!(allowed(&store, &[own], START) && allowed(&store, &[own], later), "{quota:?}");
        let standing = store.peek(&[own], later).outcomes[0].standing;
        let both = Charge { cost: 2, ..own };
        let Some(receipt) = quota.open_receipt(&standing, both.cost, later) else {
            let is_known_apart = matches!(quota, Quota::SlidingLog(_) | Quota::Concurrency(_));
            assert!(is_known_apart, "{quota:?}");
            continue;
        };
        store.settle(&both, Adjustment::GiveBack(receipt), later);
        assert_eq!(used(&store, &own, later), 0, "{quota:?}");
    }
}

#[test]
fn denied_request_takes_nothing_from_any_limit() {
    let one = fixed(1);
    let nine = fixed(9);
    for quota in &quotas() {
        let store = MemoryStore::new(100, [0; 16]);
        let tight = charge(1, "tight", &one);
        let wide = charge(1, "wide", quota);
        let other = charge(2, "ip", &nine);
        assert!(allowed(&store, &[wide, tight, other], START));
        for charges in [[wide, tight, other], [other, wide, tight], [tight, other, wide]] {
            let before = store.peek(&charges, START);
            let decision = store.charge(&charges, START).unwrap();
            assert_eq!(decision.verdict, Verdict::Deny);
            for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
                assert_eq!(outcome.fits(), charge.key != tight.key, "{quota:?}");
            }
            assert_eq!(store.peek(&charges, START), before, "{quota:?}");
        }
        assert_eq!((used(&store, &wide, START), used(&store, &other, START)), (1, 1), "{quota:?}");
    }
}

#[test]
fn denied_request_opens_no_window() {
    let one = fixed(1);
    let five = fixed(5);
    let store = MemoryStore::new(100, [0; 16]);
    assert!(allowed(&store, &[charge(1, "tight", &one)], START));
    assert!(!allowed(&store, &[charge(2, "fresh", &five), charge(1, "tight", &one)], START));
    assert_eq!(store.len(), 1);
}

#[test]
fn free_request_and_a_look_open_no_window() {
    let store = MemoryStore::new(100, [0; 16]);
    for quota in &quotas() {
        let free = Charge { cost: 0, ..charge(1, "core", quota) };
        assert!(allowed(&store, &[free], START));
        store.peek(&[free], START);
        assert!(store.is_empty(), "{quota:?}");
    }
}

#[test]
fn observed_charge_counts_and_never_denies() {
    for quota in &quotas() {
        let store = MemoryStore::new(100, [0; 16]);
        let observed = Charge { stance: Stance::Observe, ..charge(1, "core", quota) };
        let fits: Vec<bool> = (0..4)
            .map(|_| {
                let decision = store.charge(&[observed], START).unwrap();
                assert_eq!(decision.verdict, Verdict::Allow);
                decision.outcomes[0].fits()
            })
            .collect();
        assert_eq!(fits, [true, true, false, false], "{quota:?}");
        assert_eq!(used(&store, &observed, START), 2, "{quota:?}");
    }
}

#[test]
fn observed_charge_of_a_denied_request_is_not_taken() {
    let zero = fixed(0);
    let nine = fixed(9);
    let store = MemoryStore::new(100, [0; 16]);
    let observed = Charge { stance: Stance::Observe, ..charge(1, "observed", &nine) };
    assert!(!allowed(&store, &[observed, charge(1, "core", &zero)], START));
    assert_eq!(used(&store, &observed, START), 0);
}

#[test]
fn what_is_given_back_can_be_taken_again_once() {
    for quota in &quotas() {
        let store = MemoryStore::new(100, [0; 16]);
        let charges = [charge(1, "core", quota)];
        let first = store.charge(&charges, START).unwrap().outcomes[0].receipt.unwrap();
        assert!(allowed(&store, &charges, START));
        assert!(!allowed(&store, &charges, START));
        store.settle(&charges[0], Adjustment::GiveBack(first), START).unwrap();
        assert!(allowed(&store, &charges, START), "{quota:?}");
        assert!(!allowed(&store, &charges, START), "{quota:?}");
    }
}

#[test]
fn full_store_refuses_new_callers_and_serves_known_ones() {
    let five = fixed(5);
    let store = MemoryStore::new(2, [0; 16]);
    assert!(allowed(&store, &[charge(1, "core", &five)], START));
    assert!(allowed(&store, &[charge(2, "core", &five)], START));
    assert_eq!(store.charge(&[charge(3, "core", &five)], START).unwrap_err(), FULL);
    assert!(allowed(&store, &[charge(1, "core", &five)], START));
    assert_eq!(store.len(), 2);
}

#[test]
fn full_store_leaves_out_what_may_be_left_out() {
    let five = fixed(5);
    let store = MemoryStore::new(8, [0; 16]);
    let open = |owner: u32| Charge { full: WhenFull::Open, ..charge(owner, "core", &five) };
    let by_address = |owner: u32| Charge { origin: Origin::Address, ..open(owner) };
    for owner in 0..7 {
        assert!(allowed(&store, &[by_address(owner)], START));
    }
    // One place is left, and it is for verified callers.
    let observed = Charge { stance: Stance::Observe, ..open(10) };
    let decided = store.charge(&[by_address(7), observed, open(8)], START).unwrap();
    let deciders: Vec<DecidedBy> = decided.outcomes.iter().map(|own| own.decided_by).collect();
    assert_eq!(deciders, [DecidedBy::NoStore, DecidedBy::Current, DecidedBy::Current]);
    let taken: Vec<bool> = decided.outcomes.iter().map(|own| own.receipt.is_some()).collect();
    assert_eq!(taken, [false, false, true], "what is enforced comes first");

    // Known counters decide, and what must have room keeps the others from being taken.
    assert!(allowed(&store, &[open(9), by_address(0)], START));
    assert_eq!(store.peek(&[by_address(0)], START).outcomes[0].standing.used, 2);
    let must = [by_address(0), charge(9, "core", &five)];
    assert_eq!(store.charge(&must, START).unwrap_err(), FULL);
    assert_eq!(store.peek(&[by_address(0)], START).outcomes[0].standing.used, 2);
    let over = Charge { cost: 6, ..open(8) };
    assert_eq!(store.charge(&[over, open(9)], START).unwrap().verdict, Verdict::Deny);
    assert_eq!(store.len(), 8);
}

#[test]
fn no_client_gets_past_a_limit_by_what_it_chooses() {
    let five = fixed(5);
    let bounds = MemoryBounds { max_keys: 100, unverified_percent: 50, per_address: 2 };
    let store = MemoryStore::new(bounds, [0; 16]);
    let chosen = |owner: u32, by: u128| Charge {
        origin: Origin::Chosen { by },
        full: WhenFull::Open,
        ..charge(owner, "core", &five)
    };
    for owner in 0..2 {
        assert!(allowed(&store, &[chosen(owner, 7)], START));
    }
    assert_eq!(store.charge(&[chosen(2, 7)], START), Err(NoRoom::Client));
    for owner in 2..50 {
        assert!(allowed(&store, &[chosen(owner, 1_000 + u128::from(owner))], START));
    }
    assert_eq!(store.charge(&[chosen(99, 99)], START), Err(NoRoom::Unverified));
}

#[test]
fn counters_that_are_over_make_room() {
    let store = MemoryStore::new(KINDS * SHARDS, [0; 16]);
    let quotas = quotas();
    for owner in 0..SHARDS as u32 {
        for quota in &quotas {
            assert!(allowed(&store, &[charge(owner, quota.kind().name(), quota)], START));
        }
    }
    let late = START + 2 * MINUTE;
    for _ in 0..SHARDS {
        store.sweep(late);
    }
    assert!(store.is_empty());
    assert!(allowed(&store, &[charge(9_999, "core", &quotas[0])], late));
}

#[test]
fn one_request_finds_room_wherever_counters_are_over() {
    let five = fixed(5);
    let keys = 2000;
    let store = MemoryStore::new(keys, [0; 16]);
    for owner in 0..keys as u32 {
        assert!(allowed(&store, &[charge(owner, "core", &five)], START));
    }
    assert_eq!(store.charge(&[charge(9_999, "core", &five)], START).unwrap_err(), FULL);
    assert!(allowed(&store, &[charge(9_999, "core", &five)], START + MINUTE));
}

#[test]
fn owner_with_counters_without_number_leaves_room_for_others() {
    let five = fixed(5);
    let store = MemoryStore::new(100_000, [0; 16]);
    let owner = charge(1, "", &five).key.owner;
    let made = (0..50_000_u128).filter(|entry| {
        let key =
            Key { owner, entry: entry.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) };
        store.charge(&[Charge { key, ..charge(1, "", &five) }], START).is_ok()
    });
    assert_eq!(made.count(), MIN_KEYS_A_SHARD);
    let open = Charge { full: WhenFull::Open, ..charge(1, "core", &five) };
    assert_eq!(store.charge(&[open], START), Err(NoRoom::Part), "the owner's own doing");
    assert!(allowed(&store, &[charge(2, "core", &five)], START));
}

#[test]
fn made_up_counters_crowd_a_shard_and_leave_room_in_it_for_verified_ones() {
    let five = fixed(5);
    let store = MemoryStore::new(100_000, [0; 16]);
    let verified = charge(1, "core", &five);
    let made = (0..50_000_u128).filter(|entry| {
        let entry = entry.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let origin = Origin::Chosen { by: entry };
        let key = Key { entry, ..verified.key };
        store.charge(&[Charge { key, origin, ..verified }], START).is_ok()
    });
    assert_eq!((made.count(), store.unverified()), (MIN_KEYS_A_SHARD, MIN_KEYS_A_SHARD));
    assert!(allowed(&store, &[verified], START));
    for _ in 0..SHARDS {
        store.sweep(START + MINUTE);
    }
    assert_eq!((store.len(), store.unverified()), (0, 0));
}

#[test]
fn counter_is_the_same_whichever_client_chose_the_key() {
    for quota in &quotas() {
        let store = MemoryStore::new(100, [0; 16]);
        let by = |by: u128| Charge { origin: Origin::Chosen { by }, ..charge(1, "core", quota) };
        assert!(allowed(&store, &[by(1)], START) && allowed(&store, &[by(2)], START));
        assert!(!allowed(&store, &[by(3)], START), "{quota:?}");
        assert_eq!((store.len(), store.unverified()), (1, 1), "{quota:?}");
    }
}

#[test]
fn lack_of_room_sweeps_the_callers_own_shard_at_once() {
    let five = fixed(5);
    let store = MemoryStore::new(1, [0; 16]);
    assert!(allowed(&store, &[charge(1, "a", &five)], START));
    // Another limit of the same owner lives in the same shard.
    assert!(allowed(&store, &[charge(1, "b", &five)], START + MINUTE));
    assert_eq!(store.len(), 1);
}

#[test]
fn parallel_charges_admit_exactly_the_limit() {
    const LIMIT: u32 = 1000;
    let limited = fixed(LIMIT);
    let wide = fixed(9_999);
    for threads in [1, 2, 8] {
        let store = MemoryStore::new(100, [0; 16]);
        let admitted: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|worker| {
                    let store = &store;
                    let limited = &limited;
                    let wide = &wide;
                    scope.spawn(move || {
                        // Opposite orders over two owners: neither deadlock nor lost charge.
                        let mut charges = [charge(1, "user", limited), charge(2, "ip", wide)];
                        if worker % 2 == 1 {
                            charges.reverse();
                        }
                        (0..LIMIT).filter(|_| allowed(store, &charges, START)).count()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(admitted, LIMIT as usize, "{threads} threads");
        assert_eq!(used(&store, &charge(2, "ip", &wide), START), LIMIT, "{threads} threads");
    }
}

/// States of any kind, charged only by the pure functions.
#[derive(Default)]
struct States(HashMap<Key, AnyState>);

impl States {
    fn admits(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        with_algorithm!(charge.quota, own => own.admits(&self.state(charge), charge.cost, now))
    }

    fn take(&mut self, charge: &Charge<'_>, now: Timestamp) {
        with_algorithm!(charge.quota, own => {
            let mut state = self.state(charge);
            own.take(&mut state, charge.cost, now);
            self.0.insert(charge.key, state.to_any());
        });
    }

    fn standing(&self, charge: &Charge<'_>, now: Timestamp) -> Standing {
        with_algorithm!(charge.quota, own => own.standing(&self.state(charge), now))
    }

    fn state<S: StateVariant>(&self, charge: &Charge<'_>) -> S {
        self.0.get(&charge.key).and_then(S::from_any).cloned().unwrap_or_default()
    }
}

proptest! {
    #[test]
    fn prop_store_equals_maps_of_pure_states(
        steps in prop::collection::vec(
            (0_u64..30_000_000, prop::collection::btree_set((0_u32..4, 0..KINDS), 1..4), 1_u32..3),
            1..80,
        ),
    ) {
        let (store, quotas) = (MemoryStore::new(1000, [0; 16]), quotas());
        let mut model = States::default();
        let mut now = START;
        for (advance, names, cost) in steps {
            now = now + Duration::from_micros(advance);
            let charges: Vec<Charge<'_>> = names
                .iter()
                .map(|(owner, kind)| {
                    let quota = &quotas[*kind];
                    let cost = if quota.holds_leases() { 1 } else { cost };
                    Charge { cost, ..charge(*owner, quota.kind().name(), quota) }
                })
                .collect();
            let fits = charges.iter().all(|charge| model.admits(charge, now));
            if fits {
                charges.iter().for_each(|charge| model.take(charge, now));
            }
            let decision = store.charge(&charges, now).unwrap();
            prop_assert_eq!(decision.verdict == Verdict::Allow, fits);
            for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
                let standing = Standing { retry: Retry::Now, ..outcome.standing };
                prop_assert_eq!(model.standing(charge, now), standing);
            }
            store.sweep(now);
        }
    }
}

#[test]
fn store_that_is_emptied_into_another_leaves_it_all_that_it_had() {
    for quota in &quotas() {
        let store = MemoryStore::new(100, [0; 16]);
        let other = store.beside();
        let charges: Vec<Charge<'_>> = (0..20).map(|owner| charge(owner, "core", quota)).collect();
        for charge in &charges {
            assert!(allowed(&store, &[*charge], START));
        }
        store.empty_into(&other);
        assert_eq!((store.own(), other.own(), store.len()), (0, 20, 20));

        // Now it has some of them anew.
        for charge in &charges[..2] {
            assert!(allowed(&store, &[*charge], START));
        }
        assert!(allowed(&store, &charges[..1], START));
        assert_eq!(store.len(), 22);
        store.empty_into(&other);
        assert_eq!((store.own(), other.own(), store.len()), (0, 20, 20));
        let found = charges.iter().map(|charge| used(&other, charge, START));
        assert!(found.eq([2].into_iter().chain([1; 19])), "{quota:?}");

        other.remove(&charges[0]);
        assert_eq!((other.own(), used(&other, &charges[0], START)), (19, 0));
        for _ in 0..SHARDS / SHARDS_A_SWEEP {
            other.sweep(START + MINUTE * 3);
        }
        assert!(other.is_empty() && !other.is_in_use());
    }
}
