//! What a program asks to charge, and why that cannot be.

use tollgate_clock::Timestamp;
use tollgate_identity::NameError;

/// A limit that a program charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decisions) struct NamedCharge<'r> {
    /// The limit's name; where several policies have such a limit, with the policy's and a slash
    /// before it.
    pub(in crate::decisions) limit: &'r str,
    /// Whose counter: of a limit with `per: key` any text; of one that requests are charged to, as
    /// `tollgate look` has it, such as `user:42`.
    pub(in crate::decisions) key: &'r [u8],
    /// The tier whose rates hold, of a limit that requests are charged to; none: that of the key,
    /// if it is known.
    pub(in crate::decisions) tier: Option<&'r str>,
    /// Units; none: what the policy says, one if it says nothing.
    pub(in crate::decisions) cost: Option<u32>,
}

/// Why a program's charges cannot be planned: it has to ask otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::decisions) enum NamedError {
    /// No policy has such a limit.
    #[error("no policy has a limit `{0}` that programs can charge")]
    NoLimit(String),
    /// Several policies have one.
    #[error("several policies have a limit `{0}`: write whose, as {1}")]
    SeveralLimits(String, String),
    /// The charges are of several policies.
    #[error("limit `{0}` is of another policy than the others: charge it by a call of its own")]
    SeveralPolicies(String),
    /// A key is empty or too long.
    #[error("the key for limit `{0}` has to have 1 to 256 bytes")]
    Key(String),
    /// A key is none that requests are counted by.
    #[error("the key for limit `{limit}`: {error}")]
    Name {
        /// The limit.
        limit: String,
        /// Why not.
        error: NameError,
    },
    /// The limit counts by other things than the key has.
    #[error("limit `{limit}` counts by something else: write its key as `{form}`")]
    Parts {
        /// The limit.
        limit: String,
        /// How its keys are written.
        form: String,
    },
    /// Which rates hold is not known.
    #[error("the tier of `{key}` is not known here: write `tier`, one of {tiers}")]
    UnknownTier {
        /// Whose.
        key: String,
        /// Those that there are.
        tiers: String,
    },
    /// The policy has no such tier.
    #[error("the policy has no tier `{tier}`: there are {tiers}")]
    NoTier {
        /// What is written.
        tier: String,
        /// Those that there are.
        tiers: String,
    },
    /// A tier is written for keys that have none.
    #[error("limit `{0}` counts `per: key`, where tiers do not apply: leave out `tier`")]
    TierOfKey(String),
    /// A limit that requests are charged to counts at the time at which they come.
    #[error("limit `{0}` counts requests, too, at the time at which they come: leave out `at`")]
    RequestsAt(String),
    /// Programs do not reset what requests were charged.
    #[error("limit `{0}` counts requests, too: reset it with `tollgate reset`")]
    ResetOfRequests(String),
    /// One counter is charged twice.
    #[error("limit `{0}` is charged twice for one key: write one charge with the sum")]
    Twice(String),
    /// A cost is out of range.
    #[error("the cost for limit `{0}` has to be 0 to 2147483647")]
    Cost(String),
    /// The program's clock is ahead of this proxy's.
    #[error("`at` is {at}, more than a minute ahead of the clock of this proxy, which has {now}")]
    Ahead {
        /// The instant that it gives.
        at: Timestamp,
        /// The clock.
        now: Timestamp,
    },
    /// A slot is charged at the program's time.
    #[error("limit `{0}` has `concurrent`, whose slots are held now: leave out `at`")]
    SlotAt(String),
    /// There are none, or too many.
    #[error("a call has to have 1 to 8 charges")]
    Number,
}
