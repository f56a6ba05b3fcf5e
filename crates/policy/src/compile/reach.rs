//! Which callers and tiers the requests of a route can have.

use http::Method;
use tollgate_identity::{Auth, Caller, CallerKey, IdentityRules, TierSource};

use crate::{Cost, Override, Wanted};

/// Who may come to a route.
pub(super) struct Reach<'r> {
    /// The entries of `callers` that requests there may be by; none: nothing is known.
    callers: Option<Vec<&'r Caller>>,
    /// Tiers that only callers without a token have, by position.
    apart: Vec<usize>,
    /// The tier of callers without another.
    default: usize,
}

/// What the requests of a route are charged, and whose they may be.
pub(super) struct Charged<'r> {
    /// What the route says that they cost.
    pub(super) cost: Option<&'r Cost>,
    /// Empty: any.
    pub(super) methods: &'r [Method],
    pub(super) reach: &'r Reach<'r>,
}

impl<'r> Reach<'r> {
    /// Of a route with this `auth`.
    pub(super) fn new(auth: Option<&Auth>, rules: Option<&'r IdentityRules>) -> Reach<'r> {
        let (Some(auth), Some(rules)) = (auth, rules) else {
            return Reach { callers: None, apart: Vec::new(), default: 0 };
        };
        let callers: Vec<&Caller> = rules
            .callers
            .iter()
            .filter(|caller| match (&caller.key, auth) {
                (_, Auth::Optional(_)) => true,
                (CallerKey::Claim(_) | CallerKey::ApiKey(_), auth) => *auth != Auth::None,
                (CallerKey::Address { .. }, Auth::Required(_)) => !names_all_tokens(rules),
                (CallerKey::Address { .. } | CallerKey::Certificate(_), _) => true,
            })
            .collect();
        let apart = rules.callers.iter().filter_map(|caller| match (&caller.key, &caller.tier) {
            (CallerKey::Address { .. }, TierSource::Fixed(tier)) => Some(*tier),
            _ => None,
        });
        Reach {
            callers: Some(callers).filter(|callers| !callers.is_empty()),
            apart: apart.collect(),
            default: rules.tiers.default,
        }
    }

    /// Whether a request may have the tier at this position. A claim names any but those that an
    /// address alone has.
    pub(super) fn has_tier(&self, tier: usize) -> bool {
        let Some(callers) = &self.callers else { return true };
        callers.iter().any(|caller| match &caller.tier {
            TierSource::Default => tier == self.default,
            TierSource::Fixed(own) => tier == *own,
            TierSource::Claim(_) => tier == self.default || !self.apart.contains(&tier),
            TierSource::Table(table) => {
                tier == table.default || table.entries.iter().any(|(_, own)| tier == *own)
            }
        })
    }

    /// Whether a request may be one that an override is for.
    pub(super) fn has_caller_of(&self, own: &Override) -> bool {
        let Some(callers) = &self.callers else { return true };
        own.of.iter().all(|wanted| match &wanted.value {
            Wanted::Caller(name) => callers.iter().any(|caller| caller.name == name.kind),
            _ => true,
        })
    }
}

/// Whether each credential that is accepted names a caller, so that no caller with one is an
/// address.
fn names_all_tokens(rules: &IdentityRules) -> bool {
    let names =
        |is_kind: fn(&CallerKey) -> bool| rules.callers.iter().any(|caller| is_kind(&caller.key));
    let keys = rules.api_keys_position();
    let has_tokens = (0..keys).any(|at| rules.issuer_id(at).is_some());
    let has_keys = rules.issuer_id(keys).is_some();
    (!has_tokens || names(|key| matches!(key, CallerKey::Claim(_))))
        && (!has_keys || names(|key| matches!(key, CallerKey::ApiKey(_))))
}
