//! The in-process store, against tables, threads and a model.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::limit::{Key, KeyHasher, LimitId, Quota, Retry};

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const MINUTE: Duration = Duration::from_secs(60);

fn key(owner: u32, limit: &str) -> Key {
    let owner = KeyHasher::new([3; 16]).hash([(b'u', &owner.to_le_bytes()[..])]);
    Key::new(owner, owner, LimitId::new("test", limit, "fixed_window", 60))
}

fn charge(owner: u32, limit: &str, quota: u32) -> Charge {
    Charge { key: key(owner, limit), quota: Quota { limit: quota, window: MINUTE }, cost: 1 }
}

fn allowed(store: &MemoryStore, charges: &[Charge], now: Timestamp) -> bool {
    store.charge(charges, now).unwrap().verdict == Verdict::Allow
}

#[test]
fn denied_request_takes_nothing_from_any_limit() {
    let store = MemoryStore::new(100);
    let (tight, wide, other) = (charge(1, "tight", 1), charge(1, "wide", 9), charge(2, "ip", 9));
    assert!(allowed(&store, &[wide, tight, other], START));
    for charges in [[wide, tight, other], [other, wide, tight], [tight, other, wide]] {
        let decision = store.charge(&charges, START).unwrap();
        let tight_at = charges.iter().position(|charge| charge.key == tight.key).unwrap();
        assert_eq!(decision.verdict, Verdict::Deny(tight_at));
    }
    let decision = store.charge(&[wide, other], START).unwrap();
    assert_eq!(decision.standings[0].used, 2);
    assert_eq!(decision.standings[1].used, 2);
}

#[test]
fn denied_request_opens_no_window() {
    let store = MemoryStore::new(100);
    assert!(allowed(&store, &[charge(1, "tight", 1)], START));
    assert!(!allowed(&store, &[charge(2, "fresh", 5), charge(1, "tight", 1)], START));
    assert_eq!(store.len(), 1);
}

#[test]
fn decision_retries_when_the_last_denying_limit_reopens() {
    let store = MemoryStore::new(100);
    let late = START + Duration::from_secs(30);
    assert!(allowed(&store, &[charge(1, "a", 1)], START));
    assert!(allowed(&store, &[charge(1, "b", 1)], late));
    let decision = store.charge(&[charge(1, "a", 1), charge(1, "b", 1)], late).unwrap();
    assert_eq!(decision.retry(), Retry::At(late + MINUTE));
}

#[test]
fn full_store_refuses_new_callers_and_serves_known_ones() {
    let store = MemoryStore::new(2);
    assert!(allowed(&store, &[charge(1, "core", 5)], START));
    assert!(allowed(&store, &[charge(2, "core", 5)], START));
    assert_eq!(store.charge(&[charge(3, "core", 5)], START).unwrap_err(), StoreError::Full);
    assert!(allowed(&store, &[charge(1, "core", 5)], START));
    assert_eq!((store.len(), store.take_refused()), (2, 1));
}

#[test]
fn ended_windows_make_room() {
    let store = MemoryStore::new(SHARDS);
    for owner in 0..SHARDS as u32 {
        assert!(allowed(&store, &[charge(owner, "core", 5)], START));
    }
    for _ in 0..SHARDS {
        store.sweep(START + MINUTE);
    }
    assert!(store.is_empty());
    assert!(allowed(&store, &[charge(9_999, "core", 5)], START + MINUTE));
}

#[test]
fn lack_of_room_sweeps_the_callers_own_shard_at_once() {
    let store = MemoryStore::new(1);
    assert!(allowed(&store, &[charge(1, "a", 5)], START));
    // Another limit of the same owner lives in the same shard.
    assert!(allowed(&store, &[charge(1, "b", 5)], START + MINUTE));
    assert_eq!(store.len(), 1);
}

#[test]
fn parallel_charges_admit_exactly_the_limit() {
    const LIMIT: u32 = 1000;
    for threads in [1, 2, 8] {
        let store = MemoryStore::new(100);
        let admitted: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|worker| {
                    let store = &store;
                    scope.spawn(move || {
                        // Opposite orders over two owners: neither deadlock nor lost charge.
                        let mut charges = [charge(1, "user", LIMIT), charge(2, "ip", 9_999)];
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
        let other = store.charge(&[charge(2, "ip", 9_999)], START).unwrap();
        assert_eq!(other.standings[0].used, LIMIT + 1, "{threads} threads");
    }
}

#[test]
fn shards_span_one_doubling() {
    let slots = staggered_shards();
    let share = |shard: u8| slots.iter().filter(|slot| **slot == shard).count() as f64;
    let (first, last): (f64, f64) = ((0..16).map(share).sum(), (240..=255).map(share).sum());
    assert!((1.8..2.1).contains(&(last / first)), "{first} {last}");
}

proptest! {
    #[test]
    fn prop_store_equals_a_map_of_pure_windows(
        steps in prop::collection::vec(
            (0_u64..30_000_000, prop::collection::btree_set((0_u32..4, 0_u32..2), 1..4), 1_u32..3),
            1..80,
        ),
    ) {
        let store = MemoryStore::new(1000);
        let mut model: HashMap<(u32, u32), FixedWindow> = HashMap::new();
        let mut now = START;
        for (advance, names, cost) in steps {
            now = now + Duration::from_micros(advance);
            let charges: Vec<Charge> = names
                .iter()
                .map(|(owner, limit)| Charge {
                    cost,
                    ..charge(*owner, ["core", "search"][*limit as usize], 3 + limit * 2)
                })
                .collect();
            let opened: Vec<FixedWindow> = names
                .iter()
                .zip(&charges)
                .map(|(name, charge)| FixedWindow::open(model.get(name).copied(), charge.quota, now))
                .collect();
            let fits = opened.iter().zip(&charges).all(|(window, charge)| window.admits(charge.quota, cost));
            if fits {
                model.extend(names.iter().copied().zip(opened.iter().map(|window| window.charge(cost))));
            }
            let decision = store.charge(&charges, now).unwrap();
            prop_assert_eq!(decision.verdict == Verdict::Allow, fits);
            for ((window, charge), standing) in opened.iter().zip(&charges).zip(&decision.standings) {
                let window = if fits { window.charge(cost) } else { *window };
                prop_assert_eq!(
                    window.standing(charge.quota, now),
                    crate::limit::Standing { retry: Retry::Now, ..*standing }
                );
            }
            store.sweep(now);
        }
    }
}
