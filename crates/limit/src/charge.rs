//! A charge: what a request asks of the store for one limit.

use tollgate_keyword::keywords;

use super::{key::Key, kind::Quota, when_full::WhenFull};

/// One limit, one key, one cost.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'p> {
    /// Which counter.
    pub key: Key,
    /// What the counter may reach.
    pub quota: &'p Quota,
    /// Units to take.
    pub cost: u32,
    /// What happens to the request if they do not fit.
    pub stance: Stance,
    /// Who shares the counter.
    pub scope: Scope,
    /// Who vouches for what the counter is keyed by.
    pub origin: Origin,
    /// How it is decided if the store does not respond.
    pub fallback: Fallback,
    /// How it is decided if the process has no room for its counter.
    pub full: WhenFull,
    /// What may be taken once it is decided.
    pub later: Later,
}

impl<'p> Charge<'p> {
    /// A charge of `cost` on a verified caller's counter: enforced, and decided in the process if
    /// the store does not respond.
    pub fn new(key: Key, quota: &'p Quota, cost: u32) -> Self {
        Charge {
            key,
            quota,
            cost,
            stance: Stance::Enforce,
            scope: Scope::Caller,
            origin: Origin::Verified,
            fallback: Fallback::Local,
            full: WhenFull::default(),
            later: Later::default(),
        }
    }

    /// Whether it takes anything if it is admitted.
    pub fn takes(&self) -> bool {
        self.cost > 0
    }

    /// Whether there has to be room for its counter.
    pub fn needs_counter(&self) -> bool {
        self.takes() || self.later != Later::Nothing
    }

    /// Whether the request is refused where its counter finds no room.
    pub fn must_have_counter(&self) -> bool {
        self.stance == Stance::Enforce || self.later == Later::Happened
    }
}

/// A [`Charge`] with a quota of its own, for work that outlives the request.
#[derive(Clone, Debug)]
pub struct OwnedCharge {
    quota: Quota,
    key: Key,
    /// Units to take.
    pub cost: u32,
    stance: Stance,
    scope: Scope,
    origin: Origin,
    fallback: Fallback,
    full: WhenFull,
    later: Later,
}

impl From<&Charge<'_>> for OwnedCharge {
    fn from(charge: &Charge<'_>) -> Self {
        let Charge { key, quota, cost, stance, scope, origin, fallback, full, later } = *charge;
        let quota = quota.clone();
        OwnedCharge { quota, key, cost, stance, scope, origin, fallback, full, later }
    }
}

impl OwnedCharge {
    /// The charge.
    pub fn charge(&self) -> Charge<'_> {
        let &OwnedCharge { ref quota, key, cost, stance, scope, origin, fallback, full, later } =
            self;
        Charge { key, quota, cost, stance, scope, origin, fallback, full, later }
    }
}

/// What happens to a request whose charge does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// The request is denied, and nothing is charged.
    Enforce,
    /// The request continues, and only this charge is not taken.
    Observe,
}

/// What may be taken of a counter once a charge is decided. What costs nothing before needs room
/// for its counter all the same: else nobody would ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Later {
    /// No more than the charge gives back.
    #[default]
    Nothing,
    /// What a response names.
    Cost,
    /// What has happened, whether it fits or not. It denies nothing, but has to be counted.
    Happened,
}

/// Who shares the counter of a charge. Charges that may deny, and that one store call cannot decide
/// together, are decided in this order: those that are cheapest to deny and shared by the fewest
/// callers come first, so that little has to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The clients of one address.
    Address,
    /// One caller.
    Caller,
    /// Many callers.
    Shared,
}

/// The source that a counter's key comes from. The cheaper it is for a client to make up new keys,
/// the later the variant comes here, and the less room a store gives to its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An issuer, a certificate authority or the policy: there are only as many keys as they name.
    Verified,
    /// An IPv4 address: a client has few.
    Address,
    /// An IPv6 network: a client may have millions.
    Network,
    /// The client: it chooses the value that it is counted by.
    Chosen {
        /// Keyed hash of the client that chose: its verified caller, else its address.
        by: u128,
    },
    /// The proxy, which marks something: that a receipt was used, or when a counter was reset.
    /// Marks have room of their own.
    Mark,
}

/// How a charge is decided if the store does not respond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// In the process, from the last known state and by this process' share of the rate.
    #[default]
    Local,
    /// The request continues as if there were no such limit.
    Open,
    /// The request is refused.
    Closed,
}

keywords! { Fallback { Local = "local", Open = "open", Closed = "closed" } }
