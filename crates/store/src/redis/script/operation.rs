//! What a script does with its counters.

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// [`Operation::Charge`] for the most common charge, by a shorter script.
    ChargeFixedWindow,
    /// Takes all charges or none.
    Charge,
    /// Returns how the counters stand.
    Peek,
    /// Takes a cost whether or not it fits.
    Take,
    /// Gives a charge back.
    GiveBack,
    /// Extends a lease.
    Renew,
    /// Merges the state of a counter from elsewhere, which counts the same charges.
    Seed,
    /// Adds what was taken elsewhere.
    Add,
    /// Returns the whole state of a counter.
    ReadState,
}

impl Operation {
    /// Its number in counter.lua.
    pub(super) fn opcode(self) -> u8 {
        match self {
            Operation::ChargeFixedWindow | Operation::Charge => 0,
            Operation::Peek => 1,
            Operation::Take => 2,
            Operation::GiveBack => 3,
            Operation::Renew => 4,
            Operation::Seed => 5,
            Operation::Add => 6,
            Operation::ReadState => 7,
        }
    }
}
