//! What servers send, read by this codec and by hyper's client: the same outcome, or a difference
//! that is known and wanted.

mod classes;
mod clients;
mod draw;
mod naive;
mod responses;

use std::collections::BTreeMap;

use self::{
    classes::Class,
    clients::{hypers, ours},
    responses::Case,
};

const CASES: u64 = 10_000;

/// The table of differences, which this test keeps true.
const NOTE: &str = include_str!("../../../../../docs/design/upstream-codec.md");

#[test]
fn responses_are_read_as_hyper_reads_them_or_more_strictly() {
    let mut counts: BTreeMap<Class, u32> = BTreeMap::new();
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for seed in 0..CASES {
        let case = Case::new(seed);
        let outcome = ours(&case);
        let whole = ours(&Case { cuts: Vec::new(), ..case.clone() });
        assert_eq!(outcome, whole, "{seed}: cutting {case:?} differently changes what it is");
        *ends.entry(format!("{:?}", outcome.end)).or_default() += 1;
        let other = hypers(&case);
        if outcome == other {
            continue;
        }
        match Class::of(&case, &outcome, &other) {
            Some(class) => *counts.entry(class).or_default() += 1,
            None => unexplained
                .push(format!("{seed}: {case:?}\n ours: {outcome:?}\nhyper: {other:?}\n")),
        }
    }
    assert!(
        unexplained.is_empty(),
        "{} differences are in no class:\n{}",
        unexplained.len(),
        unexplained[..unexplained.len().min(10)].join("\n")
    );
    // Each kind of outcome has to come often, or little was compared.
    assert!(ends.len() == 4 && ends.values().all(|count| *count > CASES / 20), "{ends:?}");
    let rows = Class::ALL.iter().map(|class| {
        let count = counts.get(class).copied().unwrap_or_default();
        assert!(count > 0, "no response shows {class:?}");
        format!("| {} | {count} |\n", class.reason())
    });
    let table: String = rows.collect();
    assert!(NOTE.contains(&table), "docs/design/upstream-codec.md needs these rows:\n{table}");
}
