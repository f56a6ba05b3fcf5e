//! What goes on while the disk syncs slowly, and what is said when a sync has failed.

use std::{
    fs::{self, File},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use super::*;
use crate::disk::{
    Batch, Disk,
    journal_writer::{JournalWriter, NotWritten},
    syncing::{self, Flushed, SyncJob, WrittenJournal},
    tree::MEMTABLE_BYTES,
};

/// How long a test waits for what another thread does.
const PATIENCE: Duration = Duration::from_secs(20);

fn syncing_subject(folder: &Path) -> Subject {
    let settings = DiskSettings { sync: SyncMode::Flush, ..settings(folder) };
    Subject::with_settings(&settings, START).unwrap()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A sync of the journal with this number that fails: the system refuses it for such a file.
fn fail_sync(disk: &Disk, id: u64) {
    let (jobs, waiting) = mpsc::channel();
    let (orders, _ordered) = mpsc::channel();
    let file = Arc::new(File::open("/dev/null").unwrap());
    let journal = WrittenJournal { file, path: "/dev/null".into(), id, complete: 1 };
    let flushed =
        Flushed { number: 1, begun: Instant::now(), journal: Some(journal), done: Vec::new() };
    jobs.send(SyncJob::Sync(flushed)).unwrap();
    drop(jobs);
    syncing::run(disk, &waiting, &orders);
}

#[test]
fn journal_that_becomes_too_long_is_synced_by_the_thread_that_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    let disk = subject.store.disk();
    let opened = disk.opened.load_full().unwrap();
    // The store's own threads make no more than that.
    eventually("a journal was made ahead", || journals(folder.path()).unwrap().len() == 2);
    let (jobs, asked) = mpsc::channel();
    let first = opened.journals.begin().unwrap();
    let id = first.id;
    let mut writer = JournalWriter::new(Arc::clone(disk), jobs, Some(first));
    assert!(writer.append(&opened, b"frame").is_ok());
    disk.waiting_bytes.store(3 * MEMTABLE_BYTES, std::sync::atomic::Ordering::Relaxed);
    let begun = |writer: &mut JournalWriter| writer.begin_next_if_due(&opened).ok().flatten();

    assert_eq!(begun(&mut writer), None, "no other journal was made yet");
    assert_eq!(journals(folder.path()).unwrap().last(), Some(&id), "it makes none itself");
    let is_whole = |sync: &Flushed| {
        let journal = sync.journal.as_ref().map(|journal| (journal.id, journal.complete));
        journal.is_some_and(|(own, complete)| own == id && complete > 20)
    };
    let mut jobs = asked.try_iter();
    assert!(matches!(jobs.next(), Some(SyncJob::Sync(sync)) if is_whole(&sync)), "first its sync");
    assert!(matches!(jobs.next(), Some(SyncJob::Journal(0))), "then the next one");
    assert!(writer.append(&opened, b"frame").is_ok(), "meanwhile it is written");

    let next = opened.journals.begin().unwrap();
    let next_id = next.id;
    writer.take_made(0, Ok(Some(next)));
    assert_eq!(begun(&mut writer), Some(next_id));

    // Until one is made, the present one goes on, and then it is said why nothing is written.
    writer.take_made(0, Err("no inode".to_owned()));
    assert!(writer.append(&opened, b"frame").is_ok());
    disk.waiting_bytes.store(4 * MEMTABLE_BYTES, std::sync::atomic::Ordering::Relaxed);
    let error = writer.append(&opened, b"frame");
    assert!(matches!(error, Err(NotWritten::Failed(_, error)) if error == "no inode"));

    // What was found in a folder becomes tables as soon as a journal can be begun.
    let (jobs, _asked) = mpsc::channel();
    let mut writer = JournalWriter::new(Arc::clone(disk), jobs, None);
    let late = writer.begin_next_if_due(&opened);
    assert!(matches!(late, Ok(Some(late)) if late > next_id));
    drop(opened);
    subject.close();
}

#[test]
fn sync_that_failed_is_reported_until_what_it_had_is_in_tables() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    let quota = &quotas()[0];
    let disk = Arc::clone(subject.store.disk());
    subject.charge(&charge(1, quota));
    subject.save();
    let durable = *disk.written.borrow();
    fail_sync(&disk, last_written(folder.path(), &journals(folder.path()).unwrap()).unwrap());
    assert!(disk.is_failing());

    // No table can be made.
    let [tables, aside] = ["tables/tables", "aside"].map(|name| folder.path().join(name));
    fs::rename(&tables, &aside).unwrap();
    for owner in 2..5 {
        subject.charge(&charge(owner, quota));
        subject.save();
        assert!(disk.is_failing(), "it is in memory only");
        assert_eq!(*disk.written.borrow(), durable, "nobody is told that it is on disk");
    }
    fs::rename(&aside, &tables).unwrap();
    eventually("it is in tables", || {
        subject.save();
        !disk.is_failing() && *disk.written.borrow() > durable
    });
    subject.close();
}

#[test]
fn power_that_fails_before_the_last_two_journals_are_synced_keeps_nobody_from_starting() {
    let batch = |key: u128| {
        let mut batch = Batch::default();
        batch.remove(key);
        batch.bytes
    };
    for next_is_made in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        syncing_subject(folder.path()).close();
        let live = LiveJournals::read(folder.path()).unwrap();
        let [mut before, mut present] = [(); 2].map(|()| live.begin().unwrap());
        for key in 1..=3 {
            before.append(&batch(key)).unwrap();
        }
        present.append(&batch(4)).unwrap();
        if next_is_made {
            live.begin().unwrap();
        }
        // Its last frame was written in part.
        let file = path_of(folder.path(), before.id);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 5]).unwrap();
        drop((before, present, live));
        let opened = Subject::with_settings(
            &DiskSettings { sync: SyncMode::Flush, ..settings(folder.path()) },
            START,
        );
        match (next_is_made, opened) {
            (false, Ok(subject)) => subject.close(),
            // It was synced before the next one was made.
            (true, Err(error)) => assert!(error.to_string().contains("damaged"), "{error}"),
            (_, opened) => panic!("{next_is_made}: {}", opened.is_ok()),
        }
    }
}

#[test]
fn what_is_durable_stays_so_when_an_earlier_flush_is_noted_later() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    let disk = subject.store.disk();
    disk.note_durable(50, Instant::now());
    disk.note_durable(30, Instant::now());
    assert_eq!(*disk.written.borrow(), 50);
    subject.close();
}

#[test]
fn report_does_not_wait_for_tables_that_are_being_registered() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    subject.charge(&charge(1, &quotas()[0]));
    subject.store.disk().compact().unwrap();
    let disk = Arc::clone(subject.store.disk());
    let opened = disk.opened.load_full().unwrap();
    let (report, reported) = mpsc::channel();
    let reported = opened.tree.while_registering(|| {
        std::thread::spawn(move || report.send(disk.report()).is_ok());
        reported.recv_timeout(PATIENCE)
    });
    let reported = reported.expect("it waits");
    assert_eq!(reported.tables, 1);
    assert!(reported.tables_bytes > 0 && reported.journal_bytes > 0);
    drop(opened);
    subject.close();
}

#[test]
fn secret_is_kept_while_the_thread_that_syncs_waits() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    let disk = Arc::clone(subject.store.disk());
    let opened = disk.opened.load_full().unwrap();
    eventually("a journal was made ahead", || journals(folder.path()).unwrap().len() == 2);
    // The next one is made by the thread that syncs: it waits for this lock.
    let held = opened.journals.hold();
    disk.compact().unwrap();
    disk.keep_secret([8; 16]);
    disk.keep_secret([9; 16]);
    eventually(
        "the secret is kept",
        || matches!(opened.folder.secret(), Ok(Some(secret)) if secret == [9; 16]),
    );
    drop(held);
    drop(opened);
    subject.close();
}

/// An instant that is longer ago than a flush may take.
fn long_ago() -> Instant {
    let lag = settings(Path::new("")).flush + Duration::from_secs(1);
    Instant::now().checked_sub(lag).expect("the machine has run for longer")
}

#[test]
fn writes_that_do_not_keep_up_are_counted_and_fail_until_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    subject.save();
    let disk = subject.store.disk();
    disk.check_lag();
    assert!(!disk.is_failing());
    *disk.flushed.lock() = long_ago();
    disk.check_lag();
    assert!(disk.is_failing(), "limits do as for `disk_write`");
    let error = disk.failure.lock().as_ref().map(|failure| failure.error.clone());
    assert_eq!(error.as_deref(), Some("writes take longer than `flush`"));
    assert_eq!(disk.report().late_flushes, 1);
    disk.note_written(long_ago());
    assert!(disk.is_failing(), "one that took as long");
    subject.save();
    assert!(!disk.is_failing());
    subject.close();
}

#[test]
fn sync_that_takes_longer_than_a_flush_is_counted_and_fails_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let subject = syncing_subject(folder.path());
    let disk = subject.store.disk();
    disk.note_durable(50, Instant::now());
    assert_eq!(disk.report().late_flushes, 0);
    disk.note_durable(51, long_ago());
    assert_eq!(disk.report().late_flushes, 1);
    assert!(!disk.is_failing());
    subject.close();
}
