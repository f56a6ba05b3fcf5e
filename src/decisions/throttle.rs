//! `CL.THROTTLE`: the generic cell rate algorithm, with the replies of redis-cell.
//!
//! State is one instant, the theoretical arrival time (TAT), in nanoseconds as in the original, so
//! that its rounding is the same.

use tollgate_wire::resp::{Arguments, parse_integer};

/// A command, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    limit: i64,
    /// Nanoseconds that a unit takes: at least one.
    interval: i64,
    /// How far the TAT may lie ahead.
    tolerance: i64,
    /// By how much this request moves it.
    increment: i64,
}

/// What a command replies. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttled {
    pub(super) is_limited: bool,
    pub(super) limit: i64,
    pub(super) remaining: i64,
    /// None: it was allowed, or it never will be.
    pub(super) retry_after: Option<i64>,
    pub(super) reset_after: i64,
    /// The TAT to be stored; none: nothing has changed.
    pub(super) arrival: Option<i64>,
}

/// Why a command is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake<'i> {
    Usage,
    NotAnInteger(&'i [u8]),
    /// Less than one unit in a period, or more than one in a nanosecond.
    ZeroRate,
    NegativeQuantity,
    /// Nanoseconds would not fit into 64 bits.
    TooLarge,
}

impl<'i> Mistake<'i> {
    /// Its text: what stands before the argument that it is about, and that argument.
    pub(super) fn text(self) -> (&'static str, &'i [u8]) {
        match self {
            Mistake::Usage => (
                "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> \
                 <period> [<quantity>]",
                b"",
            ),
            Mistake::NotAnInteger(text) => {
                ("Cell error: Store error: Couldn't parse as integer: ", text)
            }
            Mistake::ZeroRate => ("Cell error: Store error: Zero rates are not supported", b""),
            Mistake::NegativeQuantity => {
                ("Cell error: Store error: Negative quantities are not supported", b"")
            }
            Mistake::TooLarge => {
                ("Cell error: Store error: Burst, period or quantity is too large", b"")
            }
        }
    }
}

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

impl Request {
    /// Reads what follows the name and the key.
    pub(super) fn parse<'i>(arguments: &Arguments<'i>) -> Result<Request, Mistake<'i>> {
        if !(5..=6).contains(&arguments.len()) {
            return Err(Mistake::Usage);
        }
        let integer = |place| {
            let text = arguments.at(place).unwrap_or_default();
            parse_integer(text).ok_or(Mistake::NotAnInteger(text))
        };
        let (burst, count, period) = (integer(2)?, integer(3)?, integer(4)?);
        let quantity = if arguments.len() == 6 { integer(5)? } else { 1 };
        Request::new(burst, count, period, quantity)
    }

    pub(super) fn new<'i>(
        burst: i64,
        count: i64,
        period_seconds: i64,
        quantity: i64,
    ) -> Result<Request, Mistake<'i>> {
        if count <= 0 || period_seconds <= 0 {
            return Err(Mistake::ZeroRate);
        }
        if quantity < 0 {
            return Err(Mistake::NegativeQuantity);
        }
        let large = || Mistake::TooLarge;
        let interval = period_seconds.checked_mul(SECOND).ok_or_else(large)? / count;
        if interval == 0 {
            return Err(Mistake::ZeroRate);
        }
        let limit = burst.checked_add(1).ok_or_else(large)?;
        let tolerance = interval.checked_mul(limit).ok_or_else(large)?;
        let increment = interval.checked_mul(quantity).ok_or_else(large)?;
        Ok(Request { limit, interval, tolerance, increment })
    }

    /// Decides at `now`, for the TAT that is stored.
    ///
    /// # Errors
    /// Instants would not fit into 64 bits.
    pub(super) fn throttle(
        &self,
        stored: Option<i64>,
        now: i64,
    ) -> Result<Throttled, Mistake<'static>> {
        let before = stored.map_or(now, |arrival| arrival.max(now));
        let after = before.checked_add(self.increment).ok_or(Mistake::TooLarge)?;
        let allowed_from = after.checked_sub(self.tolerance).ok_or(Mistake::TooLarge)?;
        let is_limited = now < allowed_from;
        let can_ever_fit = self.increment <= self.tolerance;
        let reset_after = if is_limited { before } else { after } - now;
        Ok(Throttled {
            is_limited,
            limit: self.limit,
            // A limit that was lowered may have less than nothing left.
            remaining: (self.tolerance.saturating_sub(reset_after) / self.interval).max(0),
            retry_after: (is_limited && can_ever_fit).then(|| allowed_from.saturating_sub(now)),
            reset_after,
            arrival: (!is_limited && self.increment > 0).then_some(after),
        })
    }
}

/// Whole seconds as the original tells them: what is below a millisecond is dropped, and the rest
/// is rounded up.
pub(super) fn in_seconds(nanos: i64) -> i64 {
    nanos / SECOND + i64::from(nanos % SECOND >= MILLISECOND)
}

#[cfg(test)]
mod tests;
