//! Counters on disk: what outlives the process, what comes back into memory, and what is said of
//! damage.

mod full;
mod reads;
mod slow_syncs;
mod surveys;

use std::{fs, io, path::Path, sync::atomic::AtomicU64, time::Duration};

use proptest::prelude::*;
use tokio::time::Instant;
use tollgate_clock::{Clock, Timestamp};
use tollgate_limit::{
    AlgorithmKind, Align, Charge, Decision, FixedWindow, Gcra, Key, KeyHasher, LimitId, Quota,
};
use tollgate_settings::{DiskSettings, MemoryBounds, SyncMode};

use super::{
    OfflineStore, OpenError, check,
    journal::{journals, last_written, path_of},
    live::LiveJournals,
    open,
};
use crate::{
    Adjustment, DiskStore, MemoryStore,
    memory::{NotCharged, ThawOutcome, bare_key},
};

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn settings(folder: &Path) -> DiskSettings {
    DiskSettings {
        path: folder.to_owned(),
        memory: 16 << 20,
        // Tests say when it is written.
        flush: Duration::from_secs(60),
        sync: SyncMode::Os,
        max_keys: 100_000,
    }
}

fn quotas() -> [Quota; AlgorithmKind::ALL.len()] {
    AlgorithmKind::ALL.map(|kind| Quota::plain(kind, 5, HOUR).unwrap())
}

fn charge(owner: u64, quota: &Quota) -> Charge<'_> {
    let owner = KeyHasher::new([3; 16]).hash([(b'u', &owner.to_le_bytes()[..])]);
    let limit = LimitId::new("test", quota.kind().name(), "", 0);
    Charge::new(Key::new(owner, owner, limit), quota, 1)
}

/// A store in a folder, with a clock that only the test moves.
struct Subject {
    store: std::sync::Arc<DiskStore>,
    time: std::sync::Arc<AtomicU64>,
    runtime: tokio::runtime::Runtime,
}

impl Subject {
    fn open(folder: &Path, now: Timestamp) -> Subject {
        Subject::try_open(folder, now).unwrap()
    }

    fn try_open(folder: &Path, now: Timestamp) -> Result<Subject, OpenError> {
        Subject::with_settings(&settings(folder), now)
    }

    fn with_settings(settings: &DiskSettings, now: Timestamp) -> Result<Subject, OpenError> {
        let time = std::sync::Arc::new(AtomicU64::new(now.as_micros()));
        let clock = Clock::Manual(std::sync::Arc::clone(&time));
        let store = open(settings, MemoryBounds::from(100_000), None, clock)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Subject { store, time, runtime: runtime.unwrap() })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.time.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn advance(&self, time: Duration) {
        self.time.fetch_add(time.as_micros() as u64, std::sync::atomic::Ordering::Relaxed);
    }

    fn thaw(&self, charge: &Charge<'_>) {
        let disk = self.store.disk();
        let read = disk.read(bare_key(charge.key.entry), Instant::now() + HOUR);
        let record = self.runtime.block_on(read).unwrap();
        let evictions = self.store.evictions(charge);
        let thawed = self.store.thaw(charge, record.as_ref(), evictions, self.now());
        assert_eq!(thawed, ThawOutcome::Resident);
    }

    fn charge(&self, charge: &Charge<'_>) -> Decision {
        loop {
            match self.store.charge(&[*charge], self.now()) {
                Ok(decision) => return decision,
                Err(NotCharged::Cold) => self.thaw(charge),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn used(&self, charge: &Charge<'_>) -> u32 {
        if !self.store.cold(&[*charge]).is_empty() {
            self.thaw(charge);
        }
        self.store.peek(&[*charge], self.now()).unwrap().outcomes[0].standing.used
    }

    fn save(&self) {
        self.store.disk().save();
    }

    /// Writes all, and lets it leave memory.
    fn cool_down(&self) {
        self.store.disk().cool_down();
    }

    fn close(self) {
        self.store.disk().finish();
    }
}

#[test]
fn every_kind_of_counter_outlives_the_process_but_leases() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas();
    let subject = Subject::open(folder.path(), START);
    let secret = subject.store.memory().key_secret();
    for owner in 0..300 {
        for _ in 0..=owner % 3 {
            subject.charge(&charge(owner, &quotas[owner as usize % quotas.len()]));
        }
    }
    subject.close();

    let subject = Subject::open(folder.path(), START + HOUR / 60);
    assert_eq!(subject.store.memory().key_secret(), secret);
    for owner in 0..300 {
        let quota = &quotas[owner as usize % quotas.len()];
        let expected = if quota.holds_leases() { 0 } else { owner as u32 % 3 + 1 };
        assert_eq!(subject.used(&charge(owner, quota)), expected, "{owner} {:?}", quota.kind());
    }
    subject.close();
}

#[test]
fn counter_that_left_memory_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas();
    let subject = Subject::open(folder.path(), START);
    for quota in quotas.iter().filter(|quota| !quota.holds_leases()) {
        let mut allowed = 0;
        for _ in 0..8 {
            let decision = subject.charge(&charge(1, quota));
            allowed += u32::from(decision.outcomes[0].fits());
            subject.cool_down();
            assert_eq!(subject.store.in_memory(), 0, "{:?}", quota.kind());
        }
        assert_eq!(allowed, 5, "{:?}", quota.kind());
    }
    subject.close();
}

#[test]
fn new_caller_needs_no_read_and_short_windows_stay_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::open(folder.path(), START);
    let quotas = quotas();
    (0..1000).for_each(|owner| drop(subject.charge(&charge(owner, &quotas[0]))));
    subject.cool_down();
    let cold = |owner: &u64| subject.store.charge(&[charge(*owner, &quotas[0])], START).is_err();
    let misled = (1000..2000).filter(cold).count();
    assert!(misled < 30, "{misled} of 1000 new callers are looked for on disk");

    let second = Duration::from_secs(1);
    let short = Quota::FixedWindow(FixedWindow { limit: 5, align: Align::FirstRequest(second) });
    subject.charge(&charge(1, &short));
    subject.cool_down();
    assert_eq!(subject.used(&charge(1, &short)), 1, "it has not left");
    subject.close();
}

#[test]
fn removed_counter_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    subject.charge(&charge(1, quota));
    subject.cool_down();
    subject.store.memory().remove(&charge(1, quota));
    assert_eq!(subject.used(&charge(1, quota)), 0, "before its removal is written");
    subject.charge(&charge(1, quota));
    subject.cool_down();
    assert_eq!(subject.used(&charge(1, quota)), 1, "charged after it was removed");
    subject.store.memory().remove_key(charge(1, quota).key);
    subject.close();
    let subject = Subject::open(folder.path(), START);
    assert_eq!(subject.used(&charge(1, quota)), 0, "in the next process");
    subject.close();
}

#[test]
fn state_that_was_read_before_others_left_memory_is_stale() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    let charge = charge(1, quota);
    subject.charge(&charge);
    subject.cool_down();
    let evictions = subject.store.evictions(&charge);
    let disk = subject.store.disk();
    let read = disk.read(bare_key(charge.key.entry), Instant::now() + HOUR);
    let early = subject.runtime.block_on(read).unwrap();
    subject.charge(&charge);
    subject.cool_down();
    let thawed = subject.store.thaw(&charge, early.as_ref(), evictions, START);
    assert_eq!(thawed, ThawOutcome::Stale);
    assert_eq!(subject.used(&charge), 2);
    subject.close();
}

#[test]
fn refund_that_ends_a_counter_is_not_forgotten_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[4];
    let subject = Subject::open(folder.path(), START);
    let charge = charge(1, quota);
    let receipt = subject.charge(&charge).outcomes[0].receipt.unwrap();
    subject.save();
    subject.store.settle(&charge, Adjustment::GiveBack(receipt), START).unwrap();
    subject.advance(Duration::from_secs(1));
    subject.save();
    subject.store.memory().sweep(subject.now());
    subject.close();
    let subject = Subject::open(folder.path(), START);
    assert_eq!(subject.used(&charge), 0);
    subject.close();
}

#[test]
fn what_is_over_leaves_the_disk_when_tables_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas();
    let subject = Subject::open(folder.path(), START);
    (0..2000).for_each(|owner| drop(subject.charge(&charge(owner, &quotas[owner as usize % 2]))));
    subject.save();
    subject.close();
    let clock = Clock::Manual(std::sync::Arc::new((START + HOUR).as_micros().into()));
    let offline = OfflineStore::open(folder.path(), clock).unwrap();
    // One that serves may keep it in its journal, where the next one was not made yet.
    offline.compact().unwrap();
    // A sliding window counts for as long again.
    let (survey, ..) = offline.stat().unwrap();
    assert_eq!((survey.live, survey.over), (1000, 0));
}

/// A counter that was reset, or given back, may be over before an earlier state of it is.
#[test]
fn earlier_state_does_not_come_back_when_the_latest_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let minute = Duration::from_secs(60);
    let quota = Quota::from(Gcra::new(60, minute, 60, 3).unwrap());
    let subject = Subject::open(folder.path(), START);
    let own = charge(1, &quota);
    subject.charge(&Charge { cost: 30, ..own });
    subject.save();
    subject.store.disk().compact().unwrap();
    subject.store.memory().remove(&own);
    subject.charge(&own);
    subject.close();

    let later = START + Duration::from_secs(5);
    let subject = Subject::open(folder.path(), later);
    subject.store.disk().compact().unwrap();
    assert_eq!(subject.used(&own), 0);
    subject.close();
}

#[test]
fn folder_is_for_one_process_and_one_secret() {
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::open(folder.path(), START);
    let error = Subject::try_open(folder.path(), START).err().unwrap().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    subject.close();
    let other = open(
        &settings(folder.path()),
        MemoryBounds::DEFAULT,
        Some([1; 16]),
        Clock::Manual(std::sync::Arc::new(START.as_micros().into())),
    );
    assert!(matches!(other, Err(OpenError::Secret(_))));
}

#[test]
fn folder_that_was_given_up_serves_from_memory_and_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    subject.charge(&charge(1, quota));
    subject.store.disk().release();
    let other = Subject::open(folder.path(), START);
    assert_eq!(other.used(&charge(1, quota)), 1, "all was written before");
    subject.charge(&charge(1, quota));
    assert!(!subject.store.disk().is_failing());
    other.close();
    subject.store.disk().resume();
    subject.cool_down();
    assert_eq!(subject.used(&charge(1, quota)), 2);
    subject.close();
}

/// A folder as `kill -9` would leave it now.
fn killed(folder: &Path) -> tempfile::TempDir {
    loop {
        let copied = tempfile::tempdir().unwrap();
        let journals_before = journals(folder).unwrap();
        // Other threads may replace a file meanwhile.
        let is_copied = copy(folder, copied.path()).is_ok();
        if is_copied && journals(folder).unwrap() == journals_before {
            return copied;
        }
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// Journals are made ahead in one thread, and where one is needed at once in another.
#[test]
fn what_is_written_to_a_folder_that_was_taken_back_comes_after_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    let own = charge(1, quota);
    subject.charge(&own);
    subject.store.disk().compact().unwrap();
    subject.store.disk().release();
    let before = journals(folder.path()).unwrap();
    subject.store.disk().resume();
    while journals(folder.path()).unwrap() == before {
        subject.save();
    }
    subject.save();
    for used in 2..=5 {
        subject.charge(&own);
        subject.save();
        let killed = killed(folder.path());
        assert_eq!(Subject::open(killed.path(), START).used(&own), used);
        subject.store.disk().compact().unwrap();
    }
    subject.close();
}

#[test]
fn damaged_journal_is_reported_and_kept_and_repair_keeps_what_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    for owner in 0..3 {
        subject.charge(&charge(owner, quota));
        subject.save();
    }
    subject.close();
    let id = last_written(folder.path(), &journals(folder.path()).unwrap()).unwrap();
    let file = path_of(folder.path(), id);
    let mut bytes = fs::read(&file).unwrap();
    let second_frame = bytes.len() / 2;
    bytes[second_frame] ^= 0xFF;
    fs::write(&file, &bytes).unwrap();

    let error = Subject::try_open(folder.path(), START).err().unwrap().to_string();
    assert!(error.contains("journal-") && error.contains("check --repair"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), bytes, "it is as it was");
    let clock = Clock::Manual(std::sync::Arc::new(START.as_micros().into()));
    let checked = check(folder.path(), false, &clock).unwrap();
    assert_eq!((checked.counters, checked.damaged.len()), (2, 1));
    assert!(Subject::try_open(folder.path(), START).is_err(), "a check alone changes nothing");

    check(folder.path(), true, &clock).unwrap();
    assert!(file.with_extension("damaged").exists());
    let subject = Subject::open(folder.path(), START);
    let used: Vec<u32> = (0..3).map(|owner| subject.used(&charge(owner, quota))).collect();
    assert_eq!(used, [1, 0, 1]);
    subject.close();
}

#[test]
fn damaged_table_is_found_and_never_read_as_a_new_counter() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    (0..100).for_each(|owner| drop(subject.charge(&charge(owner, quota))));
    subject.save();
    subject.store.disk().compact().unwrap();
    subject.close();
    let table = fs::read_dir(folder.path().join("tables/tables")).unwrap().next().unwrap();
    let table = table.unwrap().path();
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 0xFF;
    fs::write(&table, &bytes).unwrap();
    LiveJournals::read(folder.path()).unwrap().end_all().unwrap();

    let clock = Clock::Manual(std::sync::Arc::new(START.as_micros().into()));
    let checked = check(folder.path(), false, &clock).unwrap();
    assert_eq!(checked.damaged[0].file, table);
    let subject = Subject::open(folder.path(), START);
    let disk = subject.store.disk();
    for owner in 0..100 {
        let charge = charge(owner, quota);
        assert_eq!(subject.store.charge(&[charge], START), Err(NotCharged::Cold));
        let read = disk.read(bare_key(charge.key.entry), Instant::now() + HOUR);
        assert!(subject.runtime.block_on(read).is_err(), "{owner}");
    }
    subject.close();
}

#[test]
fn backup_is_a_store_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = quotas();
    let subject = Subject::open(&folder.path().join("store"), START);
    (0..500).for_each(|owner| drop(subject.charge(&charge(owner, &quotas[owner as usize % 5]))));
    let to = folder.path().join("copy");
    assert_eq!(subject.store.disk().backup(&to).unwrap(), 500);
    subject.charge(&charge(0, &quotas[0]));
    let again = subject.store.disk().backup(&to);
    assert!(again.is_err(), "a backup is not overwritten");
    subject.close();
    let copy = Subject::open(&to, START);
    for owner in 0..500 {
        assert_eq!(copy.used(&charge(owner, &quotas[owner as usize % 5])), 1, "{owner}");
    }
    copy.close();
}

#[test]
fn month_survives_three_restarts_and_a_backup_that_is_restored_elsewhere() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let folder = tempfile::tempdir().unwrap();
    let month = FixedWindow { limit: 100, align: Align::FirstRequest(30 * DAY) };
    let month = Quota::FixedWindow(month);
    let charge = charge(1, &month);
    let mut path = folder.path().join("store");
    let mut now = START;
    for start in 0..4 {
        let subject = Subject::open(&path, now);
        assert_eq!(subject.used(&charge), start);
        let standing = subject.charge(&charge).outcomes[0].standing;
        assert_eq!(standing.reset, START + 30 * DAY, "it begins once");
        if start == 3 {
            path = folder.path().join("elsewhere");
            subject.store.disk().backup(&path).unwrap();
        }
        subject.close();
        now = now + 9 * DAY;
    }
    fs::remove_dir_all(folder.path().join("store")).unwrap();
    let restored = Subject::open(&path, START + 29 * DAY);
    assert_eq!(restored.used(&charge), 4);
    restored.advance(DAY);
    assert_eq!(restored.used(&charge), 0);
    restored.close();
}

#[test]
fn idle_store_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let quota = &quotas()[0];
    let subject = Subject::open(folder.path(), START);
    (0..5000).for_each(|owner| drop(subject.charge(&charge(owner, quota))));
    subject.store.disk().compact().unwrap();
    subject.close();
    // Nobody asks for anything. The disk is looked through after the first flush.
    let settings = DiskSettings { flush: Duration::from_millis(10), ..settings(folder.path()) };
    let subject = Subject::with_settings(&settings, START + 2 * HOUR).unwrap();
    let disk = subject.store.disk();
    let patience = std::time::Instant::now() + Duration::from_secs(60);
    while disk.report().tables_bytes > 0 {
        assert!(std::time::Instant::now() < patience, "{:?}", disk.report());
        std::thread::park_timeout(Duration::from_millis(5));
    }
    subject.close();
}

#[derive(Clone, Debug)]
enum Step {
    Charge { owner: u64, quota: usize, cost: u32 },
    GiveBack { charge: usize },
    Remove { owner: u64, quota: usize },
    Advance(u64),
    Save,
    CoolDown,
    Compact,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (0..6_u64, 0..5_usize, 1..4_u32)
            .prop_map(|(owner, quota, cost)| Step::Charge { owner, quota, cost }),
        6 => (0..50_usize).prop_map(|charge| Step::GiveBack { charge }),
        2 => (0..6_u64, 0..5_usize).prop_map(|(owner, quota)| Step::Remove { owner, quota }),
        10 => (1..3_000_000_000_u64).prop_map(Step::Advance),
        6 => Just(Step::Save),
        6 => Just(Step::CoolDown),
        1 => Just(Step::Compact),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever leaves memory and comes back, and whenever the process is started anew: all
    /// decisions are those of a store that keeps all of it in memory.
    #[test]
    fn prop_decisions_are_those_of_a_store_in_memory(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let quotas = quotas();
        let mut subject = Subject::open(folder.path(), START);
        let model = MemoryStore::new(100_000, [0; 16]);
        let mut taken = Vec::new();
        for step in steps {
            let now = subject.now();
            match step {
                Step::Charge { owner, quota, cost } => {
                    let charge = Charge { cost, ..charge(owner, &quotas[quota]) };
                    let decision = subject.charge(&charge);
                    let expected = model.charge(&[charge], now).unwrap();
                    prop_assert_eq!(decision.verdict, expected.verdict);
                    let [own, expected] = [&decision, &expected].map(|it| it.outcomes[0]);
                    prop_assert_eq!(own.standing, expected.standing);
                    // Entries of a log that was over and forgotten are numbered anew.
                    let receipts = own.receipt.zip(expected.receipt);
                    taken.extend(receipts.map(|receipts| (charge, receipts)));
                }
                Step::GiveBack { charge } if !taken.is_empty() => {
                    let (charge, (receipt, of_model)) = taken.swap_remove(charge % taken.len());
                    let expected = model.settle(&charge, Adjustment::GiveBack(of_model), now);
                    if !subject.store.cold(&[charge]).is_empty() {
                        subject.thaw(&charge);
                    }
                    let given = subject.store.settle(&charge, Adjustment::GiveBack(receipt), now).unwrap();
                    if let (Some(given), Some(expected)) = (given, expected) {
                        prop_assert_eq!(given, expected);
                    }
                }
                Step::GiveBack { .. } => {}
                Step::Remove { owner, quota } => {
                    let removed = charge(owner, &quotas[quota]);
                    model.remove(&removed);
                    subject.store.memory().remove_key(removed.key);
                    // Receipts of a counter that was reset are refused before they come here.
                    taken.retain(|(charge, _)| charge.key != removed.key);
                }
                Step::Advance(micros) => {
                    subject.advance(Duration::from_micros(micros));
                    subject.store.memory().sweep(subject.now());
                    model.sweep(subject.now());
                }
                Step::Save => subject.save(),
                Step::CoolDown => subject.cool_down(),
                Step::Compact => subject.store.disk().compact().unwrap(),
                Step::Restart => {
                    subject.close();
                    subject = Subject::open(folder.path(), now);
                }
            }
        }
        subject.close();
    }
}
