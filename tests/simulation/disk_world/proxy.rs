//! A proxy with a disk of its own, and what its counters must be.

use std::{num::NonZeroU32, path::PathBuf, rc::Rc, sync::Arc, thread, time::Duration};

use tempfile::TempDir;
use tokio::time::Instant;
use tollgate_limit::{DecidedBy, Decision, Fallback, Outcome, Standing, Verdict};
use tollgate_settings::{DiskSettings, MemoryBounds, StoreKind, StoreSettings, SyncMode};
use tollgate_store::{
    Adjustment, Disk, MemoryStore, Store, StoreError, Stores, Unanswered, open_disk,
};
use tollgate_unreliable::{Calls, Drive, DriveFault, Ending};

use super::{
    DiskWorld,
    history::{End, History},
    limits::DiskLimit,
    waiting::{LOOK, PATIENCE, settle, wait},
};
use crate::{chance::Chance, limits::KEY_SECRET, machine::MachineClock};

/// So long that a thread does nothing because of its own clock.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// A running proxy.
pub(super) struct Proxy {
    pub(super) who: String,
    pub(super) sync: SyncMode,
    pub(super) flush: Duration,
    pub(super) clock: MachineClock,
    deadline: Duration,
    folder: TempDir,
    /// How often it was started.
    pub(super) lives: u32,
    drive: Arc<Drive>,
    stores: Arc<Stores>,
    store: Rc<Store>,
    /// How it ends once more while it is started, and after how many changes of files.
    next_end: Option<(Ending, u32)>,
    /// What each counter of each caller has had.
    histories: Vec<[History; 2]>,
}

impl Proxy {
    pub(super) fn new(number: usize, limits: &[[DiskLimit; 2]], chance: &mut Chance) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let sync = *chance.pick(&[SyncMode::Flush, SyncMode::Flush, SyncMode::Every, SyncMode::Os]);
        let flush = Duration::from_millis(*chance.pick(&[250, 500, 1000, 2000]));
        let deadline = Duration::from_millis(*chance.pick(&[25, 50, 100]));
        let clock = MachineClock::new(Instant::now());
        let drive = Drive::new(&folder.path().join("0")).expect("a folder can be made");
        let stores = open(&drive, sync, deadline, &clock).expect("a new store can be opened");
        let store = Store::start(Arc::clone(&stores));
        let histories = limits.iter().map(|_| [History::new(), History::new()]).collect();
        let who = format!("proxy {number}");
        let (lives, next_end) = (1, None);
        let proxy = Proxy {
            who,
            sync,
            flush,
            clock,
            deadline,
            folder,
            lives,
            drive,
            stores,
            store,
            next_end,
            histories,
        };
        settle(&proxy.drive);
        proxy
    }

    fn disk(&self) -> &Arc<Disk> {
        self.stores.disk().expect("the store is on disk")
    }

    /// Lets its disk fail. An end that was to come does not: while a disk fails, threads try this
    /// and that, and which call is the last one would vary.
    pub(super) fn fail(&self, fault: DriveFault) {
        self.drive.spare();
        self.drive.set_fault(Some(fault));
    }

    /// Ends the process or the power at one of the next writes or syncs of a journal, if the disk
    /// is well.
    pub(super) fn end_soon(&self, ending: Ending, away: u32) {
        if self.drive.is_well() {
            self.drive.end_at(Calls::Named("journal-"), away, ending, &self.next_folder());
        }
    }

    fn next_folder(&self) -> PathBuf {
        self.folder.path().join(self.lives.to_string())
    }

    /// Takes these units of limits of a caller. None: the process has ended before it answered.
    pub(super) async fn charge(
        &mut self,
        world: &DiskWorld,
        caller: usize,
        which: &[usize],
        cost: u32,
    ) -> Option<Result<Decision, StoreError>> {
        let limits: Vec<_> = which.iter().map(|at| &world.limits[caller][*at]).collect();
        let charges: Vec<_> = limits.iter().map(|limit| limit.charge(cost)).collect();
        let disk = Arc::clone(self.disk());
        let was_failing = disk.is_failing();
        let decided = wait(self.store.charge(&charges, self.clock.now()), &disk).await;
        let is_failing = was_failing || disk.is_failing();
        let mut broken = Vec::new();
        for (at, which) in which.iter().enumerate() {
            let history = &mut self.histories[caller][*which];
            match &decided {
                Ok(decision) => {
                    let outcome = &decision.outcomes[at];
                    let is_taken = decision.verdict == Verdict::Allow && outcome.receipt.is_some();
                    let limit = limits[at];
                    if is_taken {
                        history.charge(cost);
                    }
                    let used = (*which == 0).then(|| history.used());
                    broken.extend(wrong(limit, outcome, cost, (is_taken, is_failing), used));
                }
                // It was taken, and then given back: as always, it was not known that it fails.
                Err(_) if !was_failing => {
                    history.charge(cost);
                    history.give_back(cost);
                }
                Err(_) => {}
            }
        }
        let is_closed = limits.iter().any(|limit| limit.fallback == Fallback::Closed);
        match &decided {
            Err(StoreError::Unanswered(Unanswered::DiskWrite)) if is_failing && is_closed => {}
            Err(error) => broken.push(format!("caller {caller} {which:?}: {error}")),
            Ok(_) => {}
        }
        if self.drive.ended().is_some() {
            self.restart(world).await;
            return None;
        }
        if self.sync == SyncMode::Every && !is_failing && decided.as_ref().is_ok_and(takes) {
            self.note_written();
        }
        world.blame(&self.who, broken);
        Some(decided)
    }

    /// Gives units of a limit back.
    pub(super) async fn give_back(
        &mut self,
        world: &DiskWorld,
        place: (usize, usize),
        cost: u32,
        outcome: &Outcome,
    ) {
        let Some(receipt) = outcome.receipt else { return };
        let limit = &world.limits[place.0][place.1];
        // A counter that is not in memory would be given it later, in a task of its own.
        let before = self.standing(limit).await;
        let now = self.clock.now();
        self.store.settle(&limit.charge(cost), outcome, Adjustment::GiveBack(receipt), now);
        let after = self.standing(limit).await;
        let history = &mut self.histories[place.0][place.1];
        // What was charged before a reset may be given back after it, or not.
        if place.1 != 0 || after.used != before.used {
            history.give_back(cost);
        }
    }

    /// Makes the counters of a caller as never used.
    pub(super) async fn reset(&mut self, world: &DiskWorld, caller: usize) {
        let keys: Vec<_> = world.limits[caller].iter().map(|limit| limit.limit.key).collect();
        let disk = Arc::clone(self.disk());
        let made = wait(self.store.reset(&keys), &disk).await;
        self.histories[caller].iter_mut().for_each(History::reset);
        if let Err(error) = made {
            world.blame(&self.who, [format!("caller {caller} was not reset: {error}")]);
        }
        for limit in &world.limits[caller] {
            let used = self.standing(limit).await.used;
            let name = &limit.limit.name;
            let what = (used > 0).then(|| format!("{name}: {used} are used after a reset"));
            world.blame(&self.who, what);
        }
    }

    /// Writes what is not on disk yet, as it does twice in each `flush`. Now and then all counters
    /// leave memory, or tables are made and merged.
    pub(super) async fn write(&mut self, world: &DiskWorld, chance: &mut Chance) {
        if chance.is_one_in(4) {
            let charges: Vec<_> = world.crowd.iter().map(|limit| limit.charge(1)).collect();
            let disk = Arc::clone(self.disk());
            // Nobody asks what became of it.
            let _ = wait(self.store.charge(&charges, self.clock.now()), &disk).await;
        }
        match chance.below(12) {
            // Threads would do this and that at once, and which call is the last one would vary.
            _ if !self.drive.is_well() => {}
            0 | 1 => self.stores.cool_down(),
            2 => {
                let _ = self.disk().compact();
                settle(&self.drive);
            }
            _ => {}
        }
        // Only this waits for the sync.
        self.stores.save();
        if self.drive.ended().is_some() {
            return self.restart(world).await;
        }
        self.note_written();
    }

    fn note_written(&mut self) {
        let is_synced = self.sync != SyncMode::Os;
        if !self.disk().is_failing() {
            self.histories.iter_mut().flatten().for_each(|own| own.note_written(is_synced));
        }
    }

    pub(super) fn set_clock(&mut self, millis: i64) {
        self.clock.step(millis);
        self.histories.iter_mut().flatten().for_each(History::set_clock);
    }

    /// Waits until a disk that is well again is known to be well.
    pub(super) fn recover(&mut self, world: &DiskWorld) {
        self.drive.set_fault(None);
        let begun = std::time::Instant::now();
        while self.disk().is_failing() && begun.elapsed() < PATIENCE {
            self.stores.save();
            thread::park_timeout(LOOK);
        }
        if self.disk().is_failing() {
            return world.blame(&self.who, ["the disk is well, and is not written".to_owned()]);
        }
        self.note_written();
        settle(&self.drive);
    }

    /// Has the process or the power end once more while it is started again the next time.
    pub(super) fn end_while_starting(&mut self, ending: Ending, away: u32) {
        self.next_end = Some((ending, away));
    }

    /// Ends it now, and starts it again.
    pub(super) async fn end(&mut self, world: &DiskWorld, ending: Ending) {
        self.drive.end(ending, &self.next_folder()).expect("what is left can be copied");
        self.restart(world).await;
    }

    /// Stops it as an operator does, and starts it again.
    pub(super) async fn stop(&mut self, world: &DiskWorld) {
        self.restart(world).await;
    }

    /// Ends the process, if it has not ended before, and starts one in its place.
    async fn restart(&mut self, world: &DiskWorld) {
        let before = self.standings(world).await;
        self.disk().finish();
        let could_not_write = self.disk().is_failing();
        self.drive.spare();
        self.drive.set_fault(None);
        let mut end = match self.drive.ended() {
            None if could_not_write => End::Killed,
            None => End::Stopped,
            Some(Ending::Killed(_)) => End::Killed,
            Some(Ending::PowerCut(_)) => End::PowerCut,
        };
        self.start_left();
        if let Some((ending, away)) = self.next_end.take() {
            self.drive.end_at(Calls::own(), away, ending, &self.next_folder());
        }
        self.open(world);
        self.drive.spare();
        if self.drive.ended().is_some() {
            self.disk().finish();
            // What a clean stop has written is synced.
            end = if end == End::Stopped { end } else { End::PowerCut };
            self.start_left();
            self.open(world);
        }
        settle(&self.drive);
        let after = self.standings(world).await;
        let mut broken = Vec::new();
        for (caller, limits) in world.limits.iter().enumerate() {
            for (at, limit) in limits.iter().enumerate() {
                let history = &mut self.histories[caller][at];
                let (before, after) = (&before[caller][at], &after[caller][at]);
                let wrong = history.restart(end, at == 0, before, after);
                broken.extend(wrong.map(|wrong| format!("{}: {wrong}", limit.limit.name)));
            }
        }
        let used: Vec<_> = after.iter().map(|both| [both[0].used, both[1].used]).collect();
        world.story.tell(&self.who, format_args!("is up again after {end:?}, used {used:?}"));
        world.blame(&self.who, broken);
    }

    /// Goes on in what is left of the drive, if its process has not stopped by itself.
    fn start_left(&mut self) {
        if self.drive.ended().is_some() {
            let left = self.drive.left(&self.next_folder()).expect("what is left is there");
            self.drive.remove();
            self.drive = left;
        }
        self.lives += 1;
    }

    fn open(&mut self, world: &DiskWorld) {
        match open(&self.drive, self.sync, self.deadline, &self.clock) {
            Ok(stores) => self.stores = stores,
            Err(error) => {
                world.story.tell(&self.who, format_args!("is not opened: {error}"));
                panic!("{}: {error}\n{}", self.who, world.story.lines());
            }
        }
        self.store = Store::start(Arc::clone(&self.stores));
    }

    /// Ends it for good, after a last restart.
    pub(super) async fn close(&mut self, world: &DiskWorld) {
        self.drive.spare();
        self.recover(world);
        self.stop(world).await;
        self.disk().finish();
        self.drive.remove();
    }

    async fn standings(&self, world: &DiskWorld) -> Vec<[Standing; 2]> {
        let mut all = Vec::new();
        for [hourly, other] in &world.limits {
            all.push([self.standing(hourly).await, self.standing(other).await]);
        }
        all
    }

    async fn standing(&self, limit: &DiskLimit) -> Standing {
        let charge = limit.charge(0);
        let reading = self.store.peek_known(std::slice::from_ref(&charge), self.clock.now());
        let read = wait(reading, self.disk()).await;
        let read =
            read.unwrap_or_else(|error| panic!("{} {}: {error}", self.who, limit.limit.name));
        read.outcomes[0].standing
    }
}

/// What is wrong about what was said of a limit. `used`: what must be used of it, if that is known.
fn wrong(
    limit: &DiskLimit,
    outcome: &Outcome,
    cost: u32,
    (is_taken, is_failing): (bool, bool),
    used: Option<u32>,
) -> Option<String> {
    let name = &limit.limit.name;
    let Outcome { standing, decided_by, .. } = outcome;
    match decided_by {
        DecidedBy::Current => {}
        DecidedBy::NoStore if is_failing && limit.fallback == Fallback::Open => return None,
        other => return Some(format!("{name}: {other:?} has decided")),
    }
    let used = used?;
    if standing.used != used {
        return Some(format!("{name}: {} are used, and must be {used}", standing.used));
    }
    let before = if is_taken { used - cost } else { used };
    let fits = before + cost <= limit.limit.quota.capacity();
    (is_taken && !fits).then(|| format!("{name}: {used} were admitted, which is too many"))
}

fn takes(decision: &Decision) -> bool {
    decision.outcomes.iter().any(|outcome| outcome.receipt.is_some())
}

fn open(
    drive: &Drive,
    sync: SyncMode,
    deadline: Duration,
    clock: &MachineClock,
) -> Result<Arc<Stores>, tollgate_store::OpenError> {
    let path = drive.folder().to_owned();
    let disk = DiskSettings { path, memory: 64 << 20, flush: NEVER, sync, max_keys: 10_000 };
    let bounds = MemoryBounds::from(10_000);
    let opened = open_disk(&disk, bounds, Some(KEY_SECRET), clock.as_clock())?;
    let settings = StoreSettings {
        current: StoreKind::Disk(Arc::new(disk)),
        key_secret: Some(KEY_SECRET),
        deadline,
        instances: NonZeroU32::MIN,
        ..StoreSettings::in_process()
    };
    let memory = MemoryStore::new(bounds, KEY_SECRET);
    Ok(Arc::new(Stores::new(settings, memory, clock.as_clock()).with_disk(Some(opened))))
}
