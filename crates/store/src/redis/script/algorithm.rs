//! The algorithms as scripts know them. Each has two files here: its Lua, which mirrors the file of
//! the same name in `limit`, and the encoding of what that Lua reads and returns.

mod concurrency;
mod fixed_window;
mod gcra;
mod sliding_log;
mod sliding_window;
mod token_bucket;

use smallvec::SmallVec;

#[cfg(test)]
pub(super) use self::sliding_log::MAX_ENTRIES;
use tollgate_clock::Timestamp;
use tollgate_limit::{
    Algorithm, AlgorithmKind, AnyState, Charge, Count, Quota, Receipt, Retry, Standing,
    StateVariant, with_algorithm, with_kind,
};

use super::reply_reader::{BadReply, ReplyReader};

/// What the Lua of an algorithm reads and returns.
pub(super) trait Scripted: Algorithm<State: StateVariant> {
    /// Its Lua. `KIND` in it stands for the algorithm's number.
    const LUA: &'static str;

    /// The numbers of a charge's record that the algorithm defines. `near` is about what the clock
    /// of the script says.
    fn parameters(&self, near: Timestamp) -> Parameters;

    /// The numbers that encode a state for `join` and `add`; none for leases, which only their
    /// holders can name.
    fn encode(&self, state: &Self::State) -> Option<Numbers>;

    /// Reads what a counter holds from the reply to a charge.
    fn decode(
        &self,
        decided: &Decided<'_>,
        reply: &mut ReplyReader<'_>,
    ) -> Result<CounterReply, BadReply>;

    /// Reads the whole state of a counter; none for leases.
    fn decode_state(&self, reply: &mut ReplyReader<'_>) -> Result<Option<Self::State>, BadReply>;
}

/// The fields `limit`, `span`, `x` and `y` of a record, as the algorithm's Lua documents them.
pub(super) struct Parameters {
    pub(super) limit: u32,
    pub(super) span: f64,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A state as scripts read it: integers below 2^53, and [`NEVER`](super::NEVER) for larger ones.
pub(super) type Numbers = SmallVec<[u64; 4]>;

/// What is known of a charge before its counter is read.
pub(super) struct Decided<'c> {
    pub(super) fits: bool,
    pub(super) now: Timestamp,
    pub(super) charge: &'c Charge<'c>,
}

/// What a reply says about the counter of a charge.
pub(super) struct CounterReply {
    pub(super) count: Count,
    pub(super) standing: Standing,
    /// The receipt of the charge, if it was taken.
    pub(super) receipt: Receipt,
}

impl CounterReply {
    /// The reply for a state that is known whole.
    fn of_state<A: Algorithm<State: StateVariant>>(
        algorithm: &A,
        state: &A::State,
        receipt: Receipt,
        decided: &Decided<'_>,
    ) -> CounterReply {
        let Decided { now, .. } = *decided;
        let retry = decided.retry(|cost| algorithm.retry(state, cost, now));
        let standing = Standing { retry, ..algorithm.standing(state, now) };
        CounterReply { count: state.to_count(), standing, receipt }
    }
}

impl Decided<'_> {
    /// When the charge fits: now, or as `retry` computes from its cost.
    fn retry(&self, retry: impl FnOnce(u32) -> Retry) -> Retry {
        if self.fits { Retry::Now } else { retry(self.charge.cost) }
    }
}

/// The Lua of an algorithm.
pub(super) fn lua(kind: AlgorithmKind) -> &'static str {
    with_kind!(kind, Own => Own::LUA)
}

/// The record fields of a quota; see [`Scripted::parameters`].
pub(super) fn parameters(quota: &Quota, near: Timestamp) -> Parameters {
    with_algorithm!(quota, algorithm => algorithm.parameters(near))
}

/// Encodes a state; none if it is of another algorithm, or of leases.
pub(super) fn encode(quota: &Quota, state: &AnyState) -> Option<Numbers> {
    with_algorithm!(quota, algorithm => algorithm.encode(StateVariant::from_any(state)?))
}

/// Reads what the counter of a charge holds.
pub(super) fn decode(
    decided: &Decided<'_>,
    reply: &mut ReplyReader<'_>,
) -> Result<CounterReply, BadReply> {
    with_algorithm!(decided.charge.quota, algorithm => algorithm.decode(decided, reply))
}

/// Reads the whole state of a counter; none for leases.
pub(super) fn decode_state(
    quota: &Quota,
    reply: &mut ReplyReader<'_>,
) -> Result<Option<AnyState>, BadReply> {
    with_algorithm!(quota, algorithm => {
        Ok(algorithm.decode_state(reply)?.map(|state| state.to_any()))
    })
}
