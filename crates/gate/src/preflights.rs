//! Preflight requests that are forwarded to the upstream. They have no token, so no caller is
//! known, and they are charged to the client's address: by the limits of their route that count by
//! `client.ip` or, where none of these bounds the address as such, by a built-in limit.

use tollgate_policy::KeyPart;
use tollgate_response::Rejection;

use super::{
    built_in_limits::PREFLIGHTS, charge_context::ChargeContext, charge_plan::PlannedLimit,
    judge::Judge, tally::Tally,
};

impl Judge {
    /// Charges a preflight request that is to be forwarded. The tally is for the client: it has
    /// none if only the built-in limit was charged and had room.
    pub(super) async fn charge_preflight<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<(), Rejection> {
        let ChargeContext { identifier, policy, input, .. } = context;
        let unidentified = identifier.unidentified(&policy.identity, input.client.address);
        let mut plan = context.plan_by_address(&unidentified);
        let has_limits = !plan.limits.is_empty();
        if !plan.limits.iter().any(bounds_address) && !policy.exempt.contains(&unidentified) {
            PREFLIGHTS.add_to(&mut plan, &context, &unidentified);
        }
        self.charge(&mut plan, context, &unidentified, tally).await?;
        if !has_limits {
            *tally = None;
        }
        Ok(())
    }
}

/// Whether a limit bounds all requests from an address. A limit that counts by more than the
/// address has a new counter for each path or header value that a client makes up.
fn bounds_address(planned: &PlannedLimit<'_>) -> bool {
    planned.role.is_enforced() && planned.limit.per.parts.as_slice() == [KeyPart::ClientIp]
}
