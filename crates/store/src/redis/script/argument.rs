//! The argument of a script: numbers that Lua unpacks, in the order that counter.lua documents.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Stance};

use super::{NEVER, ScriptClock, algorithm, operation::Operation};

/// All arguments of a call in one: a script unpacks them faster than Redis passes several.
pub(super) struct Argument(SmallVec<[u8; 80]>);

impl Argument {
    /// An argument without records.
    pub(super) fn new(operation: Operation, clock: ScriptClock) -> Argument {
        let mut argument = Argument(SmallVec::new());
        argument.push(match clock {
            ScriptClock::Redis => 0.0,
            ScriptClock::Proxy(now) => instant(now),
        });
        argument.0.push(operation.opcode());
        argument
    }

    /// Appends the record of a charge. `near` is about what the script's clock says.
    pub(super) fn push_record(&mut self, charge: &Charge<'_>, near: Timestamp) {
        let parameters = algorithm::parameters(charge.quota, near);
        self.0.push(charge.quota.kind().number());
        self.0.push(u8::from(charge.stance == Stance::Enforce));
        self.0.extend_from_slice(&charge.cost.to_le_bytes());
        self.0.extend_from_slice(&parameters.limit.to_le_bytes());
        self.push(parameters.span);
        self.push(parameters.x);
        self.push(parameters.y);
    }

    /// Appends a number.
    pub(super) fn push(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Its bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// An integer below 2^53.
pub(super) fn number(number: u64) -> f64 {
    number as f64
}

/// An instant in microseconds.
pub(super) fn instant(instant: Timestamp) -> f64 {
    number(instant.as_micros().min(NEVER))
}

/// A span of time in microseconds.
pub(super) fn span(span: Duration) -> f64 {
    number(span.as_micros() as u64)
}
