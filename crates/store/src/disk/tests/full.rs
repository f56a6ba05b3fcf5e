//! What memory takes while the disk takes nothing.

use std::sync::{Arc, atomic::Ordering};

use super::*;
use crate::disk::Disk;

/// A store whose tables cannot be written any more.
fn full(folder: &Path) -> (Subject, Arc<Disk>) {
    let subject = Subject::open(folder, START);
    subject.save();
    let disk = Arc::clone(subject.store.disk());
    disk.waiting_parts.store(usize::MAX, Ordering::Relaxed);
    *disk.table_failure.lock() = Some("no space left on device".to_owned());
    (subject, disk)
}

#[test]
fn counters_that_grow_while_the_disk_is_full_count_with_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let (subject, disk) = full(folder.path());
    let before = disk.max_in_memory();
    let log = Quota::plain(AlgorithmKind::SlidingLog, 500, HOUR).unwrap();
    for owner in 0..2000 {
        (0..100).for_each(|_| drop(subject.charge(&charge(owner, &log))));
    }
    subject.save();
    assert!(disk.is_failing());
    assert_eq!(disk.report().keys_in_memory, 2000);
    assert!(disk.max_in_memory() < before / 4, "{} of {before}", disk.max_in_memory());
    subject.close();
}

#[test]
fn counters_that_end_while_the_disk_is_full_leave_nothing_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (subject, disk) = full(folder.path());
    let minute = Duration::from_secs(60);
    let quota = Quota::FixedWindow(FixedWindow { limit: 5, align: Align::FirstRequest(minute) });
    for round in 0..20 {
        // Some come again, and others are new.
        for owner in (0..500).chain(round * 1000..round * 1000 + 1000) {
            subject.charge(&charge(owner, &quota));
        }
        subject.save();
        assert!(disk.is_failing());
        subject.advance(2 * minute);
        subject.store.memory().sweep_all(subject.now());
    }
    subject.save();
    assert_eq!(subject.store.in_memory(), 0);
    assert!(subject.store.unsaved() < 10_000, "{}", subject.store.unsaved());
    subject.close();
}
