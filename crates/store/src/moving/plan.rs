//! Which callers are in the next store, and whether that store decides about them.
//!
//! Proxies that share a store must not let different stores decide about one caller: it would get
//! its limit twice. So mode `move` begins as `mirror`, until every other proxy that announces
//! itself charges the next store too, and has done so for as long as the longest window: then both
//! stores have counted the same.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tollgate_clock::{Throttle, Timestamp};
use tollgate_settings::{MoveMode, Moving};

/// Time between two lines in the log about the same obstacle.
const REMINDER: Duration = Duration::from_secs(60);

/// Which callers are in the next store. It changes while requests are served.
#[derive(Debug)]
pub struct Move {
    /// The percentage of callers that are charged there, and of those that it decides: one number,
    /// so that both are always read together.
    percentages: AtomicU16,
    /// How often that was changed.
    changes: AtomicU32,
    /// Whether callers who are moved are charged in the current store too, because other proxies
    /// let it decide.
    charges_both: AtomicBool,
    state: Mutex<State>,
    reminders: Throttle,
}

/// Percentages of callers in the next store.
struct Percentages {
    /// Callers that are charged there.
    charged: u8,
    /// Callers that it decides.
    moved: u8,
}

#[derive(Debug, Default)]
struct State {
    /// The percentage and mode that were set last; none if there never was a move.
    wanted: Option<(u8, MoveMode)>,
    /// Since when so many callers are charged in the next store; none: it is not known yet.
    since: Option<Timestamp>,
    /// The longest time for which a charged unit counts.
    longest: Duration,
    obstacle: Option<Obstacle>,
}

/// How the next store treats an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveState {
    /// It is charged as well.
    Mirrored,
    /// It decides.
    Moved,
}

/// What a proxy announces to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// The percentage of callers that are charged in its next store.
    pub(crate) charged: u8,
    /// The percentage of callers that its next store decides.
    pub(crate) moved: u8,
    /// For how long so many callers have been charged there.
    pub(crate) age: Duration,
}

/// Why callers are still mirrored who are to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not known yet which other proxies there are.
    Unknown,
    /// Redis does not report which other proxies there are, for this reason.
    NotReported(String),
    /// This number of other proxies do not charge the next store for as many callers.
    Behind(usize),
    /// A proxy has not charged the next store for long enough: this much time is left.
    Recent(Duration),
}

impl Obstacle {
    /// How many seconds it lasts at least, if that is known.
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
            Obstacle::Unknown => f.write_str("it is not known yet which other proxies there are"),
            Obstacle::NotReported(reason) => {
                write!(f, "redis does not report which other proxies there are: {reason}")
            }

            Obstacle::Behind(1) => {
                f.write_str("1 other proxy does not charge the next store for as many callers")
            }
            Obstacle::Behind(proxies) => write!(
                f,
                "{proxies} other proxies do not charge the next store for as many callers"
            ),
            Obstacle::Recent(Duration::MAX) => f.write_str(
                "a limit counts without an end, and the next store lacks earlier counts",
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
            percentages: AtomicU16::new(0),
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

    /// Sets the percentage of callers in the next store, and the mode. Returns whether that is in
    /// force at once: callers who are to be moved may have to be mirrored first, except those who
    /// are moved already.
    pub fn set(&self, percent: u8, mode: MoveMode) -> bool {
        let mut state = self.state.lock();
        let Percentages { charged, moved } = self.percentages();
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
        state.obstacle = (!is_done).then_some(Obstacle::Unknown);
        self.store(percent, moved);
        is_done
    }

    /// Sets the longest time for which a charged unit counts, in the policies in force.
    pub fn set_longest(&self, longest: Duration) {
        self.state.lock().longest = longest;
    }

    /// The percentage and mode that were set last; none if there never was a move.
    pub fn plan(&self) -> Option<(u8, MoveMode)> {
        self.state.lock().wanted
    }

    /// The percentage of callers that the next store decides.
    pub fn moved(&self) -> u8 {
        self.percentages().moved
    }

    /// Why callers are still mirrored who are to be moved; none if all are moved.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.state.lock().obstacle.clone()
    }

    /// Whether the state of other proxies matters.
    pub(crate) fn needs_peers(&self) -> bool {
        self.moved() > 0 || self.state.lock().obstacle.is_some()
    }

    /// How often the plan was changed.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Whether callers who are moved are charged in the current store too.
    pub fn charges_both(&self) -> bool {
        self.charges_both.load(Ordering::Relaxed)
    }

    /// How the next store treats an owner; none if it does not have it.
    pub(crate) fn state_of(&self, owner: u128) -> Option<MoveState> {
        let Percentages { charged, moved } = self.percentages();
        let percentile = (u64::from((owner >> 16) as u32) * 100) >> 32;
        match percentile {
            percentile if percentile < u64::from(moved) => Some(MoveState::Moved),
            percentile if percentile < u64::from(charged) => Some(MoveState::Mirrored),
            _ => None,
        }
    }

    /// What this proxy announces.
    pub(crate) fn announcement(&self, now: Timestamp) -> Announcement {
        let Percentages { charged, moved } = self.percentages();
        let since = *self.state.lock().since.get_or_insert(now);
        Announcement { charged, moved, age: now.saturating_since(since) }
    }

    /// Updates the plan by the announcements of all other proxies, or the reason why they are not
    /// known.
    pub(crate) fn update(&self, peers: Result<&[Announcement], String>, now: Timestamp) {
        let own = self.announcement(now);
        let mut state = self.state.lock();
        let is_waiting = state.obstacle.is_some();
        let percent = state.wanted.map_or(0, |(percent, _)| percent);
        let obstacle = match &peers {
            _ if !is_waiting => None,
            Ok(peers) => obstacle(percent, own.age, peers, state.longest),
            Err(reason) => Some(Obstacle::NotReported(reason.clone())),
        };
        let moved = if is_waiting && obstacle.is_none() { percent } else { own.moved };
        if let Ok(peers) = peers {
            let charges_both = peers.iter().any(|peer| peer.moved < moved);
            self.charges_both.store(charges_both, Ordering::Relaxed);
        }
        if !is_waiting {
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

    fn percentages(&self) -> Percentages {
        let [charged, moved] = self.percentages.load(Ordering::Relaxed).to_le_bytes();
        Percentages { charged, moved }
    }

    fn store(&self, charged: u8, moved: u8) {
        self.percentages.store(u16::from_le_bytes([charged, moved]), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a proxy that has charged the next store for the time `age` may not move so many callers yet.
/// Where another proxy has moved them, that one has waited long enough.
fn obstacle(
    percent: u8,
    age: Duration,
    peers: &[Announcement],
    longest: Duration,
) -> Option<Obstacle> {
    let behind = peers.iter().filter(|peer| peer.charged < percent).count();
    if behind > 0 {
        return Some(Obstacle::Behind(behind));
    }
    if peers.is_empty() || peers.iter().any(|peer| peer.moved >= percent) {
        return None;
    }
    let youngest = peers.iter().map(|peer| peer.age).fold(age, Duration::min);
    match longest {
        Duration::MAX => Some(Obstacle::Recent(Duration::MAX)),
        longest => Some(longest.saturating_sub(youngest))
            .filter(|left| !left.is_zero())
            .map(Obstacle::Recent),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limit::KeyHasher;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

    fn owner(number: u32) -> u128 {
        KeyHasher::new([7; 16]).hash([(b'u', number.to_le_bytes().as_slice())])
    }

    fn peer(charged: u8, moved: u8, age: Duration) -> Announcement {
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
        let is_moved = |number: &u32| plan.state_of(owner(*number)) == Some(MoveState::Moved);
        let tenth: Vec<u32> = (0..100_000).filter(is_moved).collect();
        assert!((9_500..10_500).contains(&tenth.len()), "{}", tenth.len());

        plan.set(20, MoveMode::MoveNow);
        assert!(tenth.iter().all(is_moved), "moved callers stay moved");
        plan.set(100, MoveMode::Mirror);
        assert!((0..1000).all(|number| plan.state_of(owner(number)) == Some(MoveState::Mirrored)));
        plan.set(0, MoveMode::MoveNow);
        assert!((0..1000).all(|number| plan.state_of(owner(number)).is_none()));
    }

    #[test]
    fn callers_are_mirrored_until_every_proxy_has_mirrored_them_for_long_enough() {
        let plan = to_move(50);
        assert_eq!((plan.moved(), plan.obstacle()), (0, Some(Obstacle::Unknown)));
        for (peers, expected) in [
            (Err("it is away".to_owned()), Obstacle::NotReported("it is away".to_owned())),
            (Ok(vec![peer(0, 0, HOUR), peer(40, 40, HOUR)]), Obstacle::Behind(2)),
            (Ok(vec![peer(50, 0, HOUR), peer(49, 0, HOUR)]), Obstacle::Behind(1)),
            (Ok(vec![peer(50, 0, HOUR / 4)]), Obstacle::Recent(HOUR / 2)),
        ] {
            let peers = peers.as_deref().map_err(String::clone);
            plan.update(peers, NOW + HOUR / 2 * u32::from(matches!(expected, Obstacle::Recent(_))));
            let found = plan.obstacle();
            match expected {
                // The other proxy has done it for a shorter time.
                Obstacle::Recent(_) => assert_eq!(found, Some(Obstacle::Recent(HOUR * 3 / 4))),
                expected => assert_eq!(found, Some(expected)),
            }
            assert_eq!(plan.moved(), 0);
        }
        plan.update(Ok(&[peer(50, 0, 2 * HOUR)]), NOW + HOUR);
        assert_eq!((plan.moved(), plan.obstacle()), (50, None));
        assert!(plan.charges_both(), "the other one decides by the present store");
        plan.update(Ok(&[peer(50, 50, 2 * HOUR)]), NOW + HOUR);
        assert!(!plan.charges_both());
    }

    #[test]
    fn only_proxy_and_late_proxy_wait_for_no_window() {
        for others in [vec![], vec![peer(50, 50, HOUR)]] {
            let plan = to_move(50);
            plan.update(Ok(&others), NOW);
            assert_eq!((plan.moved(), plan.obstacle()), (50, None), "{others:?}");
            assert!(!plan.charges_both());
        }
    }

    #[test]
    fn moved_callers_stay_moved_while_more_are_to_be_moved() {
        let plan = to_move(10);
        plan.update(Ok(&[]), NOW);
        assert!(!plan.set(30, MoveMode::Move));
        let in_state =
            |state| (0..1000).filter(|number| plan.state_of(owner(*number)) == Some(state)).count();
        assert!((60..150).contains(&in_state(MoveState::Moved)), "{}", in_state(MoveState::Moved));
        assert!(
            (150..250).contains(&in_state(MoveState::Mirrored)),
            "{}",
            in_state(MoveState::Mirrored)
        );
        // Proxies that change their mode do not send callers back.
        plan.update(Ok(&[peer(0, 0, HOUR)]), NOW);
        assert_eq!((plan.moved(), plan.obstacle()), (10, Some(Obstacle::Behind(1))));
        assert!(plan.charges_both());
        assert!(plan.set(5, MoveMode::Move));
        assert!(plan.set(30, MoveMode::MoveNow));
        assert_eq!(plan.moved(), 30);
    }
}
