//! Route x identity x request to charges: which counters a request asks for.

use http::StatusCode;
use smallvec::SmallVec;

use super::{
    head::Head,
    judge::Script,
    keys::{Keys, is_ambiguous},
    revalidation::is_revalidation,
    unfit_claims::warn_of_unfit_claim,
};
use crate::{
    clock::Timestamp,
    identity::{Client, Identifier, Identity},
    limit::{Charge, Key, Stance},
    policy::{
        AcceptedIssuers, Allowance, Auth, Cost, Enforcement, Limit, OnMissing, Policy, RefundBound,
        Route,
    },
    response::Rejection,
};

/// What charges are made from.
#[derive(Clone, Copy)]
pub(super) struct Charges<'r, 'p> {
    pub(super) identifier: &'r Identifier,
    pub(super) policy: &'p Policy,
    /// None: the request asks how its limits stand, on no route in particular.
    pub(super) route: Option<&'p Route>,
    pub(super) head: &'r Head<'r>,
    pub(super) client: Client<'r>,
    pub(super) now: Timestamp,
    /// None: somebody has really sent the request.
    pub(super) script: Option<&'r Script>,
}

/// Where callers ask how they stand: any good token, or none.
const ANY_TOKEN: Auth = Auth::Optional(AcceptedIssuers::All);

/// The charges of a request, and the limits that ask for them.
#[derive(Default)]
pub(super) struct Asked<'p> {
    pub(super) limits: SmallVec<[AskedLimit<'p>; 2]>,
    pub(super) charges: SmallVec<[Charge<'p>; 2]>,
}

/// A limit that asks for a charge.
#[derive(Clone, Copy)]
pub(super) struct AskedLimit<'p> {
    pub(super) limit: &'p Limit,
    pub(super) allowance: &'p Allowance,
    /// What the request costs, and what may correct that.
    pub(super) cost: &'p Cost,
    pub(super) role: Role,
}

/// What a charge's outcome is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is of the first limit that is enforced, the one that clients are told about.
    Primary,
    /// It is of another one.
    Secondary,
    /// It is of a limit that only counts here.
    Shadow,
    /// It is of a rate that is tried out.
    Candidate,
    /// It is of what may be given back of the charge before it. What is taken of that stays taken if
    /// that charge is given back by the response's status.
    Refund,
}

impl Role {
    pub(super) fn stance(self) -> Stance {
        match self {
            Role::Primary | Role::Secondary => Stance::Enforce,
            Role::Shadow | Role::Candidate | Role::Refund => Stance::Observe,
        }
    }
}

impl<'r, 'p> Charges<'r, 'p> {
    /// All charges of the route.
    ///
    /// # Errors
    /// [`Rejection::MissingKey`] if the request lacks what a limit counts by and may not.
    pub(super) fn of(&self, identity: &Identity<'_>) -> Result<Asked<'p>, Rejection> {
        let mut asked = Asked::default();
        for limit in self.limits(identity) {
            self.ask(limit, identity, &mut asked)?;
        }
        Ok(asked)
    }

    /// That the request has one value of each header and cookie that its limits count by, unless its
    /// address is charged nothing. It is asked before anybody is identified: what cannot be counted
    /// must cost nothing either.
    ///
    /// # Errors
    /// [`Rejection::AmbiguousKey`].
    pub(super) fn check_fields(&self) -> Result<(), Rejection> {
        // A limit that denies nobody does not refuse either.
        let is_enforced = |limit: &&Limit| limit.enforcement != Enforcement::Nobody;
        let mut limits = self.possible_limits().filter(is_enforced);
        match limits.find(|limit| is_ambiguous(limit, self.client.headers)) {
            Some(limit) if !self.policy.exempt.contains_address(self.client.address) => {
                Err(Rejection::AmbiguousKey(limit.name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Only those by address; what lacks a key of those is not charged.
    pub(super) fn by_address(&self, identity: &Identity<'_>) -> Asked<'p> {
        let mut asked = Asked::default();
        for limit in self.limits(identity).filter(|limit| limit.is_by_address()) {
            let _ = self.ask(limit, identity, &mut asked);
        }
        asked
    }

    /// Whether and whose tokens are looked at.
    pub(super) fn auth(&self) -> &'p Auth {
        self.route.map_or(&ANY_TOKEN, |route| &route.auth)
    }

    /// The scopes that the route asks for, if the token does not grant them all.
    pub(super) fn lacks_scope(&self, identity: &Identity<'_>) -> Option<String> {
        let scopes = &self.route?.scopes;
        let token = identity.token.as_ref();
        let has_all =
            scopes.is_empty() || token.is_some_and(|known| known.token.claims.grants(scopes));
        (!has_all).then(|| scopes.join(" "))
    }

    /// What a caller has on every limit that can be told without a route; nobody is denied for
    /// asking.
    pub(super) fn of_caller(&self, identity: &Identity<'_>) -> Asked<'p> {
        let mut asked = Asked::default();
        for limit in self.limits(identity) {
            let _ = self.ask(limit, identity, &mut asked);
        }
        asked
    }

    /// Whether what is charged is taken.
    pub(super) fn is_charged(&self) -> bool {
        self.script.is_none_or(|script| script.is_charged)
    }

    /// The limits that may apply, the primary one first: the route's, or the policy's where there is
    /// no route.
    pub(super) fn limits(&self, identity: &Identity<'_>) -> impl Iterator<Item = &'p Limit> {
        let is_exempt = self.policy.exempt.contains(identity);
        self.possible_limits().filter(move |_| !is_exempt)
    }

    /// The limits that may apply to some caller.
    fn possible_limits(&self) -> impl Iterator<Item = &'p Limit> {
        let policy = self.policy;
        let order: SmallVec<[usize; 8]> = match self.route {
            Some(route) => route.limits.iter().copied().collect(),
            None => policy.core_first().collect(),
        };
        order.into_iter().filter_map(|at| policy.limits.get(at))
    }

    /// Adds what one limit asks for.
    pub(super) fn ask(
        &self,
        limit: &'p Limit,
        identity: &Identity<'_>,
        asked: &mut Asked<'p>,
    ) -> Result<(), Rejection> {
        let none = [].as_slice();
        let of_tier =
            |rates: &'p [Vec<Allowance>]| rates.get(identity.tier).map_or(none, Vec::as_slice);
        // What is tried out is for those that have what everybody has.
        let (allowances, candidates) = match self.override_of(limit, identity) {
            Some(own) => (own.allowances.as_slice(), none),
            None => (of_tier(&limit.rates), of_tier(&limit.candidate)),
        };
        if allowances.is_empty() && candidates.is_empty() {
            return Ok(());
        }
        let keys = Keys { charges: self, per: &limit.per, identity };
        let Some((owner, entry)) = keys.hash() else {
            if self.script.is_none() {
                warn_of_unfit_claim(self, limit, identity);
            }
            return match limit.per.on_missing {
                OnMissing::Deny if self.is_enforced(limit, identity) => {
                    Err(Rejection::MissingKey(limit.name.clone()))
                }
                OnMissing::Deny | OnMissing::Skip => Ok(()),
            };
        };
        let role = match self.is_enforced(limit, identity) {
            false => Role::Shadow,
            true if asked.has_primary_besides(limit) => Role::Secondary,
            true => Role::Primary,
        };
        let (key, cost) = (|id| Key::new(owner, entry, id), self.cost(limit));
        let origin = keys.origin(limit.open);
        let with_roles = allowances
            .iter()
            .map(|allowance| (allowance, role))
            .chain(candidates.iter().map(|allowance| (allowance, Role::Candidate)));
        let may_be_refunded =
            limit.refund.at_most.is_some() && self.may_be_refunded(limit, identity);
        for (allowance, role) in with_roles {
            asked.limits.push(AskedLimit { limit, allowance, cost, role });
            let charge = Charge {
                key: key(allowance.id),
                quota: &allowance.quota,
                cost: match allowance.quota.holds_leases() {
                    true => 1,
                    false => cost.of(self.head.method),
                },
                stance: role.stance(),
                scope: limit.scope(),
                origin,
                fallback: limit.fallback,
                full: limit.full,
            };
            asked.charges.push(charge);
            let bound = allowance.refunds.as_ref().filter(|_| may_be_refunded && charge.takes());
            if let Some(RefundBound { quota, id }) = bound {
                let (key, stance) = (key(*id), Role::Refund.stance());
                asked.limits.push(AskedLimit { limit, allowance, cost, role: Role::Refund });
                asked.charges.push(Charge { key, quota, stance, ..charge });
            }
        }
        Ok(())
    }

    /// Whether some response gives back what the request is charged.
    fn may_be_refunded(&self, limit: &Limit, identity: &Identity<'_>) -> bool {
        let statuses = limit.refund.statuses(identity.token.is_some());
        let (unchanged, client) = (StatusCode::NOT_MODIFIED, self.client);
        let is_revalidation = || is_revalidation(self.head.method, client.headers, self.now);
        statuses.names_others(unchanged) || statuses.contains(unchanged) && is_revalidation()
    }

    /// Whether a limit denies this caller.
    ///
    /// Which callers it does not is drawn under the secret that counters are named with: who knew the
    /// draw could choose a name or an address that is never denied. Proxies that share the secret
    /// draw alike. Without one it is drawn anew at a restart, as the counters begin anew then.
    fn is_enforced(&self, limit: &Limit, identity: &Identity<'_>) -> bool {
        let percent = match limit.enforcement {
            Enforcement::Everybody => return true,
            Enforcement::Nobody => return false,
            Enforcement::Percent(percent) => percent,
        };
        let caller = match &identity.caller {
            Some(caller) => caller.hash,
            None => Keys { charges: self, per: &limit.per, identity }.address(),
        };
        let caller = caller.to_le_bytes();
        let parts = [(b'%', limit.name.as_bytes()), (b'c', caller.as_slice())];
        self.identifier.hasher.hash(parts) % 100 < percent.into()
    }

    fn cost(&self, limit: &'p Limit) -> &'p Cost {
        self.route.and_then(|route| route.cost.as_ref()).unwrap_or(&limit.cost)
    }
}

impl<'p> Asked<'p> {
    /// Whether another limit is the one that clients are told about.
    fn has_primary_besides(&self, limit: &Limit) -> bool {
        let is_other = |asked: &AskedLimit<'_>| {
            asked.role == Role::Primary && !std::ptr::eq(asked.limit, limit)
        };
        self.limits.iter().any(is_other)
    }
}
