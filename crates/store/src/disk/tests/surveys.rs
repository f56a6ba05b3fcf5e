//! What is known of the disk once all was looked through.

use std::time::Duration;

use super::*;

/// More counters than are applied before a survey that does not wait for it has begun.
const MANY: u64 = 20_000;

#[test]
fn counters_that_were_written_just_before_a_survey_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::open(folder.path(), START);
    let quota = &quotas()[0];
    (0..MANY).for_each(|owner| drop(subject.charge(&charge(owner, quota))));
    let disk = subject.store.disk();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while disk.report().survey.is_none() {
        // The first flush requests the first survey.
        disk.ask_for_flush();
        assert!(std::time::Instant::now() < end, "nothing was surveyed in time");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    subject.cool_down();
    let lost = (0..MANY).filter(|owner| subject.used(&charge(*owner, quota)) == 0).count();
    assert_eq!(lost, 0, "counters that the disk has count as new");
    subject.close();
}
