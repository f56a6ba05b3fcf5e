//! Preflights that go on to the upstream: without a token, charged to their address.
//!
//! Nobody is called to account for them, so the address is: by the limits of their route that count by
//! `client.ip` or, where none of these bounds the address as such, by a limit of our own.

use super::{
    charges::{AskedLimit, Charges, Role},
    judge::Judge,
    own_limits::PREFLIGHTS,
    tally::Tally,
};
use crate::{policy::KeyPart, response::Rejection};

impl Judge {
    /// Charges a preflight that is to be forwarded. Tells what came of it as far as clients are told,
    /// and why it is denied, if it is.
    pub(super) async fn charge_preflight<'p>(
        &self,
        charges: Charges<'_, 'p>,
    ) -> (Option<Tally<'p>>, Option<Rejection>) {
        let Charges { identifier, policy, client, .. } = charges;
        let nobody = identifier.unidentified(&policy.identity, client.address);
        let mut asked = charges.by_address(&nobody);
        let has_limits = !asked.limits.is_empty();
        if !asked.limits.iter().any(bounds_address) && !policy.exempt.contains(&nobody) {
            PREFLIGHTS.ask(&charges, &nobody, &mut asked);
        }
        let (tally, denied) = self.charge(asked, charges, &nobody).await;
        (tally.filter(|_| has_limits || denied.is_some()), denied)
    }
}

/// Whether a limit bounds all that comes from an address. One that counts by more than that has a
/// fresh counter for each path or header that somebody makes up.
fn bounds_address(asked: &AskedLimit<'_>) -> bool {
    let is_enforced = matches!(asked.role, Role::Primary | Role::Secondary);
    is_enforced && asked.limit.per.parts.as_slice() == [KeyPart::ClientIp]
}
