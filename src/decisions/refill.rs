//! `RL.*`: a bucket that is refilled by a fixed amount at fixed times, as smyte/ratelimit has it.
//!
//! The one thing to know: the reply is what the bucket held before. A caller may go on if that is
//! at least what it takes, and a caller that takes more than there is drains the bucket.

use tollgate_wire::resp::{Arguments, parse_integer};

/// What a command does with the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Looks at it.
    Peek,
    /// Takes from it.
    Reduce,
    /// Takes, and tells since when the caller goes on without a pause.
    Sessionize,
}

/// The unit of a command's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    fn in_millis(self, time: i64) -> i64 {
        match self {
            Unit::Seconds => time.saturating_mul(1000),
            Unit::Milliseconds => time,
        }
    }
}

/// A command, checked. Times are milliseconds since the epoch, or lengths of that unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) max: i64,
    pub(super) refill_millis: i64,
    pub(super) refill: i64,
    pub(super) take: i64,
    /// The client's own time, if it has said one.
    pub(super) at: Option<i64>,
    pub(super) strict: bool,
}

/// What a bucket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) amount: i64,
    /// The instant that refills are counted from.
    pub(super) mark: i64,
    /// The instant from which it is as good as none: nobody has taken for so long that it is full.
    /// By the time that its commands give, else by the server's clock.
    pub(super) full_at: i64,
    pub(super) session_started: i64,
}

/// What a command replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Withdrawal {
    /// What there was.
    pub(super) before: i64,
    pub(super) session_started: i64,
    /// To be stored; none: nothing has changed.
    pub(super) bucket: Option<Bucket>,
}

/// Why a command is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mistake {
    #[error("Value is not an integer or out of range")]
    Integer,
    #[error("Syntax error")]
    Syntax,
}

impl Verb {
    /// How many arguments follow the name.
    pub(super) fn arguments(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Verb::Peek => 3..=8,
            Verb::Reduce | Verb::Sessionize => 3..=10,
        }
    }
}

impl Request {
    /// Reads what follows the name and the key. The order of checks is the original's.
    pub(super) fn parse(
        arguments: &Arguments<'_>,
        verb: Verb,
        unit: Unit,
    ) -> Result<Request, Mistake> {
        let integer = |place| arguments.at(place).and_then(parse_integer).ok_or(Mistake::Integer);
        let max = integer(2)?;
        let refill_time = i32::try_from(integer(3)?).map_err(|_| Mistake::Integer)?;
        let mut request = Request {
            max,
            refill_millis: unit.in_millis(refill_time.into()),
            refill: max,
            take: if verb == Verb::Peek { 0 } else { 1 },
            at: None,
            strict: verb == Verb::Sessionize,
        };
        let mut place = 4;
        while let Some(word) = arguments.at(place) {
            if word.eq_ignore_ascii_case(b"strict") {
                request.strict = true;
                place += 1;
                continue;
            }
            // The value is looked at before the word, as in the original.
            let value = arguments.at(place + 1).ok_or(Mistake::Syntax)?;
            let value = parse_integer(value).ok_or(Mistake::Integer)?;
            match word {
                _ if word.eq_ignore_ascii_case(b"refill") => request.refill = value,
                _ if word.eq_ignore_ascii_case(b"at") => {
                    request.at = Some(if value < 0 { value } else { unit.in_millis(value) });
                }
                _ if word.eq_ignore_ascii_case(b"take") && verb != Verb::Peek => {
                    request.take = value;
                }
                _ => return Err(Mistake::Syntax),
            }
            place += 2;
        }
        let is_within = request.max >= 1
            && request.refill_millis >= 1
            && request.refill >= 1
            && request.take >= 0
            && request.at.is_none_or(|at| at >= 0);
        is_within.then_some(request).ok_or(Mistake::Integer)
    }

    /// Takes from a bucket; none: it is new, and full. `now` is the server's time. An instant
    /// before the bucket's mark counts as the mark: a bucket never goes back in time.
    pub(super) fn take(&self, bucket: Option<&Bucket>, now: i64) -> Withdrawal {
        let at = self.at.unwrap_or(now);
        let at = bucket.map_or(at, |bucket| bucket.mark.max(at));
        let (before, mark) = match bucket {
            None => (self.max, at),
            Some(bucket) => self.refilled(bucket, at),
        };
        let session_started = match bucket {
            Some(bucket) if before < self.take => bucket.session_started,
            _ => at,
        };
        let bucket = (self.take > 0).then(|| {
            let amount = before.saturating_sub(self.take).max(0);
            let mark = if self.strict && amount == 0 { at } else { mark };
            Bucket { amount, mark, full_at: at.saturating_add(self.full_after()), session_started }
        });
        Withdrawal { before, session_started, bucket }
    }

    /// What a bucket holds at an instant, and from when its refills are counted then.
    pub(super) fn refilled(&self, bucket: &Bucket, at: i64) -> (i64, i64) {
        let refills = at.saturating_sub(bucket.mark).max(0) / self.refill_millis;
        let amount = bucket.amount.saturating_add(refills.saturating_mul(self.refill));
        let mark = bucket.mark.saturating_add(refills.saturating_mul(self.refill_millis));
        (amount.min(self.max), mark)
    }

    /// Milliseconds after which a bucket that nobody takes from is full, whatever it held.
    pub(super) fn full_after(&self) -> i64 {
        let refills = self.max / self.refill + i64::from(self.max % self.refill != 0);
        refills.saturating_mul(self.refill_millis)
    }
}

#[cfg(test)]
mod tests;
