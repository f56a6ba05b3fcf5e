//! A limit of a policy: how much, by tier, what it is counted per, and when it counts.

use std::fmt;

use http::{HeaderValue, StatusCode};
use tollgate_keyword::keywords;
use tollgate_limit::{Fallback, Scope, WhenFull};

use super::{Allowances, Cost, KeyPart, Overrides};

/// A named rule: how much, by tier, and what it is counted per.
#[derive(Debug)]
pub struct Limit {
    /// Its name, which clients see as `x-ratelimit-resource`.
    pub name: Box<str>,
    /// Its position among the limits of its policy; none of those: `usize::MAX`.
    pub position: usize,
    /// The name as a header value.
    pub resource: HeaderValue,
    /// What a counter is kept for.
    pub per: Per,
    /// Whether the keys of programs and the values of descriptors are vouched for: clients choose
    /// none of them.
    pub verified: bool,
    /// Whether clients choose the hosts and paths of its requests.
    pub open: OpenParts,
    /// What each tier may use, by the tier's position.
    pub rates: Vec<Allowances>,
    /// Other rates for some requests.
    pub overrides: Overrides,
    /// What a request costs where its route does not say.
    pub cost: Cost,
    /// Which requests are given back what they cost.
    pub refund: Refund,
    /// Only requests answered with one of these statuses count; none: all do.
    pub count_when: Option<Statuses>,
    /// The callers for which the limit is enforced.
    pub enforcement: Enforcement,
    /// How its charges are decided if the store does not answer: `on_store_error`.
    pub fallback: Fallback,
    /// How they are decided if the process has no room for a counter: `on_store_full`.
    pub full: WhenFull,
    /// Rates that are tried out beside those in force, by the tier's position; empty: none are.
    pub candidate: Vec<Allowances>,
}

impl Limit {
    /// Whether the limit counts by address and needs no caller: such a limit is charged for failed
    /// authentication.
    pub fn is_by_address(&self) -> bool {
        let parts = &self.per.parts;
        parts.contains(&KeyPart::ClientIp) && !parts.iter().any(KeyPart::is_vouched_for)
    }

    /// Whether programs charge it by name, with keys of theirs; requests never do.
    pub fn is_named(&self) -> bool {
        self.per.parts.contains(&KeyPart::Key)
    }

    /// Whether descriptors that Envoy sends are charged to it; requests never are.
    pub fn is_of_descriptors(&self) -> bool {
        self.per.parts.iter().any(|part| matches!(part, KeyPart::Descriptor(_)))
    }

    /// Whose counters it has.
    pub fn scope(&self) -> Scope {
        let parts = &self.per.parts;
        if parts.contains(&KeyPart::Caller) {
            Scope::Caller
        } else if parts.contains(&KeyPart::ClientIp) {
            Scope::Address
        } else {
            Scope::Shared
        }
    }
}

/// What counters are kept for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Per {
    /// Never empty.
    pub parts: Vec<KeyPart>,
    /// How a request is treated that lacks one.
    pub on_missing: OnMissing,
    /// IPv4 addresses with the same prefix of this length are one; 32.
    pub ipv4_prefix: u8,
    /// IPv6 addresses with the same prefix of this length are one; 64.
    pub ipv6_prefix: u8,
}

impl Per {
    /// Whether requests that lack this part of the key share a counter.
    pub fn shares(&self, part: &KeyPart) -> bool {
        part.may_be_missing() && self.on_missing == OnMissing::Share
    }
}

/// What is open about the routes that a limit is listed by: of what is open, a client can make up
/// as many values as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenParts {
    /// One of them takes requests for any host, or any below a name.
    pub hosts: bool,
    /// One of them takes requests for more than one path.
    pub paths: bool,
}

/// How a request is treated that lacks a key of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// The limit does not apply to it.
    #[default]
    Skip,
    /// It is refused.
    Deny,
    /// It shares one counter with all others that lack the same.
    Share,
}

keywords! { OnMissing { Skip = "skip", Deny = "deny", Share = "share" } }

/// Which requests are given back what they cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Statuses that are refunded to every caller.
    pub everybody: Statuses,
    /// Statuses that are refunded to callers with a valid token.
    pub authenticated: Statuses,
    /// Percent of what can be used in a window that may be given back in it; none: all of it, again
    /// and again.
    pub at_most: Option<u8>,
}

impl Refund {
    /// The statuses that give something back to a sender, with a good token or without.
    pub fn statuses(&self, is_authenticated: bool) -> Statuses {
        match is_authenticated {
            true => self.everybody.and(self.authenticated),
            false => self.everybody,
        }
    }
}

/// A set of status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statuses([u128; 4]);

impl Statuses {
    /// With this one too.
    #[must_use]
    pub fn with(mut self, status: u16) -> Self {
        let (word, bit) = Self::place(status);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
        self
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Statuses) -> Self {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word |= other);
        self
    }

    /// Whether there are others among them than this one.
    pub fn names_others(&self, status: StatusCode) -> bool {
        *self != Statuses::default() && *self != Statuses::default().with(status.as_u16())
    }

    /// Whether this one is among them.
    pub fn contains(&self, status: StatusCode) -> bool {
        let (word, bit) = Self::place(status.as_u16());
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The index of the word that holds a status, and its bit there: 100 is the first.
    fn place(status: u16) -> (usize, u128) {
        let position = usize::from(status.wrapping_sub(100));
        (position / 128, 1 << (position % 128))
    }
}

/// `304, 500-599`.
impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contains = |code: u16| StatusCode::from_u16(code).is_ok_and(|code| self.contains(code));
        let is_first = |code: &u16| contains(*code) && (*code == 100 || !contains(code - 1));
        let range = |first: u16| match (first..=599).take_while(|code| contains(*code)).last() {
            Some(last) if last > first => format!("{first}-{last}"),
            _ => first.to_string(),
        };
        let ranges: Vec<String> = (100..=599).filter(is_first).map(range).collect();
        match ranges.as_slice() {
            [] => f.write_str("none"),
            ranges => f.write_str(&ranges.join(", ")),
        }
    }
}

/// The callers for which a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// All callers.
    #[default]
    AllCallers,
    /// No caller: the limit counts and reports, and never denies.
    Shadow,
    /// This percentage of callers, always the same ones.
    Percent(u8),
}
