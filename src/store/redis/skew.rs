//! How far this process' clock and a server's are apart, and which of the two counts.
//!
//! Where counters go by the proxies' clocks (`clock: proxy`), two proxies whose clocks are further
//! apart than [`MAX_SKEW`] take what the other one writes for the work of a wrong clock. So each
//! compares its clock with the server's: when it connects, before anything is decided, and again from
//! time to time. One that is too far off counts by the server's clock until it is right again.
//!
//! Changing the clock gives nothing away: two clocks that may both be in use are never further apart
//! than what counters bear.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicI64, AtomicU8, Ordering},
    },
    time::Duration,
};

use redis::{RedisError, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    clock::{Clock, Timestamp},
    limit::MAX_SKEW,
    settings::{Endpoint, StoreClock},
};

/// A skew that the log tells of, and one that is none any more.
const NOTABLE: Duration = Duration::from_secs(1);
const NO_LONGER_NOTABLE: Duration = Duration::from_millis(750);

/// A proxy that is further off counts by the server's clock: two that are not, one of them ahead and
/// one behind, are still a second less apart than counters bear. That second is for what a clock does
/// between two measurements, for how exact these are, and for calls that are on their way for a while.
const TOO_FAR: Duration = Duration::from_secs(2);

/// A proxy that has counted by the server's clock goes back to its own from here on.
const CLOSE_AGAIN: Duration = Duration::from_millis(1500);

const _: () = assert!(2 * TOO_FAR.as_millis() + 1000 <= MAX_SKEW.as_millis());

/// How often clocks are compared.
const PERIOD: Duration = Duration::from_secs(60);

/// How often it is looked whether this process' clock was set meanwhile, and how much that is.
const LOOK: Duration = Duration::from_secs(1);
const WAS_SET: Duration = Duration::from_millis(250);

/// A reply that took longer says too little about when it was made.
const SLOWEST: Duration = Duration::from_millis(500);

/// This process' clock beside those of all servers, for all workers.
pub(in crate::store) struct Clocks {
    clock: Clock,
    servers: Mutex<BTreeMap<String, Weak<ServerClock>>>,
}

/// This process' clock beside that of one server.
pub(super) struct ServerClock {
    server: String,
    /// Of the two clocks, the one that is to count.
    counts: StoreClock,
    clock: Clock,
    /// By how many microseconds this process' clock is ahead; [`UNKNOWN`] until it was measured.
    ahead: AtomicI64,
    standing: AtomicU8,
}

/// No skew.
const UNKNOWN: i64 = i64::MIN;

/// What is made of a skew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Standing {
    /// It was not measured yet.
    Unmeasured,
    /// It cannot be measured.
    Unmeasurable,
    /// There is none to speak of.
    Close,
    /// It is told, and harmless.
    Apart,
    /// The server's clock counts.
    TooFar,
}

/// How far this process' clock and a server's are apart, for who looks after them.
#[derive(Clone, Debug, PartialEq)]
pub struct Skew {
    /// The server: `host:port`.
    pub server: String,
    /// By how many microseconds this process' clock is ahead.
    pub ahead_micros: i64,
    /// Whose time counts there.
    pub clock: StoreClock,
    /// Whether that is the server's only because this process' clock is too far off.
    pub is_overruled: bool,
}

impl Skew {
    /// By how many seconds this process' clock is ahead.
    pub fn ahead_seconds(&self) -> f64 {
        self.ahead_micros as f64 / 1e6
    }
}

impl Clocks {
    /// Nothing was measured yet.
    pub(in crate::store) fn new(clock: Clock) -> Clocks {
        Clocks { clock, servers: Mutex::default() }
    }

    /// The clock beside that of a server, whose counters go by `counts`. All workers have the same.
    pub(super) fn beside(&self, server: &Endpoint, counts: StoreClock) -> Arc<ServerClock> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = server.name();
        // A server may be in two stores; there is one skew, and one clock that counts in each.
        let key = format!("{name} {counts:?}");
        if let Some(known) = servers.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let standing = match self.clock.goes() {
            true => Standing::Unmeasured,
            // One that is moved by hand is right by definition.
            false => Standing::Unmeasurable,
        };
        let new = Arc::new(ServerClock {
            server: name,
            counts,
            clock: self.clock.clone(),
            ahead: AtomicI64::new(UNKNOWN),
            standing: AtomicU8::new(standing as u8),
        });
        servers.retain(|_, server| server.strong_count() > 0);
        servers.insert(key, Arc::downgrade(&new));
        new
    }

    /// The present instant, a while after `then`.
    pub(super) fn since(&self, then: Timestamp) -> Timestamp {
        match self.clock.goes() {
            true => self.clock.now(),
            // One that is moved by hand stands still as far as stores can tell.
            false => then,
        }
    }

    /// All skews that are known, by server. Of one that is in two stores, that of the store which is
    /// to count by this clock.
    pub(in crate::store) fn all(&self) -> Vec<Skew> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = servers.values().filter_map(Weak::upgrade);
        let mut skews: Vec<Skew> = known.filter_map(|server| server.skew()).collect();
        // `Proxy` comes before `Redis` in the names of the map.
        skews.dedup_by(|next, first| next.server == first.server);
        skews
    }
}

impl ServerClock {
    /// Whose time counts on this server now. Until it is known how far the clocks are apart, the
    /// server's does.
    pub(super) fn counts(&self) -> StoreClock {
        match (self.counts, self.standing()) {
            (StoreClock::Proxy, Standing::Unmeasured | Standing::TooFar) => StoreClock::Redis,
            (counts, _) => counts,
        }
    }

    /// What the server's clock says when this process' says `now`, as far as that is known.
    pub(super) fn at_server(&self, now: Timestamp) -> Timestamp {
        match self.ahead.load(Ordering::Relaxed) {
            UNKNOWN => now,
            ahead => now.saturating_add_signed(ahead.saturating_neg()),
        }
    }

    /// Asks the server for its time. True: it has told, or never will.
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
        let (asked, before) = (Instant::now(), self.clock.now());
        let time = redis::cmd("TIME");
        let Ok(reply) = timeout(SLOWEST, connection.send_packed_command(&time)).await else {
            return Ok(false);
        };
        let reply = reply?;
        if let Value::ServerError(error) = &reply {
            self.give_up(error.code() == "NOPERM");
            return Ok(true);
        }
        let told = read_time(reply);
        if let Some(server) = told {
            // It has looked at its clock about half-way.
            self.learn(before + asked.elapsed() / 2, server);
        }
        Ok(told.is_some())
    }

    /// Goes on comparing the clocks, for as long as the connection lasts.
    pub(super) async fn keep_measuring(self: Arc<Self>, mut connection: MultiplexedConnection) {
        let mut is_told = self.standing() != Standing::Unmeasured;
        while self.clock.goes() {
            // One that could not tell in time is asked again soon.
            let period = if is_told { PERIOD } else { LOOK };
            let (begun, at) = (Instant::now(), self.clock.now());
            let was_set = || {
                let expected = at + begun.elapsed();
                let differs = expected.as_micros().abs_diff(self.clock.now().as_micros());
                u128::from(differs) > WAS_SET.as_micros()
            };
            while begun.elapsed() < period && !was_set() {
                sleep(LOOK).await;
            }
            let Ok(told) = self.measure(&mut connection).await else { return };
            is_told = told;
        }
    }

    fn learn(&self, here: Timestamp, server: Timestamp) {
        let ahead = here.as_micros() as i64 - server.as_micros() as i64;
        self.ahead.store(ahead, Ordering::Relaxed);
        let after = self.standing().after(Duration::from_micros(ahead.unsigned_abs()));
        // Of several workers that find out, one tells.
        let before = Standing::of(self.standing.swap(after as u8, Ordering::Relaxed));
        if self.counts == StoreClock::Proxy && before != after {
            self.tell(before, after, ahead as f64 / 1e6);
        }
    }

    /// The server does not tell what time it is: there is nothing to compare with. Sentinels have no
    /// such command, and nothing to be charged; only a right that is missing is worth a line.
    fn give_up(&self, is_worth_telling: bool) {
        let before = self.standing.swap(Standing::Unmeasurable as u8, Ordering::Relaxed);
        self.ahead.store(UNKNOWN, Ordering::Relaxed);
        let is_new = before != Standing::Unmeasurable as u8;
        if self.counts == StoreClock::Proxy && is_new && is_worth_telling {
            let server = &self.server;
            tracing::warn!(%server, "redis does not tell its time: no clock is compared with it");
        }
    }

    fn tell(&self, before: Standing, after: Standing, ahead_seconds: f64) {
        let server = &self.server;
        match (before, after) {
            (_, Standing::TooFar) => tracing::warn!(
                %server,
                ahead_seconds,
                "this clock and redis' are too far apart: limits go by redis' clock until they are not"
            ),
            (Standing::TooFar, _) => tracing::info!(
                %server,
                ahead_seconds,
                "this clock and redis' are close again: limits go by this clock"
            ),
            (_, Standing::Apart) => {
                tracing::warn!(%server, ahead_seconds, "this clock and redis' are apart");
            }
            (Standing::Apart, _) => {
                tracing::info!(%server, ahead_seconds, "this clock and redis' agree again");
            }
            _ => {}
        }
    }

    fn skew(&self) -> Option<Skew> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != UNKNOWN).then(|| Skew {
            server: self.server.clone(),
            ahead_micros: ahead,
            clock: self.counts(),
            is_overruled: self.counts() != self.counts,
        })
    }

    fn standing(&self) -> Standing {
        Standing::of(self.standing.load(Ordering::Relaxed))
    }
}

impl Standing {
    fn of(number: u8) -> Standing {
        const ALL: [Standing; 5] = [
            Standing::Unmeasured,
            Standing::Unmeasurable,
            Standing::Close,
            Standing::Apart,
            Standing::TooFar,
        ];
        ALL.into_iter().find(|it| *it as u8 == number).unwrap_or(Standing::Unmeasured)
    }

    /// What is made of a skew after this. It takes less of one to stay than to come, so that a clock
    /// that is about as far off as matters is not told of again and again.
    fn after(self, skew: Duration) -> Standing {
        let (too_far, notable) = match self {
            Standing::TooFar => (CLOSE_AGAIN, NO_LONGER_NOTABLE),
            Standing::Apart => (TOO_FAR, NO_LONGER_NOTABLE),
            Standing::Unmeasured | Standing::Unmeasurable | Standing::Close => (TOO_FAR, NOTABLE),
        };
        if skew > too_far {
            Standing::TooFar
        } else if skew > notable {
            Standing::Apart
        } else {
            Standing::Close
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
    fn clock_that_is_about_as_far_off_as_matters_is_not_changed_again_and_again() {
        let mut standing = Standing::Unmeasured;
        for (millis, expected) in [
            (900, Standing::Close),
            (1001, Standing::Apart),
            (800, Standing::Apart),
            (2000, Standing::Apart),
            (2001, Standing::TooFar),
            (1600, Standing::TooFar),
            (60_000, Standing::TooFar),
            (1500, Standing::Apart),
            (1900, Standing::Apart),
            (750, Standing::Close),
            (1000, Standing::Close),
        ] {
            standing = standing.after(Duration::from_millis(millis));
            assert_eq!(standing, expected, "at {millis} ms");
        }
    }

    #[test]
    fn servers_clock_counts_until_the_skew_is_known_and_while_it_is_large() {
        let clocks = Clocks::new(Clock::System);
        let clock = clocks.beside(&Endpoint::new("10.0.0.1", 6379), StoreClock::Proxy);
        assert_eq!((clock.counts(), clocks.all()), (StoreClock::Redis, Vec::new()));
        let server = Timestamp::from_secs(1_790_000_000);
        for (seconds, expected) in
            [(0, StoreClock::Proxy), (3, StoreClock::Redis), (1, StoreClock::Proxy)]
        {
            let here = server + Duration::from_secs(seconds);
            clock.learn(here, server);
            assert_eq!(clock.counts(), expected, "{seconds} s ahead");
            assert_eq!(clock.at_server(here), server);
        }
        clock.learn(server, server + Duration::from_secs(60));
        let skews = clocks.all();
        assert_eq!((skews.len(), skews[0].ahead_micros), (1, -60_000_000));
        assert!(skews[0].is_overruled);
        clock.give_up(true);
        assert_eq!((clock.counts(), clocks.all()), (StoreClock::Proxy, Vec::new()));
        drop(clock);
        assert!(clocks.all().is_empty());
    }

    #[test]
    fn clock_that_is_moved_by_hand_is_compared_with_none() {
        let clocks = Clocks::new(Clock::Manual(Arc::default()));
        let clock = clocks.beside(&Endpoint::new("10.0.0.1", 6379), StoreClock::Proxy);
        assert_eq!(clock.counts(), StoreClock::Proxy);
    }

    #[test]
    fn replies_that_are_no_time_are_none() {
        let text = |text: &str| Value::BulkString(text.into());
        let time = Value::Array(vec![text("1790000000"), text("250000")]);
        assert_eq!(read_time(time), Some(Timestamp::from_micros(1_790_000_000_250_000)));
        for reply in [Value::Okay, Value::Array(vec![text("1")]), Value::Int(7)] {
            assert_eq!(read_time(reply.clone()), None, "{reply:?}");
        }
    }
}
