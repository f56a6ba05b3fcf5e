//! The skew between this process' clock and a server's clock, and which of the two is in effect.
//!
//! Where counters go by the proxies' clocks (`clock: proxy`), two proxies whose clocks are further
//! apart than [`MAX_SKEW`] would take each other's writes for those of a wrong clock. So each
//! compares its clock with the server's: on connecting, before anything is decided, and again every
//! minute. A proxy whose clock is too far off goes by the server's clock until its own is right
//! again.
//!
//! A change of the clock admits nothing extra: two clocks that may both be in effect are never
//! further apart than counters tolerate.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU8, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redis::{RedisError, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, sleep, timeout};
use tollgate_clock::{Clock, Timestamp};
use tollgate_limit::MAX_SKEW;
use tollgate_settings::{RedisAddress, StoreClock};

/// The skew from which it is logged, and below which it no longer counts.
const NOTABLE: Duration = Duration::from_secs(1);
const NO_LONGER_NOTABLE: Duration = Duration::from_millis(750);

/// A proxy that is further off goes by the server's clock. Two proxies within it, one ahead and one
/// behind, are still a second less apart than counters tolerate. That second covers the drift
/// between two measurements, their error, and the time that calls take.
const TOO_FAR: Duration = Duration::from_secs(2);

/// A proxy that goes by the server's clock goes by its own again below this.
const CLOSE_AGAIN: Duration = Duration::from_millis(1500);

const _: () = assert!(2 * TOO_FAR.as_millis() + 1000 <= MAX_SKEW.as_millis());

/// Time between two measurements.
const PERIOD: Duration = Duration::from_secs(60);

/// How often this process' clock is checked for having been set, and the smallest step that counts.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
const WAS_SET: Duration = Duration::from_millis(250);

/// A measurement whose reply took longer is too inexact.
const SLOWEST: Duration = Duration::from_millis(500);

/// The skew between this process' clock and the clocks of all servers, for all workers.
pub(crate) struct Clocks {
    clock: Clock,
    servers: Mutex<BTreeMap<String, Weak<ServerClock>>>,
}

/// The skew between this process' clock and the clock of one server.
pub(super) struct ServerClock {
    server: String,
    /// The clock that the settings choose.
    configured: StoreClock,
    clock: Clock,
    /// By how many microseconds this process' clock is ahead; [`UNKNOWN`] until it was measured.
    ahead: AtomicI64,
    level: AtomicU8,
}

/// The skew was not measured.
const UNKNOWN: i64 = i64::MIN;

/// How large a skew is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum SkewLevel {
    /// It was not measured yet.
    Unmeasured,
    /// It cannot be measured.
    Unmeasurable,
    /// Too small to matter.
    Close,
    /// It is logged, and does no harm.
    Apart,
    /// The server's clock is in effect.
    TooFar,
}

/// The skew between this process' clock and a server's clock, for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Skew {
    /// The server: `host:port`.
    pub server: String,
    /// By how many microseconds this process' clock is ahead.
    pub ahead_micros: i64,
    /// The clock that is in effect.
    pub clock: StoreClock,
    /// Whether that is the server's clock only because this process' clock is too far off.
    pub is_overruled: bool,
}

impl Skew {
    /// By how many seconds this process' clock is ahead.
    pub fn ahead_seconds(&self) -> f64 {
        self.ahead_micros as f64 / 1e6
    }
}

impl Clocks {
    /// No skew is known yet.
    pub(crate) fn new(clock: Clock) -> Clocks {
        Clocks { clock, servers: Mutex::default() }
    }

    /// The skew to a server whose counters are to go by the clock `configured`. All workers share
    /// it.
    pub(super) fn server_clock(
        &self,
        server: &RedisAddress,
        configured: StoreClock,
    ) -> Arc<ServerClock> {
        let mut servers = self.servers.lock();
        let name = server.name();
        // A server may be in two stores, with different clocks.
        let key = format!("{name} {configured:?}");
        if let Some(known) = servers.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let level = match self.clock.goes() {
            true => SkewLevel::Unmeasured,
            // A clock that is set by hand is right by definition.
            false => SkewLevel::Unmeasurable,
        };
        let new = Arc::new(ServerClock {
            server: name,
            configured,
            clock: self.clock.clone(),
            ahead: AtomicI64::new(UNKNOWN),
            level: AtomicU8::new(level as u8),
        });
        servers.retain(|_, server| server.strong_count() > 0);
        servers.insert(key, Arc::downgrade(&new));
        new
    }

    /// The present instant, some time after `then`.
    pub(super) fn since(&self, then: Timestamp) -> Timestamp {
        match self.clock.goes() {
            true => self.clock.now(),
            // A clock that is set by hand has not moved on by itself.
            false => then,
        }
    }

    /// All skews that are known, by server. For a server in two stores, that of the store which is
    /// to go by this process' clock.
    pub(crate) fn all(&self) -> Vec<Skew> {
        let servers = self.servers.lock();
        let known = servers.values().filter_map(Weak::upgrade);
        let mut skews: Vec<Skew> = known.filter_map(|server| server.skew()).collect();
        // `Proxy` comes before `Redis` in the names of the map.
        skews.dedup_by(|next, first| next.server == first.server);
        skews
    }
}

impl ServerClock {
    /// The clock that is in effect on this server: the server's, until the skew is known.
    pub(super) fn in_effect(&self) -> StoreClock {
        match (self.configured, self.level()) {
            (StoreClock::Proxy, SkewLevel::Unmeasured | SkewLevel::TooFar) => StoreClock::Redis,
            (configured, _) => configured,
        }
    }

    /// What the server's clock says when this process' clock says `now`, as far as the skew is
    /// known.
    pub(super) fn at_server(&self, now: Timestamp) -> Timestamp {
        match self.ahead.load(Ordering::Relaxed) {
            UNKNOWN => now,
            ahead => now.saturating_add_signed(ahead.saturating_neg()),
        }
    }

    /// Measures the skew. Returns whether no other attempt is needed soon.
    ///
    /// # Errors
    /// The connection has broken.
    pub(super) async fn measure(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<bool, RedisError> {
        if !self.clock.goes() {
            return Ok(true);
        }
        let queried = Instant::now();
        let before = self.clock.now();
        let time = redis::cmd("TIME");
        let Ok(reply) = timeout(SLOWEST, connection.send_packed_command(&time)).await else {
            return Ok(false);
        };
        let reply = reply?;
        if let Value::ServerError(error) = &reply {
            self.mark_unmeasurable(error.code() == "NOPERM");
            return Ok(true);
        }
        let measured = read_time(reply);
        if let Some(server) = measured {
            // The server has read its clock about half-way.
            self.learn(before + queried.elapsed() / 2, server);
        }
        Ok(measured.is_some())
    }

    /// Measures the skew again and again, as long as the connection lasts.
    pub(super) async fn keep_measuring(self: Arc<Self>, mut connection: MultiplexedConnection) {
        let mut is_measured = self.level() != SkewLevel::Unmeasured;
        while self.clock.goes() {
            // After a measurement that failed, the next one follows soon.
            let period = if is_measured { PERIOD } else { CHECK_PAUSE };
            let begun = Instant::now();
            let at = self.clock.now();
            let was_set = || {
                let expected = at + begun.elapsed();
                let differs = expected.as_micros().abs_diff(self.clock.now().as_micros());
                u128::from(differs) > WAS_SET.as_micros()
            };
            while begun.elapsed() < period && !was_set() {
                sleep(CHECK_PAUSE).await;
            }
            let Ok(measured) = self.measure(&mut connection).await else { return };
            is_measured = measured;
        }
    }

    fn learn(&self, here: Timestamp, server: Timestamp) {
        let ahead = here.as_micros() as i64 - server.as_micros() as i64;
        self.ahead.store(ahead, Ordering::Relaxed);
        let after = self.level().after(Duration::from_micros(ahead.unsigned_abs()));
        // Of several workers that notice a change, one logs it.
        let before = SkewLevel::of(self.level.swap(after as u8, Ordering::Relaxed));
        if self.configured == StoreClock::Proxy && before != after {
            self.log_change(before, after, ahead as f64 / 1e6);
        }
    }

    /// The server does not report its time. Sentinels do not have `TIME`, and take no charges; only
    /// a missing permission is logged.
    fn mark_unmeasurable(&self, should_log: bool) {
        let before = self.level.swap(SkewLevel::Unmeasurable as u8, Ordering::Relaxed);
        self.ahead.store(UNKNOWN, Ordering::Relaxed);
        let is_new = before != SkewLevel::Unmeasurable as u8;
        if self.configured == StoreClock::Proxy && is_new && should_log {
            let server = &self.server;
            tracing::warn!(%server, "redis does not report its time: no clock is compared with it");
        }
    }

    fn log_change(&self, before: SkewLevel, after: SkewLevel, ahead_seconds: f64) {
        let server = &self.server;
        match (before, after) {
            (_, SkewLevel::TooFar) => tracing::warn!(
                %server,
                ahead_seconds,
                "this clock and redis' clock are too far apart: limits go by redis' clock for now"
            ),
            (SkewLevel::TooFar, _) => tracing::info!(
                %server,
                ahead_seconds,
                "this clock and redis' clock are close again: limits go by this clock"
            ),
            (_, SkewLevel::Apart) => {
                tracing::warn!(%server, ahead_seconds, "this clock and redis' clock are apart");
            }
            (SkewLevel::Apart, _) => {
                tracing::info!(%server, ahead_seconds, "this clock and redis' clock agree again");
            }
            _ => {}
        }
    }

    fn skew(&self) -> Option<Skew> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != UNKNOWN).then(|| Skew {
            server: self.server.clone(),
            ahead_micros: ahead,
            clock: self.in_effect(),
            is_overruled: self.in_effect() != self.configured,
        })
    }

    fn level(&self) -> SkewLevel {
        SkewLevel::of(self.level.load(Ordering::Relaxed))
    }
}

impl SkewLevel {
    fn of(number: u8) -> SkewLevel {
        const ALL: [SkewLevel; 5] = [
            SkewLevel::Unmeasured,
            SkewLevel::Unmeasurable,
            SkewLevel::Close,
            SkewLevel::Apart,
            SkewLevel::TooFar,
        ];
        ALL.into_iter().find(|it| *it as u8 == number).unwrap_or(SkewLevel::Unmeasured)
    }

    /// The level after a skew was measured. A level is left at a smaller skew than it is entered
    /// at, so that a skew around a threshold is not logged again and again.
    fn after(self, skew: Duration) -> SkewLevel {
        let (too_far, notable) = match self {
            SkewLevel::TooFar => (CLOSE_AGAIN, NO_LONGER_NOTABLE),
            SkewLevel::Apart => (TOO_FAR, NO_LONGER_NOTABLE),
            SkewLevel::Unmeasured | SkewLevel::Unmeasurable | SkewLevel::Close => {
                (TOO_FAR, NOTABLE)
            }
        };
        if skew > too_far {
            SkewLevel::TooFar
        } else if skew > notable {
            SkewLevel::Apart
        } else {
            SkewLevel::Close
        }
    }
}

/// The instant in a reply to `TIME`: seconds, and microseconds of the second.
fn read_time(reply: Value) -> Option<Timestamp> {
    let (seconds, micros) = redis::from_redis_value::<(u64, u64)>(reply).ok()?;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_around_a_threshold_does_not_change_the_level_again_and_again() {
        let mut level = SkewLevel::Unmeasured;
        for (millis, expected) in [
            (900, SkewLevel::Close),
            (1001, SkewLevel::Apart),
            (800, SkewLevel::Apart),
            (2000, SkewLevel::Apart),
            (2001, SkewLevel::TooFar),
            (1600, SkewLevel::TooFar),
            (60_000, SkewLevel::TooFar),
            (1500, SkewLevel::Apart),
            (1900, SkewLevel::Apart),
            (750, SkewLevel::Close),
            (1000, SkewLevel::Close),
        ] {
            level = level.after(Duration::from_millis(millis));
            assert_eq!(level, expected, "at {millis} ms");
        }
    }

    #[test]
    fn servers_clock_counts_until_the_skew_is_known_and_while_it_is_large() {
        let clocks = Clocks::new(Clock::System);
        let clock = clocks.server_clock(&RedisAddress::new("10.0.0.1", 6379), StoreClock::Proxy);
        assert_eq!((clock.in_effect(), clocks.all()), (StoreClock::Redis, Vec::new()));
        let server = Timestamp::from_secs(1_790_000_000);
        for (seconds, expected) in
            [(0, StoreClock::Proxy), (3, StoreClock::Redis), (1, StoreClock::Proxy)]
        {
            let here = server + Duration::from_secs(seconds);
            clock.learn(here, server);
            assert_eq!(clock.in_effect(), expected, "{seconds} s ahead");
            assert_eq!(clock.at_server(here), server);
        }
        clock.learn(server, server + Duration::from_secs(60));
        let skews = clocks.all();
        assert_eq!((skews.len(), skews[0].ahead_micros), (1, -60_000_000));
        assert!(skews[0].is_overruled);
        clock.mark_unmeasurable(true);
        assert_eq!((clock.in_effect(), clocks.all()), (StoreClock::Proxy, Vec::new()));
        drop(clock);
        assert!(clocks.all().is_empty());
    }

    #[test]
    fn manual_clock_is_not_compared() {
        let clocks = Clocks::new(Clock::Manual(Arc::default()));
        let clock = clocks.server_clock(&RedisAddress::new("10.0.0.1", 6379), StoreClock::Proxy);
        assert_eq!(clock.in_effect(), StoreClock::Proxy);
    }

    #[test]
    fn replies_without_a_time_are_refused() {
        let text = |text: &str| Value::BulkString(text.into());
        let time = Value::Array(vec![text("1790000000"), text("250000")]);
        assert_eq!(read_time(time), Some(Timestamp::from_micros(1_790_000_000_250_000)));
        for reply in [Value::Okay, Value::Array(vec![text("1")]), Value::Int(7)] {
            assert_eq!(read_time(reply.clone()), None, "{reply:?}");
        }
    }
}
