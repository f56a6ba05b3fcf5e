//! The table against a map, with random keys and with keys that lie close together.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate_limit::Window;

use super::*;

impl<S: State> Table<S> {
    /// Removes the states that are over, and returns how many there were.
    fn count_over(&mut self, now: Timestamp) -> usize {
        let mut count = 0;
        self.sweep(now, |_| count += 1);
        count
    }

    /// Panics unless the order that the module documentation describes holds.
    fn assert_sound(&self) {
        let mut before = None;
        let mut free_since = 0;
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.is_free() {
                free_since = at + 1;
                continue;
            }
            let home = slot.place.home(self.homes);
            assert!(before < Some(slot.place), "slot {at} is out of order");
            assert!(free_since <= home && home <= at, "slot {at} is not reached from {home}");
            before = Some(slot.place);
        }
        assert_eq!(self.iter().count(), self.len);
        if self.slots.len() > 0 {
            assert!(self.slots.len() >= self.homes + OVERFLOW);
            assert!(self.slots.get(self.slots.len() - 1).unwrap().is_free());
            assert!(fits(self.len, self.homes));
        }
    }

    /// How far entries are from their homes, on average.
    fn mean_distance(&self) -> f64 {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_free());
        let distances = slots.map(|(at, slot)| at - slot.place.home(self.homes));
        distances.sum::<usize>() as f64 / self.len as f64
    }
}

/// A key as random as any, another one for each `number` (the finaliser of splitmix64, twice).
fn key(number: u64) -> u128 {
    let mix = |number: u64| {
        let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    };
    u128::from(mix(2 * number + 1)) << 64 | u128::from(mix(2 * number + 2))
}

fn ends_at(secs: u64) -> Window {
    Window { used: 1, reset: Timestamp::from_secs(secs) }
}

/// A table with the first so many keys, the windows of which end after as many seconds as their
/// number says.
fn filled(stagger: f64, count: u64) -> Table<Window> {
    let mut table = Table::new(stagger);
    for number in 0..count {
        *table.entry(key(number)).unwrap().0.state = ends_at(number + 1);
    }
    table
}

#[test]
fn empty_table_allocates_nothing() {
    let mut table = Table::<Window>::new(0.5);
    assert_eq!(table.find(key(1)), None);
    assert!(table.find_mut(key(1)).is_none());
    assert_eq!((table.count_over(Timestamp::from_secs(1)), table.iter().count()), (0, 0));
    assert_eq!(table.capacity(), 0);
    table.assert_sound();
}

#[test]
fn new_key_has_a_default_state_and_is_new_once() {
    let mut table = Table::<Window>::new(0.0);
    let (entry, is_new) = table.entry(key(1)).unwrap();
    assert_eq!((*entry.state, is_new), (Window::default(), true));
    *entry.state = ends_at(9);
    let (entry, is_new) = table.entry(key(1)).unwrap();
    assert_eq!((*entry.state, is_new), (ends_at(9), false));
    assert_eq!((table.find(key(1)), table.len()), (Some(&ends_at(9)), 1));
}

#[test]
fn first_and_last_keys_are_keys_like_others() {
    let mut table = Table::<Window>::new(0.0);
    for key in [0, 1, u128::MAX - 2, u128::MAX] {
        assert!(table.entry(key).unwrap().1);
        assert!(table.find(key).is_some());
        table.assert_sound();
    }
    assert_eq!(table.len(), 4);
}

#[test]
fn table_that_has_grown_is_two_thirds_full() {
    for stagger in [0.0, 0.3, 0.9] {
        let mut table = Table::<Window>::new(stagger);
        for number in 0..30_000 {
            table.entry(key(number));
            assert!(number < 50 || table.len() * 3 >= table.homes * 2, "{number} at {stagger}");
            assert!(table.capacity() < table.homes + OVERFLOW + 2 * SEGMENT);
        }
        assert!(table.mean_distance() < 4.0);
        table.assert_sound();
    }
}

#[test]
fn first_entries_lie_close_together() {
    for stagger in [0.0, 0.5, 0.9] {
        let table = filled(stagger, 10);
        let used = table.slots.iter().enumerate().filter(|(_, slot)| !slot.is_free());
        let last = used.map(|(at, _)| at).max();
        assert!(last.is_some_and(|last| last < 24), "{last:?} at {stagger}");
    }
}

#[test]
fn staggered_tables_do_not_grow_all_at_once() {
    let mut tables: Vec<_> = (0..16).map(|index| filled(f64::from(index) / 16.0, 2_000)).collect();
    for number in 2_000..4_000 {
        let grown = tables.iter_mut().filter_map(|table| {
            let homes = table.homes;
            table.entry(key(number));
            (table.homes > homes).then_some(())
        });
        assert!(grown.count() <= 1, "at {number}");
    }
}

#[test]
fn high_bits_that_a_shard_has_in_common_do_not_crowd_its_table() {
    let mut table = Table::<Window>::new(0.0);
    for number in 0..5_000 {
        table.entry(key(number) >> 20 | 0xabcde << 108);
    }
    assert!(table.mean_distance() < 4.0);
}

#[test]
fn overflow_that_is_full_is_extended() {
    let mut table = Table::<Window>::new(0.0);
    let last = |number: u64| u128::from(number) << 64 | u128::from(u64::MAX - number % 3);
    for number in 0..600 {
        table.entry(last(number)).unwrap().0.state.used = number as u32;
        table.assert_sound();
    }
    for number in 0..600 {
        assert_eq!(table.find(last(number)).map(|window| window.used), Some(number as u32));
    }
}

#[test]
fn sweep_drops_what_is_over_and_nothing_else() {
    let mut table = filled(0.4, 5_000);
    assert_eq!(table.count_over(Timestamp::from_secs(1_000)), 1_000);
    table.assert_sound();
    assert!((0..5_000).all(|number| table.find(key(number)).is_some() == (number >= 1_000)));
}

#[test]
fn sweep_gives_back_what_is_no_longer_needed() {
    let mut table = filled(0.4, 20_000);
    let full = table.capacity();
    assert_eq!(table.count_over(Timestamp::from_secs(200)), 200);
    assert_eq!(table.capacity(), full, "a few are no reason");
    table.count_over(Timestamp::from_secs(18_000));
    table.assert_sound();
    assert!(table.capacity() < full / 6);
    table.count_over(Timestamp::from_secs(20_000));
    assert_eq!((table.capacity(), table.len()), (0, 0));
    table.entry(key(1));
    assert!(table.capacity() <= SEGMENT);
}

#[test]
fn table_that_was_shrunk_has_room_before_it_grows_again() {
    let mut table = filled(0.4, 20_000);
    table.count_over(Timestamp::from_secs(15_000));
    let homes = table.homes;
    for number in 0..500 {
        table.entry(key(number));
    }
    assert_eq!(table.homes, homes);
}

#[test]
fn table_is_refilled_in_order_without_crowding() {
    let table = filled(0.1, 20_000);
    let mut again = Table::<Window>::new(0.7);
    again.reserve(table.len());
    let homes = again.homes;
    for (key, window) in table.iter() {
        *again.entry(key).unwrap().0.state = *window;
    }
    assert_eq!(again.homes, homes);
    assert!(again.iter().eq(table.iter()));
    again.assert_sound();
}

#[test]
fn key_is_found_whatever_its_tag_and_goes_with_the_one_that_it_was_made_with() {
    let tagged = |key: u128, tag: u16| key << TAG_BITS >> TAG_BITS | u128::from(tag) << 112;
    let mut table = Table::<Window>::new(0.0);
    for number in 0..1_000 {
        *table.entry(tagged(key(number), number as u16)).unwrap().0.state = ends_at(number + 1);
        assert!(!table.entry(tagged(key(number), 7)).unwrap().1, "{number}");
        assert_eq!(table.find(tagged(key(number), 9)), Some(&ends_at(number + 1)));
    }
    let mut tags = Vec::new();
    table.sweep(Timestamp::from_secs(500), |tag| tags.push(tag));
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..500));
    table.assert_sound();
}

#[test]
fn marks_are_of_one_entry_and_move_with_it() {
    let mut table = Table::<Window>::new(0.0);
    for number in 0..1_000 {
        let mut entry = table.entry(key(number)).unwrap().0;
        *entry.state = ends_at(number + 1);
        assert!(!entry.has(Mark::Used) && !entry.has(Mark::Changed) && !entry.has(Mark::Saved));
        if number % 3 == 0 {
            assert!(entry.mark(Mark::Changed) && !entry.mark(Mark::Changed));
        }
        if number % 5 == 0 {
            entry.mark(Mark::Saved);
        }
    }
    table.sweep(Timestamp::from_secs(500), |_| {});
    for number in 0..1_000 {
        let Some(mut entry) = table.find_mut(key(number)) else {
            let was_saved = number % 5 == 0;
            let is_needed = number % 3 == 0 && was_saved;
            assert!(number < 500 && !is_needed, "{number}: the disk may have an earlier state");
            continue;
        };
        assert_eq!(entry.has(Mark::Changed), number % 3 == 0, "{number}");
        assert_eq!(entry.has(Mark::Saved), number % 5 == 0, "{number}");
        assert_eq!(entry.unmark(Mark::Changed), number % 3 == 0, "{number}");
        assert_eq!(entry.key(), key(number) << ALIKE_BITS >> ALIKE_BITS, "{number}");
    }
    table.retain(|entry| !entry.has(Mark::Saved), |_| {});
    assert!((0..1_000).step_by(5).all(|number| table.find(key(number)).is_none()));
    table.assert_sound();
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u128, u64),
    Find(u128),
    Remove(u128),
    Sweep(u64),
    Reserve(usize),
}

/// Few enough keys that they come again: at random, at both ends, and many of one home.
fn keys() -> impl Strategy<Value = u128> {
    prop_oneof![
        4 => (0..2_000_u64).prop_map(key),
        1 => (0..300_u128).prop_map(|high| high << 64 | 0x8000_0000_0000_0000),
        1 => (0..300_u128).prop_map(|high| high << 64 | u128::from(u64::MAX)),
        1 => (0..40_u128).prop_map(|low| low),
        1 => Just(u128::MAX - 1),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => (keys(), 1..500_u64).prop_map(|(key, secs)| Step::Enter(key, secs)),
        15 => keys().prop_map(Step::Find),
        15 => keys().prop_map(Step::Remove),
        1 => (1..100_u64).prop_map(Step::Sweep),
        1 => (0..600_usize).prop_map(Step::Reserve),
    ];
    prop::collection::vec(step, 1..1_500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn prop_table_agrees_with_a_map(stagger in 0.0..1.0, steps in steps()) {
        let mut table = Table::<Window>::new(stagger);
        let mut map = BTreeMap::<SortKey, Window>::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Enter(key, secs) => {
                    let old = map.insert(SortKey::of(key), ends_at(now + secs));
                    let (entry, is_new) = table.entry(key).unwrap();
                    let expected = (old.unwrap_or_default(), old.is_none());
                    prop_assert_eq!((*entry.state, is_new), expected);
                    *entry.state = ends_at(now + secs);
                }
                Step::Find(key) => {
                    let known = map.get(&SortKey::of(key)).copied();
                    prop_assert_eq!(table.find(key).copied(), known);
                    prop_assert_eq!(table.find_mut(key).map(|entry| *entry.state), known);
                }
                Step::Remove(key) => {
                    let known = map.remove(&SortKey::of(key)).is_some();
                    prop_assert_eq!(table.remove(key).is_some(), known);
                }
                Step::Sweep(secs) => {
                    now += secs;
                    let before = map.len();
                    map.retain(|_, window| !window.is_over(Timestamp::from_secs(now)));
                    let dropped = table.count_over(Timestamp::from_secs(now));
                    prop_assert_eq!(dropped, before - map.len());
                }
                Step::Reserve(additional) => table.reserve(additional),
            }
            table.assert_sound();
            prop_assert_eq!(table.len(), map.len());
        }
        prop_assert!(table.iter().eq(map.iter().map(|(place, window)| (place.key(), window))));
    }
}
