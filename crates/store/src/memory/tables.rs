//! The tables of a shard, one for each algorithm: an entry is as large as its state and no larger,
//! and a state only ever meets the algorithm that made it.

use tollgate_clock::Timestamp;
use tollgate_limit::{Bucket, Leases, Level, Log, Window, Windows};

use super::{room::Tag, table::Table};

/// A table for each algorithm.
pub(super) struct Tables {
    pub(super) fixed_window: Table<Window>,
    pub(super) sliding_window: Table<Windows>,
    pub(super) sliding_log: Table<Log>,
    pub(super) token_bucket: Table<Bucket>,
    pub(super) gcra: Table<Level>,
    pub(super) concurrency: Table<Leases>,
}

/// Evaluates an expression with the algorithm of a quota and the table of its states.
macro_rules! with_table {
    ($tables:expr, $quota:expr, ($algorithm:ident, $table:ident) => $body:expr) => {
        with_table!(@ $tables, $quota, $algorithm, $table, $body,
            FixedWindow fixed_window,
            SlidingWindow sliding_window,
            SlidingLog sliding_log,
            TokenBucket token_bucket,
            Gcra gcra,
            Concurrency concurrency)
    };
    (@ $tables:expr, $quota:expr, $algorithm:ident, $table:ident, $body:expr,
        $($variant:ident $field:ident),*) => {
        match $quota {
            $(tollgate_limit::Quota::$variant($algorithm) => {
                let $table = &mut $tables.$field;
                $body
            })*
        }
    };
}
pub(super) use with_table;

/// Runs a block for each table, with the kind of its algorithm. It names every table, so the
/// compiler reports one that is missing.
macro_rules! for_each_table {
    ($tables:expr, ($kind:ident, $table:ident) => $body:expr) => {{
        let $crate::memory::tables::Tables {
            fixed_window,
            sliding_window,
            sliding_log,
            token_bucket,
            gcra,
            concurrency,
        } = $tables;
        for_each_table!(@ $kind, $table, $body,
            FixedWindow fixed_window,
            SlidingWindow sliding_window,
            SlidingLog sliding_log,
            TokenBucket token_bucket,
            Gcra gcra,
            Concurrency concurrency)
    }};
    (@ $kind:ident, $table:ident, $body:expr, $($variant:ident $field:ident),*) => {{
        $({
            let $kind = tollgate_limit::AlgorithmKind::$variant;
            let $table = $field;
            $body
        })*
    }};
}
pub(super) use for_each_table;

impl Tables {
    /// Empty tables; `stagger` is as in [`Table::new`].
    pub(super) fn new(stagger: f64) -> Tables {
        Tables {
            fixed_window: Table::new(stagger),
            sliding_window: Table::new(stagger),
            sliding_log: Table::new(stagger),
            token_bucket: Table::new(stagger),
            gcra: Table::new(stagger),
            concurrency: Table::new(stagger),
        }
    }

    /// Counters in all tables.
    pub(super) fn len(&self) -> usize {
        let mut len = 0;
        for_each_table!(self, (_kind, table) => len += table.len());
        len
    }

    /// Moves all counters to other tables. `duplicates` receives the tags of those that both had.
    pub(super) fn empty_into(&mut self, other: &mut Tables, duplicates: &mut Vec<Tag>) {
        let Tables { fixed_window, sliding_window, sliding_log, token_bucket, gcra, concurrency } =
            self;
        fixed_window.empty_into(&mut other.fixed_window, duplicates);
        sliding_window.empty_into(&mut other.sliding_window, duplicates);
        sliding_log.empty_into(&mut other.sliding_log, duplicates);
        token_bucket.empty_into(&mut other.token_bucket, duplicates);
        gcra.empty_into(&mut other.gcra, duplicates);
        concurrency.empty_into(&mut other.concurrency, duplicates);
    }

    /// Drops the counters that are over and reports their tags.
    pub(super) fn sweep(&mut self, now: Timestamp, mut dropped: impl FnMut(Tag)) {
        for_each_table!(self, (_kind, table) => table.sweep(now, &mut dropped));
    }
}
