//! The scripts that decide inside Redis: the calls that are sent. Their replies are read in
//! [`reply`].
//!
//! A script does not compute standings. It decides, writes, and returns what each counter holds
//! then. The pure functions of the in-process store compute standings, retries and receipts from
//! that. So both stores agree by construction, and scripts stay short.
//!
//! A script is put together from a file for each algorithm of its counters and one for the
//! operation: creating Lua functions that are not called would take longer than a decision.

mod algorithm;
mod argument;
mod key;
mod operation;
mod reply;
mod reply_reader;
mod source;
#[cfg(test)]
mod tests;

use std::time::Duration;

use redis::Cmd;
use smallvec::SmallVec;

pub(crate) use self::reply::Reply;
use self::{
    argument::{Argument, instant, number},
    key::{KeyName, key_name, reset_marker},
    operation::Operation,
    source::Script,
};
pub(super) use self::{
    key::slot_tag,
    reply::{read, read_state},
};
use tollgate_clock::Timestamp;
use tollgate_limit::{Align, AnyState, Charge, Key, Receipt, Stance};

use crate::Adjustment;

/// The time of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptTime {
    /// The clock that decides.
    pub(super) clock: ScriptClock,
    /// The approximate time of that clock. It determines which calendar windows may be open.
    pub(super) near: Timestamp,
}

/// The clock of a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScriptClock {
    /// The server's own.
    Redis,
    /// The proxy's, at this time.
    Proxy(Timestamp),
}

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    keys: SmallVec<[KeyName; 2]>,
    argument: Argument,
    /// The latest reset of the counter that came before what is copied into it.
    known_reset: Option<[u8; 8]>,
}

/// The end of time in scripts: doubles are exact below it.
const NEVER: u64 = 1 << 53;

/// Takes all `charges`, whose counters are in one slot, or none.
pub(super) fn charge(prefix: &str, charges: &[Charge<'_>], time: ScriptTime) -> Call {
    let operation = match charges {
        [charge] if is_most_common(charge) => Operation::ChargeFixedWindow,
        _ => Operation::Charge,
    };
    Call::new(operation, prefix, charges, time)
}

/// Reads how the counters of `charges`, which are in one slot, stand, as if the charges had no
/// cost. Nothing is written, so a replica can serve it.
pub(super) fn peek(prefix: &str, charges: &[Charge<'_>], time: ScriptTime) -> Call {
    let free: SmallVec<[Charge<'_>; 4]> = charges.iter().map(free).collect();
    Call::new(Operation::Peek, prefix, &free, time)
}

/// Corrects an earlier `charge`.
pub(super) fn settle(
    prefix: &str,
    charge: &Charge<'_>,
    adjustment: Adjustment,
    time: ScriptTime,
) -> Call {
    let (operation, receipt) = match adjustment {
        Adjustment::Take => (Operation::Take, Receipt::default()),
        Adjustment::GiveBack(receipt) => (Operation::GiveBack, receipt),
        Adjustment::Renew(receipt) => (Operation::Renew, receipt),
    };
    let mut call = Call::new(operation, prefix, std::slice::from_ref(charge), time);
    call.argument.push(instant(receipt.at));
    call.argument.push(number(receipt.number));
    call
}

/// Reads the whole state of the counter of `charge`.
pub(super) fn state(prefix: &str, charge: &Charge<'_>, time: ScriptTime) -> Call {
    Call::new(Operation::ReadState, prefix, &[free(charge)], time)
}

/// Merges `state`, which counts the same charges, into the counter of `charge`; none if the state
/// is another algorithm's, or of leases.
pub(super) fn seed(
    prefix: &str,
    charge: &Charge<'_>,
    state: &AnyState,
    time: ScriptTime,
) -> Option<Call> {
    Call::with_state(Operation::Seed, prefix, charge, state, time)
}

/// Adds what was taken elsewhere to the counter of `charge`, whether or not it fits; none if the
/// state is another algorithm's, or of leases.
pub(super) fn add(
    prefix: &str,
    charge: &Charge<'_>,
    state: &AnyState,
    time: ScriptTime,
) -> Option<Call> {
    Call::with_state(Operation::Add, prefix, charge, state, time)
}

/// The command that deletes counters, which are of one owner, and lets nobody copy an earlier count
/// into them for `guard`. `name` is the reset's own.
pub(super) fn reset(prefix: &str, keys: &[Key], name: u64, guard: Duration) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(include_str!("script/reset.lua")).arg(2 * keys.len());
    for key in keys {
        command.arg(key_name(prefix, *key).as_slice());
        command.arg(reset_marker(prefix, *key).as_slice());
    }
    command.arg(guard.as_millis() as u64).arg(name.to_be_bytes().as_slice());
    command
}

/// The charge without its cost.
fn free<'p>(charge: &Charge<'p>) -> Charge<'p> {
    Charge { cost: 0, ..*charge }
}

/// Whether the script for the most common charge can decide it.
fn is_most_common(charge: &Charge<'_>) -> bool {
    let opens_with_a_charge = match charge.quota.align() {
        Some(Align::FirstRequest(_)) => true,
        Some(Align::Epoch(_) | Align::Calendar(_)) | None => false,
    };
    opens_with_a_charge && charge.takes() && charge.stance == Stance::Enforce
}

impl Call {
    /// The command in the line of its script that an error names.
    pub(super) fn command_at(&self, details: &str) -> Option<&str> {
        self.script.command_at(details)
    }

    /// A call with a record of each charge.
    fn new(operation: Operation, prefix: &str, charges: &[Charge<'_>], time: ScriptTime) -> Call {
        let mut argument = Argument::new(operation, time.clock);
        for charge in charges {
            argument.push_record(charge, time.near);
        }
        Call {
            script: Script::of(operation, charges),
            keys: charges.iter().map(|charge| key_name(prefix, charge.key)).collect(),
            argument,
            known_reset: None,
        }
    }

    /// The call by somebody who copies what was charged after this reset of the counter.
    pub(super) fn after_reset(self, reset: Option<u64>) -> Call {
        Call { known_reset: reset.map(u64::to_be_bytes), ..self }
    }

    /// A call with the record of a charge and the numbers that encode `state`.
    fn with_state(
        operation: Operation,
        prefix: &str,
        charge: &Charge<'_>,
        state: &AnyState,
        time: ScriptTime,
    ) -> Option<Call> {
        let numbers = algorithm::encode(charge.quota, state)?;
        let mut call = Call::new(operation, prefix, &[free(charge)], time);
        call.keys.push(reset_marker(prefix, charge.key));
        for each in numbers {
            call.argument.push(number(each.min(NEVER)));
        }
        Some(call)
    }

    /// The hash of its script.
    pub(super) fn sha(&self) -> &'static str {
        &self.script.sha
    }

    /// The call by the script's hash, for a server that has seen the script before.
    pub(super) fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", &self.script.sha)
    }

    /// The call with the text of the script.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", &self.script.body)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let argument = self.argument.as_slice();
        let keys: usize = self.keys.iter().map(SmallVec::len).sum();
        let size = name.len() + script.len() + keys + argument.len() + size_of::<u64>();
        let mut command = Cmd::with_capacity(self.keys.len() + 4, size);
        command.arg(name).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        command.arg(argument);
        if let Some(reset) = &self.known_reset {
            command.arg(reset.as_slice());
        }
        command
    }
}
