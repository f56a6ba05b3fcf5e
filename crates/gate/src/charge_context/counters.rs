//! The counters of a limit that a request is charged on, and what it is charged there at first:
//! once for the whole request, or for each message in its body.

use std::num::NonZeroU64;

use smallvec::SmallVec;
use tollgate_identity::Identity;
use tollgate_limit::{Charge, Key, Origin};
use tollgate_policy::{
    Allowance, Cost, KeyPart, Limit, RefundBound, Reserve, StreamUsage, query_units, units_of,
};
use tollgate_response::Rejection;
use tollgate_usage::mcp::{Message, Messages};

use super::{ChargeContext, keys::KeyBuilder};
use crate::charge_plan::{ChargePlan, ChargeRole, PlannedLimit};

/// How much of a limit a caller has.
pub(super) struct LimitShare<'p> {
    pub(super) limit: &'p Limit,
    pub(super) role: ChargeRole,
    pub(super) allowances: &'p [Allowance],
    /// Rates that are tried out.
    pub(super) candidates: &'p [Allowance],
}

/// A counter that a request is charged on.
pub(super) struct ChargedCounter {
    owner: u128,
    entry: u128,
    reserved: Reserved,
    origin: Origin,
}

/// What a request is charged at first.
#[derive(Clone, Copy)]
struct Reserved {
    units: u32,
    /// Units of them that are for what it sends.
    input_units: u32,
}

impl<'r, 'p> ChargeContext<'r, 'p> {
    /// Adds the charges of one limit for each message in the body of the request. Messages with one
    /// counter are one charge.
    ///
    /// # Errors
    /// [`Rejection::MissingKey`], [`Rejection::Member`] and [`Rejection::Message`].
    pub(super) fn add_messages(
        &self,
        share: &LimitShare<'p>,
        identity: &Identity<'_>,
        plan: &mut ChargePlan<'p>,
    ) -> Result<(), Rejection> {
        let &LimitShare { limit, role, .. } = share;
        let facts = self.input.facts.get().map(|facts| &facts.messages);
        if let (Some(Err(error)), true) = (facts, role.is_enforced()) {
            return Err(Rejection::Message(error.clone()));
        }
        let none = [None].as_slice();
        let each: SmallVec<[Option<&Message>; 4]> = match self.messages() {
            Some(messages) if self.counts_messages(limit) => {
                messages.each().iter().map(Some).collect()
            }
            _ => none.into(),
        };
        let mut counters: SmallVec<[ChargedCounter; 4]> = SmallVec::new();
        for message in each {
            let context = ChargeContext { message, ..*self };
            let Some(counter) = context.counter(limit, identity, role)? else { continue };
            match counters.iter_mut().find(|other| other.entry == counter.entry) {
                Some(other) => {
                    let units = other.reserved.units.saturating_add(counter.reserved.units);
                    other.reserved.units = units;
                }
                None => counters.push(counter),
            }
        }
        if counters.is_empty() {
            return self.without_key(limit, identity);
        }
        for counter in counters {
            self.add_counter(share, counter, identity, plan);
        }
        Ok(())
    }

    /// Whether each message in the body of a request is charged to a limit; else the request is.
    fn counts_messages(&self, limit: &Limit) -> bool {
        let cost = self.cost(limit);
        limit.per.parts.iter().any(KeyPart::is_in_messages)
            || match cost.reserve.as_deref() {
                Some(Reserve::Messages(_)) => true,
                Some(Reserve::Members(_) | Reserve::Query(_)) => false,
                None => cost.source.is_none(),
            }
    }

    /// The messages in the body of the request. None: there are none that can be read.
    pub(crate) fn messages(&self) -> Option<&'r Messages> {
        self.input.facts.get()?.messages.as_ref().ok()?.as_ref()
    }

    /// The counter of a limit that the request is charged on; none: it lacks what the limit counts
    /// by.
    ///
    /// # Errors
    /// [`Rejection::Member`].
    pub(super) fn counter(
        &self,
        limit: &'p Limit,
        identity: &Identity<'_>,
        role: ChargeRole,
    ) -> Result<Option<ChargedCounter>, Rejection> {
        let keys = KeyBuilder { context: self, per: &limit.per, identity };
        if role.is_enforced() {
            keys.check_members()?;
            self.check_stream_usage(self.cost(limit))?;
        }
        let Some((owner, entry)) = keys.hash() else { return Ok(None) };
        let reserved = self.reserved(limit, self.cost(limit), role)?;
        Ok(Some(ChargedCounter { owner, entry, reserved, origin: keys.origin(limit.open) }))
    }

    /// Checks that a request which wants a stream asks for its usage, where a cost requires that.
    ///
    /// # Errors
    /// [`Rejection::NoStreamUsage`] and [`Rejection::Member`].
    fn check_stream_usage(&self, cost: &Cost) -> Result<(), Rejection> {
        let Some((asked, stream_usage)) = cost.asked_usage() else { return Ok(()) };
        let Some(facts) = self.input.facts.get() else { return Ok(()) };
        let lacks = facts.lacks_usage(asked)? || facts.is_unread_json;
        match stream_usage {
            StreamUsage::Require if lacks => Err(Rejection::NoStreamUsage),
            StreamUsage::Require | StreamUsage::Inject | StreamUsage::Estimate => Ok(()),
        }
    }

    /// Adds the charges of one limit on one counter.
    pub(super) fn add_counter(
        &self,
        share: &LimitShare<'p>,
        counter: ChargedCounter,
        identity: &Identity<'_>,
        plan: &mut ChargePlan<'p>,
    ) {
        let &LimitShare { limit, role, allowances, candidates } = share;
        let ChargedCounter { owner, entry, reserved, origin } = counter;
        let Reserved { units: reserved, input_units } = reserved;
        let key = |id| Key::new(owner, entry, id);
        let cost = self.cost(limit);
        let with_roles = allowances
            .iter()
            .map(|allowance| (allowance, role))
            .chain(candidates.iter().map(|allowance| (allowance, ChargeRole::Candidate)));
        let may_be_refunded =
            limit.refund.at_most.is_some() && self.may_be_refunded(limit, identity);
        for (allowance, role) in with_roles {
            let planned = PlannedLimit { limit, allowance, cost, role, input_units };
            let units = match allowance.quota.holds_leases() {
                true => 1,
                false => reserved,
            };
            let charge = planned.charge(key(allowance.id), units, origin);
            plan.add(planned, charge);
            let bound = allowance.refunds.as_ref().filter(|_| may_be_refunded && charge.takes());
            if let Some(RefundBound { quota, id }) = bound {
                let role = ChargeRole::Refund;
                let charge = Charge { key: key(*id), quota, stance: role.stance(), ..charge };
                plan.add(PlannedLimit { limit, allowance, cost, role, input_units }, charge);
            }
        }
    }

    /// What a request is charged at first.
    ///
    /// # Errors
    /// [`Rejection::Member`]: what its body says cannot be counted by.
    fn reserved(
        &self,
        limit: &Limit,
        cost: &Cost,
        role: ChargeRole,
    ) -> Result<Reserved, Rejection> {
        let fixed = Reserved { units: cost.of(self.input.head.method()), input_units: 0 };
        let (Some(reserve), Some(facts)) = (&cost.reserve, self.input.facts.get()) else {
            return Ok(fixed);
        };
        // Of a request of the past nobody has the body, but its log may say what came of it.
        let used = self.input.dry_run.map(|dry_run| &dry_run.used);
        if let Some(units) = used.and_then(|used| used.reserved(&limit.name)) {
            return Ok(Reserved { units: units_of(units, NonZeroU64::MIN), ..fixed });
        }
        let reserve = match (&**reserve, self.message) {
            (Reserve::Members(reserve), _) => reserve,
            (Reserve::Messages(costs), Some(message)) => {
                return Ok(Reserved { units: costs.of(message), input_units: 0 });
            }
            (Reserve::Messages(_), None) => return Ok(fixed),
            (Reserve::Query(measure), _) => {
                let known = facts.queries.iter().find(|(own, _)| own == measure);
                return match known {
                    Some((_, Ok(units))) => {
                        let units = query_units(*units, cost.default);
                        Ok(Reserved { units, input_units: 0 })
                    }
                    Some((_, Err(refusal))) if role.is_enforced() => Err(refusal.clone().into()),
                    Some(_) | None => Ok(fixed),
                };
            }
        };
        match reserve.units(cost.default, facts.members.as_ref(), facts.bytes) {
            Ok(units) => {
                let input_units = reserve.input_units(facts.bytes.unwrap_or_default());
                Ok(Reserved { units, input_units: input_units.min(units) })
            }
            // A limit in shadow mode refuses nothing.
            Err(_) if role == ChargeRole::Shadow => Ok(fixed),
            Err(unfit) => Err(unfit.into()),
        }
    }
}
