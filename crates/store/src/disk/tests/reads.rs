//! Counters are read while tables are made of them and merged.

use std::thread;

use tollgate_limit::{Algorithm, State, Window};

use super::{
    super::{
        batch::{Batch, BatchEntry},
        record::key_bytes,
        tree::Tree,
    },
    *,
};

const KEY: u128 = 7;

/// How often the tables change.
const ROUNDS: usize = 300;

#[test]
fn counters_are_found_while_tables_are_made_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let tree = &Tree::create(folder.path(), Clock::System).unwrap();
    let mut window = Window::default();
    let quota = FixedWindow { limit: 5, align: Align::FirstRequest(HOUR) };
    quota.take(&mut window, 1, Clock::System.now());
    let mut batch = Batch::default();
    let entry = BatchEntry { part: 0, kind: AlgorithmKind::FixedWindow, key: KEY };
    batch.put(KEY, (entry, 0), true, |bytes| window.encode(bytes));
    tree.apply(&batch.bytes).unwrap();

    let change_tables = || {
        for _ in 0..ROUNDS {
            tree.apply(&batch.bytes).unwrap();
            tree.rotate().unwrap();
            tree.write_tables().unwrap();
            tree.merge_all().unwrap();
        }
    };
    thread::scope(|scope| {
        let changing = scope.spawn(change_tables);
        let listing = scope.spawn(move || {
            while !changing.is_finished() {
                let mut found = 0;
                tree.for_each(|_, _| found += 1).unwrap();
                assert_eq!(found, 1);
            }
        });
        while !listing.is_finished() {
            assert!(tree.get(&key_bytes(KEY)).unwrap().is_some());
        }
    });
}
