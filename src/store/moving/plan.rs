//! Which callers are in the next store, and whether that is in earnest.
//!
//! Proxies that share a store must not decide about a caller by different ones: a limit would be
//! admitted twice. So `move` begins as `mirror`, until every proxy that was seen there charges the
//! next store too, and has done so for as long as anything counts: then both stores know the same.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{Throttle, Timestamp},
    settings::{MoveMode, Moving},
};

/// Time between two lines of the log about the same obstacle.
const REMINDER: Duration = Duration::from_secs(60);

/// Who is in the next store. It changes while requests are served.
#[derive(Debug)]
pub struct Move {
    /// How many of a hundred are charged there, and for how many of them it decides: one number, so
    /// that nobody reads one without the other.
    shares: AtomicU16,
    /// How often that was changed.
    changes: AtomicU32,
    /// Whether callers who are moved are charged in the present store too: others decide by it.
    charges_both: AtomicBool,
    state: Mutex<State>,
    reminders: Throttle,
}

#[derive(Debug, Default)]
struct State {
    /// What was asked for last; none if nothing ever was.
    wanted: Option<(u8, MoveMode)>,
    /// Since when so many callers are charged in the next store; none: it is not known yet.
    since: Option<Timestamp>,
    /// For how long a unit counts at most.
    longest: Duration,
    obstacle: Option<Obstacle>,
}

/// How an owner is in the next store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Way {
    /// It is charged there too.
    Mirrored,
    /// It is decided about there.
    Moved,
}

/// What a proxy tells others of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Announcement {
    /// So many of a hundred callers are charged in its next store.
    pub(in crate::store) charged: u8,
    /// For so many of them that store decides.
    pub(in crate::store) moved: u8,
    /// For how long so many have been charged there.
    pub(in crate::store) age: Duration,
}

/// Why callers are mirrored who are to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not known yet which other proxies there are.
    Unseen,
    /// Redis does not tell which other proxies there are.
    Untold(String),
    /// So many other proxies do not charge the next store for as many callers.
    Behind(usize),
    /// A proxy has charged the next store for too short a time: so long is left.
    Recent(Duration),
}

impl Obstacle {
    /// For how many seconds it is there at least, if that is known.
    pub fn seconds_left(&self) -> Option<u64> {
        match self {
            Obstacle::Recent(left) if *left < Duration::MAX => Some(left.as_secs()),
            _ => None,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Unseen => f.write_str("it is not known yet which other proxies there are"),
            Obstacle::Untold(reason) => {
                write!(f, "redis does not tell which other proxies there are: {reason}")
            }
            Obstacle::Behind(1) => {
                f.write_str("1 other proxy does not charge the next store for as many callers")
            }
            Obstacle::Behind(proxies) => write!(
                f,
                "{proxies} other proxies do not charge the next store for as many callers"
            ),
            Obstacle::Recent(Duration::MAX) => f.write_str(
                "a limit counts without an end, and the next store lacks what was before",
            ),
            Obstacle::Recent(left) => write!(
                f,
                "not every proxy has charged the next store for as long as the longest window: {} left",
                humantime::format_duration(Duration::from_secs(left.as_secs().max(1)))
            ),
        }
    }
}

impl Move {
    /// As the settings say at the start.
    pub fn new(moving: Option<&Moving>) -> Self {
        let plan = Move {
            shares: AtomicU16::new(0),
            changes: AtomicU32::new(0),
            charges_both: AtomicBool::new(false),
            state: Mutex::default(),
            reminders: Throttle::new(REMINDER),
        };
        if let Some(moving) = moving {
            plan.set(moving.percent, moving.mode);
        }
        plan
    }

    /// So many of a hundred callers are to be in the next store, in this way. Tells whether they are
    /// at once: callers who are to be moved may have to be mirrored first, but for those who are moved
    /// already.
    pub fn set(&self, percent: u8, mode: MoveMode) -> bool {
        let mut state = self.lock();
        let (charged, moved) = self.shares();
        let moved = match mode {
            MoveMode::Mirror => 0,
            MoveMode::Move => moved.min(percent),
            MoveMode::MoveNow => percent,
        };
        let is_done = mode != MoveMode::Move || moved == percent;
        if percent > charged {
            state.since = None;
        }
        state.wanted = Some((percent, mode));
        state.obstacle = (!is_done).then_some(Obstacle::Unseen);
        self.store(percent, moved);
        is_done
    }

    /// For so long a unit counts at most, in the policies in force.
    pub fn set_longest(&self, longest: Duration) {
        self.lock().longest = longest;
    }

    /// How many of a hundred callers are to be in the next store, and in which way; none if nobody
    /// ever was.
    pub fn plan(&self) -> Option<(u8, MoveMode)> {
        self.lock().wanted
    }

    /// For how many of a hundred callers the next store decides.
    pub fn moved(&self) -> u8 {
        self.shares().1
    }

    /// Why others are mirrored who are to be moved; none: nobody is.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.lock().obstacle.clone()
    }

    /// Whether it matters what other proxies do.
    pub(in crate::store) fn looks_at_others(&self) -> bool {
        self.moved() > 0 || self.lock().obstacle.is_some()
    }

    /// How often it was changed who is in the next store.
    pub(in crate::store) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Whether callers who are moved are charged in the present store too.
    pub fn charges_both(&self) -> bool {
        self.charges_both.load(Ordering::Relaxed)
    }

    /// How an owner is in the next store; none if it is not.
    pub(in crate::store) fn of(&self, owner: u128) -> Option<Way> {
        let (charged, moved) = self.shares();
        let percentile = (u64::from((owner >> 16) as u32) * 100) >> 32;
        match percentile {
            percentile if percentile < u64::from(moved) => Some(Way::Moved),
            percentile if percentile < u64::from(charged) => Some(Way::Mirrored),
            _ => None,
        }
    }

    /// What others are to know.
    pub(in crate::store) fn announcement(&self, now: Timestamp) -> Announcement {
        let (charged, moved) = self.shares();
        let since = *self.lock().since.get_or_insert(now);
        Announcement { charged, moved, age: now.saturating_since(since) }
    }

    /// Takes note of what all others announce, or why that is not known.
    pub(in crate::store) fn hear(&self, others: Result<&[Announcement], String>, now: Timestamp) {
        let own = self.announcement(now);
        let mut state = self.lock();
        let moves_on = state.obstacle.is_some();
        let percent = state.wanted.map_or(0, |(percent, _)| percent);
        let obstacle = match &others {
            _ if !moves_on => None,
            Ok(others) => obstacle(percent, own.age, others, state.longest),
            Err(reason) => Some(Obstacle::Untold(reason.clone())),
        };
        let moved = if moves_on && obstacle.is_none() { percent } else { own.moved };
        if let Ok(others) = others {
            let charges_both = others.iter().any(|other| other.moved < moved);
            self.charges_both.store(charges_both, Ordering::Relaxed);
        }
        if !moves_on {
            return;
        }
        let is_new = state.obstacle.as_ref().map(std::mem::discriminant)
            != obstacle.as_ref().map(std::mem::discriminant);
        match &obstacle {
            None => {
                self.store(percent, percent);
                tracing::info!(percent, mode = ?MoveMode::Move, "callers move to the next store");
            }
            Some(obstacle) => {
                if self.reminders.take(now) || is_new {
                    tracing::warn!(percent, %obstacle, "callers are mirrored, and not moved yet");
                }
            }
        }
        state.obstacle = obstacle;
    }

    /// How many of a hundred callers are charged in the next store, and for how many it decides.
    fn shares(&self) -> (u8, u8) {
        let [charged, moved] = self.shares.load(Ordering::Relaxed).to_le_bytes();
        (charged, moved)
    }

    fn store(&self, charged: u8, moved: u8) {
        self.shares.store(u16::from_le_bytes([charged, moved]), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What keeps a proxy that has charged the next store for so long from moving so many callers. Where
/// others have moved them, the time was waited for.
fn obstacle(
    percent: u8,
    age: Duration,
    others: &[Announcement],
    longest: Duration,
) -> Option<Obstacle> {
    let behind = others.iter().filter(|other| other.charged < percent).count();
    if behind > 0 {
        return Some(Obstacle::Behind(behind));
    }
    if others.is_empty() || others.iter().any(|other| other.moved >= percent) {
        return None;
    }
    let youngest = others.iter().map(|other| other.age).fold(age, Duration::min);
    match longest {
        Duration::MAX => Some(Obstacle::Recent(Duration::MAX)),
        longest => Some(longest.saturating_sub(youngest))
            .filter(|left| !left.is_zero())
            .map(Obstacle::Recent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::KeyHasher;

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

    fn owner(number: u32) -> u128 {
        KeyHasher::new([7; 16]).hash([(b'u', number.to_le_bytes().as_slice())])
    }

    fn other(charged: u8, moved: u8, age: Duration) -> Announcement {
        Announcement { charged, moved, age }
    }

    fn to_move(percent: u8) -> Move {
        let plan = Move::new(None);
        plan.set_longest(HOUR);
        assert!(!plan.set(percent, MoveMode::Move));
        plan.announcement(NOW);
        plan
    }

    #[test]
    fn share_of_callers_is_what_the_settings_say_and_always_the_same() {
        let plan = Move::new(None);
        plan.set(10, MoveMode::MoveNow);
        let is_moved = |number: &u32| plan.of(owner(*number)) == Some(Way::Moved);
        let tenth: Vec<u32> = (0..100_000).filter(is_moved).collect();
        assert!((9_500..10_500).contains(&tenth.len()), "{}", tenth.len());

        plan.set(20, MoveMode::MoveNow);
        assert!(tenth.iter().all(is_moved), "who was moved stays moved");
        plan.set(100, MoveMode::Mirror);
        assert!((0..1000).all(|number| plan.of(owner(number)) == Some(Way::Mirrored)));
        plan.set(0, MoveMode::MoveNow);
        assert!((0..1000).all(|number| plan.of(owner(number)).is_none()));
    }

    #[test]
    fn callers_are_mirrored_until_every_proxy_has_mirrored_them_for_long_enough() {
        let plan = to_move(50);
        assert_eq!((plan.moved(), plan.obstacle()), (0, Some(Obstacle::Unseen)));
        for (others, expected) in [
            (Err("it is away".to_owned()), Obstacle::Untold("it is away".to_owned())),
            (Ok(vec![other(0, 0, HOUR), other(40, 40, HOUR)]), Obstacle::Behind(2)),
            (Ok(vec![other(50, 0, HOUR), other(49, 0, HOUR)]), Obstacle::Behind(1)),
            (Ok(vec![other(50, 0, HOUR / 4)]), Obstacle::Recent(HOUR / 2)),
        ] {
            let others = others.as_deref().map_err(String::clone);
            plan.hear(others, NOW + HOUR / 2 * u32::from(matches!(expected, Obstacle::Recent(_))));
            let found = plan.obstacle();
            match expected {
                // The other one has done it for a shorter time.
                Obstacle::Recent(_) => assert_eq!(found, Some(Obstacle::Recent(HOUR * 3 / 4))),
                expected => assert_eq!(found, Some(expected)),
            }
            assert_eq!(plan.moved(), 0);
        }
        plan.hear(Ok(&[other(50, 0, 2 * HOUR)]), NOW + HOUR);
        assert_eq!((plan.moved(), plan.obstacle()), (50, None));
        assert!(plan.charges_both(), "the other one decides by the present store");
        plan.hear(Ok(&[other(50, 50, 2 * HOUR)]), NOW + HOUR);
        assert!(!plan.charges_both());
    }

    #[test]
    fn proxy_that_is_alone_or_comes_late_waits_for_no_window() {
        for others in [vec![], vec![other(50, 50, HOUR)]] {
            let plan = to_move(50);
            plan.hear(Ok(&others), NOW);
            assert_eq!((plan.moved(), plan.obstacle()), (50, None), "{others:?}");
            assert!(!plan.charges_both());
        }
    }

    #[test]
    fn callers_who_are_moved_stay_so_while_more_are_to_be() {
        let plan = to_move(10);
        plan.hear(Ok(&[]), NOW);
        assert!(!plan.set(30, MoveMode::Move));
        let ways = |way| (0..1000).filter(|number| plan.of(owner(*number)) == Some(way)).count();
        assert!((60..150).contains(&ways(Way::Moved)), "{}", ways(Way::Moved));
        assert!((150..250).contains(&ways(Way::Mirrored)), "{}", ways(Way::Mirrored));
        // Others who begin to differ do not send them back.
        plan.hear(Ok(&[other(0, 0, HOUR)]), NOW);
        assert_eq!((plan.moved(), plan.obstacle()), (10, Some(Obstacle::Behind(1))));
        assert!(plan.charges_both());
        assert!(plan.set(5, MoveMode::Move));
        assert!(plan.set(30, MoveMode::MoveNow));
        assert_eq!(plan.moved(), 30);
    }
}
