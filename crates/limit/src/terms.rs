//! What a quota allows, in the terms of its algorithm: for those who put it in words.

use std::time::Duration;

/// What a quota allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Units in a window, or at once.
    pub units: u32,
    /// How long a window is; of a calendar, the longest. None: there is no window.
    pub window: Option<Duration>,
    /// Whether units come back bit by bit, not all with the next window.
    pub is_refilled: bool,
    /// What else a policy says of it, by the names of its fields.
    pub details: Vec<(&'static str, Detail)>,
}

/// The value of a field of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// It is set.
    Set,
    /// Units.
    Units(u32),
    /// A time.
    Time(Duration),
}

impl Terms {
    /// So many units in each window, and nothing else.
    pub(super) fn of_windows(units: u32, window: Duration) -> Terms {
        Terms { units, window: Some(window), is_refilled: false, details: Vec::new() }
    }
}
