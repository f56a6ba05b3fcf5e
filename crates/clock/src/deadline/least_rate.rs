//! A least average rate at which a client has to send what is asked of it, or to take what it asked
//! for.
//!
//! A pause is bounded by a timeout, but a byte before each timeout would hold a connection for
//! ever. So the time for which a client was waited for adds up, and bytes make up for it. Time in
//! which nothing was asked of the client does not count: the upstream may be slow for as long as it
//! likes.
//!
//! What bytes make up for is never more than what there was: a client that has sent much may not
//! pause for hours after that.

use std::{num::NonZeroU32, time::Duration};

use super::{TICK, ticks};

/// What is asked of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastRate {
    /// Bytes a second.
    pub bytes: NonZeroU32,
    /// For how long a client may be waited for beyond that.
    pub grace: Duration,
}

/// How far a client is behind a [`LeastRate`]: bytes that should have come while it was waited for,
/// in parts of which a second has as many as it has ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrears(u64);

/// Ticks of a second.
const TICKS: u64 = 1000 / TICK.as_millis() as u64;

impl LeastRate {
    /// Arrears that are too large.
    fn most(&self) -> u64 {
        self.a_tick().saturating_mul(ticks(self.grace).max(1).into())
    }

    fn a_tick(&self) -> u64 {
        self.bytes.get().into()
    }
}

impl Arrears {
    /// It was waited for this client for so many ticks.
    pub fn wait(&mut self, ticks: u32, rate: &LeastRate) {
        self.0 = self.0.saturating_add(rate.a_tick().saturating_mul(ticks.into()));
    }

    /// So many bytes have come, or were taken.
    pub fn pay(&mut self, bytes: u64) {
        self.0 = self.0.saturating_sub(bytes.saturating_mul(TICKS));
    }

    /// For how long the client may be waited for, if no byte comes meanwhile.
    pub fn left(&self, rate: &LeastRate) -> Duration {
        let ticks = rate.most().saturating_sub(self.0).div_ceil(rate.a_tick());
        TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bytes: u32, grace: Duration) -> LeastRate {
        LeastRate { bytes: NonZeroU32::new(bytes).unwrap(), grace }
    }

    const GRACE: Duration = Duration::from_secs(2);

    #[test]
    fn grace_is_used_up_by_waiting_and_earned_again_by_bytes() {
        let rate = rate(100, GRACE);
        let mut arrears = Arrears::default();
        assert_eq!(arrears.left(&rate), GRACE);
        arrears.wait(5, &rate);
        assert_eq!(arrears.left(&rate), Duration::from_millis(1500));
        // A hundred bytes are worth a second.
        arrears.pay(20);
        assert_eq!(arrears.left(&rate), Duration::from_millis(1700));
        arrears.pay(1_000_000);
        assert_eq!(arrears.left(&rate), GRACE);
        arrears.wait(20, &rate);
        assert_eq!(arrears.left(&rate), Duration::ZERO);
        arrears.wait(u32::MAX, &rate);
        assert_eq!(arrears.left(&rate), Duration::ZERO);
    }

    #[test]
    fn client_at_the_rate_is_never_late_and_one_below_always_is() {
        for (bytes_a_tick, is_late) in [(10, false), (11, false), (9, true)] {
            let rate = rate(100, GRACE);
            let mut arrears = Arrears::default();
            let was_late = (0..10_000).any(|_| {
                arrears.wait(1, &rate);
                let is_late = arrears.left(&rate).is_zero();
                arrears.pay(bytes_a_tick);
                is_late
            });
            assert_eq!(was_late, is_late, "{bytes_a_tick} bytes a tick");
        }
    }
}
