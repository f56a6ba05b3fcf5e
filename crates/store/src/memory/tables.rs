//! The tables of a shard, one for each algorithm: an entry is as large as its state and no larger,
//! and a state only ever meets the algorithm that made it.

use tollgate_clock::Timestamp;
use tollgate_limit::algorithms;

use super::{room::Tag, table::Table};

macro_rules! tables {
    ($($(#[$doc:meta])* $algorithm:ident = $number:literal, $name:ident, $state:ident;)*) => {
        /// A table for each algorithm.
        pub(super) struct Tables {
            $(pub(super) $name: Table<tollgate_limit::$state>,)*
        }

        impl Tables {
            /// Empty tables; `stagger` is as in [`Table::new`].
            pub(super) fn new(stagger: f64) -> Tables {
                Tables { $($name: Table::new(stagger),)* }
            }

            /// Moves all counters to other tables. `duplicates` receives the tags of those that
            /// both had.
            pub(super) fn empty_into(&mut self, other: &mut Tables, duplicates: &mut Vec<Tag>) {
                $(self.$name.empty_into(&mut other.$name, duplicates);)*
            }
        }
    };
}
algorithms! { [tables] }

/// Evaluates an expression with the algorithm of a quota and the table of its states.
macro_rules! with_table {
    (@ $tables:expr, $quota:expr, $own:ident, $table:ident, $body:expr;
        $($(#[$doc:meta])* $algorithm:ident = $number:literal, $name:ident, $state:ident;)*
    ) => {
        match $quota {
            $(tollgate_limit::Quota::$algorithm($own) => {
                let $table = &mut $tables.$name;
                $body
            })*
        }
    };
    ($tables:expr, $quota:expr, ($own:ident, $table:ident) => $body:expr) => {
        tollgate_limit::algorithms! {
            [$crate::memory::tables::with_table] @ $tables, $quota, $own, $table, $body;
        }
    };
}
pub(super) use with_table;

/// Runs a block for each table, with the kind of its algorithm.
macro_rules! for_each_table {
    (@ $tables:expr, $kind:ident, $table:ident, $body:expr;
        $($(#[$doc:meta])* $algorithm:ident = $number:literal, $name:ident, $state:ident;)*
    ) => {{
        let $crate::memory::tables::Tables { $($name),* } = $tables;
        $({
            let $kind = tollgate_limit::AlgorithmKind::$algorithm;
            let $table = $name;
            $body
        })*
    }};
    ($tables:expr, ($kind:ident, $table:ident) => $body:expr) => {
        tollgate_limit::algorithms! {
            [$crate::memory::tables::for_each_table] @ $tables, $kind, $table, $body;
        }
    };
}
pub(super) use for_each_table;

impl Tables {
    /// Counters in all tables.
    pub(super) fn len(&self) -> usize {
        let mut len = 0;
        for_each_table!(self, (_kind, table) => len += table.len());
        len
    }

    /// Drops the counters that are over and reports their tags.
    pub(super) fn sweep(&mut self, now: Timestamp, mut dropped: impl FnMut(Tag)) {
        for_each_table!(self, (_kind, table) => table.sweep(now, &mut dropped));
    }
}
