//! Moving from one store to another: where to, how, and for how many callers. How and for how many
//! change while traffic flows, by editing the settings file; all else in it needs a restart.

use tollgate_keyword::keywords;
use tollgate_yaml::Check;

use super::{RawStore, StoreKind};
use crate::Checker;

/// A move from one store to another, under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Moving {
    /// The store to move to.
    pub to: StoreKind,
    /// The percentage of callers that are moved; always the same callers.
    pub percent: u8,
    /// How they are moved.
    pub mode: MoveMode,
}

/// How the chosen callers are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveMode {
    /// Both stores are charged, the current one decides, and disagreements are counted.
    Mirror,
    /// The next store decides, starting from the caller's counters in the current one, once every
    /// proxy that shares one of the stores charges both.
    Move,
    /// As `Move`, but at once: it does not wait for other proxies.
    MoveNow,
}

keywords! { MoveMode { Mirror = "mirror", Move = "move", MoveNow = "move_now" } }

impl Checker<'_> {
    /// How many callers move and how, if there is a store to move to.
    pub(crate) fn pace(&mut self, raw: &RawStore) -> Option<(u8, MoveMode)> {
        const ADD_NEXT: &str = "add the store to move to as `next`, or remove this";
        let percent = self.number_or(&raw.percent, 0..=100, 0);
        let mode = raw.mode.as_ref().and_then(|raw| self.keyword(raw));
        let Some(next) = &raw.next else {
            if let Some(percent) = &raw.percent {
                self.refuse(percent, "`percent` needs `next`", ADD_NEXT);
            }
            if let Some(mode) = &raw.mode {
                self.refuse(mode, "`mode` needs `next`", ADD_NEXT);
            }
            return None;
        };
        if raw.mode.is_none() {
            self.refuse(
                next,
                "`next` needs `mode`",
                "add `mode: mirror` to compare the stores, or `mode: move`",
            );
        }
        Some((percent, mode?))
    }
}
