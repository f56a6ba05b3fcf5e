//! The thread that merges tables, which drops what is over, and surveys them: how many counters
//! there are, and which keys.

use std::{
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant},
};

use tollgate_clock::Timestamp;

use super::{
    Disk, OpenFolder,
    filter::Filter,
    orders::{Job, Order, SurveyCounts, SurveyResult},
    record::Record,
    tree::TreeError,
};

/// Counters between two pauses of a survey. A pause is a part of the time since the last one: other
/// threads need the processor more.
const STRETCH: u64 = 1 << 12;

/// From which part of all counters on, in percent, those that are over are worth a merge of all
/// tables.
const MANY_OVER_PERCENT: u64 = 30;

/// The fewest counters that are over for that.
const FEWEST_OVER: u64 = 1000;

/// Works until no more can be requested.
pub(super) fn run(disk: &Disk, jobs: &Receiver<Job>, orders: &Sender<Order>) {
    while let Ok(job) = jobs.recv() {
        let Some(opened) = disk.opened.load_full() else {
            answer_closed(job, orders);
            continue;
        };
        match job {
            Job::Merge => {
                report(opened.tree.merge(|| disk.opened.load().is_some()));
                disk.note_tables(&opened);
            }
            Job::MergeAll(done) => {
                let merged = opened.tree.write_tables().and_then(|()| opened.tree.merge_all());
                disk.note_tables(&opened);
                let _ = done.send(merged.map_err(|error| error.to_string()));
            }
            Job::Survey(filter) => {
                let begun = Instant::now();
                // It may have waited for a long merge, and finds what was written meanwhile.
                let _ = orders.send(Order::SurveyBegins);
                let counted = survey(disk, &opened, &filter);
                let is_worth_merging = counted.as_ref().is_ok_and(has_many_over);
                if let Err(error) = &counted
                    && disk.opened.load().is_some()
                {
                    report_damage(&opened, error);
                }
                let found = SurveyResult { counted, took: begun.elapsed() };
                let _ = orders.send(Order::Surveyed(found));
                if is_worth_merging {
                    report(opened.tree.merge_all());
                    disk.note_tables(&opened);
                }
            }
        }
    }
}

/// Says which tables are damaged, if that is why counters cannot be counted.
fn report_damage(opened: &OpenFolder, error: &TreeError) {
    tracing::warn!(%error, "the counters on disk cannot be counted");
    for table in opened.tree.damaged_tables() {
        let advice = "restore a backup, or wait until the windows of its counters are over";
        tracing::error!(
            file = %table.file.display(), reason = table.reason, advice,
            "a table is damaged: limits of counters that are in it do as `on_store_error` says"
        );
    }
}

fn answer_closed(job: Job, orders: &Sender<Order>) {
    let closed = || "another process has the store open".to_owned();
    match job {
        Job::Merge => {}
        Job::MergeAll(done) => {
            let _ = done.send(Err(closed()));
        }
        Job::Survey(_) => {
            let counted = Err(TreeError::Damaged(closed()));
            let _ = orders.send(Order::Surveyed(SurveyResult { counted, took: Duration::ZERO }));
        }
    }
}

/// Counts the counters on disk, and adds the keys of those that are not over to a filter.
fn survey(disk: &Disk, opened: &OpenFolder, filter: &Filter) -> Result<SurveyCounts, TreeError> {
    let now = disk.now();
    let mut counted = SurveyCounts { live: vec![0; 1 << 16], over: 0 };
    let mut seen = 0;
    let mut stretch_begun = Instant::now();
    opened.tree.for_each(|key, record| {
        count(&mut counted, filter, key, &record, now);
        seen += 1;
        if seen % STRETCH == 0 {
            std::thread::park_timeout(stretch_begun.elapsed() / 4);
            stretch_begun = Instant::now();
        }
    })?;
    Ok(counted)
}

fn count(counted: &mut SurveyCounts, filter: &Filter, key: u128, record: &Record, now: Timestamp) {
    if record.is_over(now) == Some(true) {
        counted.over += 1;
        return;
    }
    filter.add(key);
    if let Some(count) = counted.live.get_mut(usize::from(record.tag)) {
        *count += 1;
    }
}

fn has_many_over(counted: &SurveyCounts) -> bool {
    let live: u64 = counted.live.iter().sum();
    counted.over >= FEWEST_OVER && counted.over * 100 >= (live + counted.over) * MANY_OVER_PERCENT
}

fn report(merged: Result<(), TreeError>) {
    if let Err(error) = merged {
        tracing::warn!(%error, "tables cannot be merged; this is tried again");
    }
}
