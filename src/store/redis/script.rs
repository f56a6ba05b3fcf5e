//! The scripts that decide inside Redis: what is sent to them. What they answer is read in
//! [`reply`].
//!
//! A script does not compute standings. It decides, writes, and answers with what each counter holds
//! then; standings, retries and receipts are made of that by the same pure functions as those of the
//! in-process store. So they are alike by construction, and scripts stay short.
//!
//! A script is put together from one file for each algorithm that its counters need, and what is
//! done with them: making functions that nobody calls would take longer than a decision.

mod key;
mod reply;
mod source;
#[cfg(test)]
mod tests;

use std::time::Duration;

use redis::Cmd;
use smallvec::SmallVec;

pub(in crate::store) use self::reply::Reply;
pub(super) use self::{
    key::slot_tag,
    reply::{read, read_state},
};
use self::{
    key::{KeyName, key_name},
    source::{Deed, Script},
};
use crate::{
    clock::Timestamp,
    limit::{Align, AnyState, Charge, Entry, Quota, Receipt, Stance},
    store::Adjustment,
};

/// What time it is for a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScriptClock {
    /// What the server's clock says.
    Redis,
    /// This instant.
    Proxy(Timestamp),
}

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    keys: SmallVec<[KeyName; 2]>,
    /// All arguments in one: the script unpacks them faster than Redis hands them over.
    argument: Bytes,
}

type Bytes = SmallVec<[u8; 80]>;

/// Doubles are exact below this. An instant that is not stands for the end of time.
const NEVER: u64 = 1 << 53;

/// Entries of a log that one call hands to a server, which is busy with them for a part of a
/// millisecond. In a longer log, neighbours make up one.
const MAX_ENTRIES: usize = 1000;

/// What a script is to do, as counter.lua names it.
mod word {
    pub(super) const CHARGE: u8 = 0;
    pub(super) const PEEK: u8 = 1;
    pub(super) const TAKE: u8 = 2;
    pub(super) const GIVE_BACK: u8 = 3;
    pub(super) const RENEW: u8 = 4;
    pub(super) const SEED: u8 = 5;
    pub(super) const ADD: u8 = 6;
    pub(super) const STATE: u8 = 7;
}

impl Call {
    /// The hash of its script.
    pub(super) fn sha(&self) -> &'static str {
        self.script.sha()
    }

    /// The call by the script's hash: all that a server needs that has seen the script before.
    pub(super) fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", self.script.sha())
    }

    /// The call with the script itself.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", self.script.body())
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let keys: usize = self.keys.iter().map(SmallVec::len).sum();
        let size = name.len() + script.len() + keys + self.argument.len() + size_of::<u64>();
        let mut command = Cmd::with_capacity(self.keys.len() + 4, size);
        command.arg(name).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        command.arg(self.argument.as_slice());
        command
    }
}

/// Takes all `charges`, whose counters are in one slot, or none. `now` is about what `clock` says: it
/// tells what calendar windows may be open.
pub(super) fn charge(
    prefix: &str,
    charges: &[Charge<'_>],
    (clock, now): (ScriptClock, Timestamp),
) -> Call {
    let deed = match charges {
        [charge] if is_commonest(charge) => Deed::ChargeFixedWindow,
        _ => Deed::Charge,
    };
    decide(deed, prefix, charges, (clock, now))
}

/// Asks how the counters of `charges`, which are in one slot, stand: as if they cost nothing, and
/// nothing is written, so that a replica can tell.
pub(super) fn peek(
    prefix: &str,
    charges: &[Charge<'_>],
    (clock, now): (ScriptClock, Timestamp),
) -> Call {
    decide(Deed::Peek, prefix, charges, (clock, now))
}

/// Makes good what was decided about `charge`; `now` is as in [`charge`].
pub(super) fn settle(
    prefix: &str,
    charge: &Charge<'_>,
    adjustment: Adjustment,
    (clock, now): (ScriptClock, Timestamp),
) -> Call {
    let (word, receipt) = match adjustment {
        Adjustment::Take => (word::TAKE, Receipt::default()),
        Adjustment::GiveBack(receipt) => (word::GIVE_BACK, receipt),
        Adjustment::Renew(receipt) => (word::RENEW, receipt),
    };
    let charges = std::slice::from_ref(charge);
    let mut call = Call::new(Deed::Settle, prefix, charges, (clock, word));
    call.argument.record(charge, charge.cost, now);
    call.argument.instant(receipt.at);
    call.argument.number(receipt.number);
    call
}

/// Asks for the whole of what the counter of `charge` holds, by the latest count.
pub(super) fn state(
    prefix: &str,
    charge: &Charge<'_>,
    (clock, now): (ScriptClock, Timestamp),
) -> Call {
    let charges = std::slice::from_ref(charge);
    let mut call = Call::new(Deed::Tell, prefix, charges, (clock, word::STATE));
    call.argument.record(charge, 0, now);
    call
}

/// Has the counter of `charge` count what `state` does too; none if the state is another
/// algorithm's, or of leases, which only who holds them knows.
pub(super) fn seed(
    prefix: &str,
    charge: &Charge<'_>,
    state: &AnyState,
    clock: (ScriptClock, Timestamp),
) -> Option<Call> {
    carry((Deed::Seed, word::SEED), prefix, (charge, state), clock)
}

/// Adds what was taken elsewhere to the counter of `charge`, whether or not it fits. None if the
/// state is another algorithm's, or of leases, which stay where they are.
pub(super) fn add(
    prefix: &str,
    charge: &Charge<'_>,
    state: &AnyState,
    clock: (ScriptClock, Timestamp),
) -> Option<Call> {
    carry((Deed::Add, word::ADD), prefix, (charge, state), clock)
}

/// Hands a state to the counter of `charge`; `now` is as in [`charge`].
fn carry(
    (deed, word): (Deed, u8),
    prefix: &str,
    (charge, state): (&Charge<'_>, &AnyState),
    (clock, now): (ScriptClock, Timestamp),
) -> Option<Call> {
    let numbers = numbers(charge.quota, state)?;
    let mut call = Call::new(deed, prefix, std::slice::from_ref(charge), (clock, word));
    call.argument.record(charge, 0, now);
    for number in numbers {
        call.argument.number(number.min(NEVER));
    }
    Some(call)
}

/// A state as scripts read it. A log is the number of its next charge and then three numbers for each
/// entry.
fn numbers(quota: &Quota, state: &AnyState) -> Option<SmallVec<[u64; 4]>> {
    Some(match (state, quota) {
        (AnyState::FixedWindow(window), Quota::FixedWindow(_)) => {
            SmallVec::from_slice(&[window.used.into(), window.reset.as_micros()])
        }
        (AnyState::SlidingWindow(windows), Quota::SlidingWindow(_)) => {
            let (current, previous) = (windows.current.into(), windows.previous.into());
            SmallVec::from_slice(&[current, previous, windows.expires.as_micros()])
        }
        (AnyState::SlidingLog(log), Quota::SlidingLog(_)) => {
            let (entries, charges) = log.condensed(MAX_ENTRIES);
            let numbers = entries
                .into_iter()
                .flat_map(|Entry { at, cost, number }| [at.as_micros(), u64::from(cost), number]);
            [charges].into_iter().chain(numbers).collect()
        }
        (AnyState::TokenBucket(bucket), Quota::TokenBucket(_)) => {
            let (mark, full) = (bucket.mark.as_micros(), bucket.full.as_micros());
            SmallVec::from_slice(&[bucket.deficit.into(), mark, full])
        }
        (AnyState::Gcra(level), Quota::Gcra(quota)) => {
            let steps = level.level.div_ceil(quota.grain());
            SmallVec::from_slice(&[steps, level.at.as_micros(), level.full.as_micros()])
        }
        _ => return None,
    })
}

/// Whether the script for the commonest charge can decide.
fn is_commonest(charge: &Charge<'_>) -> bool {
    let opens_with_a_charge = match charge.quota {
        Quota::FixedWindow(quota) => matches!(quota.align, Align::FirstRequest(_)),
        _ => false,
    };
    opens_with_a_charge && charge.takes() && charge.stance == Stance::Enforce
}

fn decide(
    deed: Deed,
    prefix: &str,
    charges: &[Charge<'_>],
    (clock, now): (ScriptClock, Timestamp),
) -> Call {
    let is_peek = deed == Deed::Peek;
    let word = if is_peek { word::PEEK } else { word::CHARGE };
    let mut call = Call::new(deed, prefix, charges, (clock, word));
    for charge in charges {
        call.argument.record(charge, if is_peek { 0 } else { charge.cost }, now);
    }
    call
}

impl Call {
    /// A call without its records.
    fn new(
        deed: Deed,
        prefix: &str,
        charges: &[Charge<'_>],
        (clock, word): (ScriptClock, u8),
    ) -> Call {
        let mut argument = Bytes::new();
        match clock {
            ScriptClock::Redis => argument.number(0),
            ScriptClock::Proxy(now) => argument.instant(now),
        }
        argument.push(word);
        Call {
            script: Script::of(deed, charges),
            keys: charges.iter().map(|charge| key_name(prefix, charge.key)).collect(),
            argument,
        }
    }
}

/// What scripts unpack.
trait Pack {
    /// An integer below 2^53.
    fn number(&mut self, number: u64);

    fn instant(&mut self, instant: Timestamp) {
        self.number(instant.as_micros().min(NEVER));
    }

    fn span(&mut self, span: Duration) {
        self.number(span.as_micros() as u64);
    }

    /// A charge: fields that counter.lua names.
    fn record(&mut self, charge: &Charge<'_>, cost: u32, now: Timestamp);
}

impl Pack for Bytes {
    fn number(&mut self, number: u64) {
        self.extend((number as f64).to_le_bytes());
    }

    fn record(&mut self, charge: &Charge<'_>, cost: u32, now: Timestamp) {
        let is_enforced = charge.stance == Stance::Enforce;
        self.push(source::algorithm(charge.quota));
        self.push(u8::from(is_enforced));
        self.extend(cost.to_le_bytes());
        match charge.quota {
            Quota::FixedWindow(quota) => {
                self.extend(quota.limit.to_le_bytes());
                self.span(quota.align.max_length());
                match &quota.align {
                    Align::FirstRequest(_) => self.extend([0; 16]),
                    Align::Epoch(_) => {
                        self.extend((-1_f64).to_le_bytes());
                        self.number(0);
                    }
                    Align::Calendar(_) => {
                        for end in quota.align.ends_near(now) {
                            self.instant(end);
                        }
                    }
                }
            }
            Quota::SlidingWindow(quota) => {
                self.extend(quota.limit.to_le_bytes());
                self.number(quota.window.as_micros() as u64 / quota.grain());
                self.number(quota.grain());
                self.number(0);
            }
            Quota::SlidingLog(quota) => {
                self.extend(quota.limit.to_le_bytes());
                self.span(quota.window);
                self.extend([0; 16]);
            }
            Quota::TokenBucket(quota) => {
                self.extend(quota.capacity.to_le_bytes());
                self.number((quota.interval.as_micros() as u64).max(1));
                self.number(quota.refill.into());
                self.number(quota.strict.into());
            }
            Quota::Gcra(quota) => {
                self.extend(quota.limit.to_le_bytes());
                self.number((quota.window.as_micros() as u64 / quota.grain()).max(1));
                self.number(quota.grain());
                self.number(charge.quota.capacity().into());
            }
            Quota::Concurrency(quota) => {
                self.extend(quota.limit.to_le_bytes());
                self.span(quota.lease);
                self.extend([0; 16]);
            }
        }
    }
}
