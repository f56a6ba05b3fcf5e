//! Preflights that go on to the upstream: without a token, charged to their address.
//!
//! Nobody is called to account for them, so the address is: by the limits of their route that count by
//! `client.ip` or, where none of these bounds the address as such, by a limit of our own.

use std::{sync::LazyLock, time::Duration};

use http::HeaderValue;

use super::{
    charges::{Asked, AskedLimit, Charges, Role},
    judge::Judge,
    keys::Keys,
    tally::Tally,
};
use crate::{
    identity::Identity,
    limit::{Align, Charge, Fallback, FixedWindow, Key, LimitId, Quota},
    policy::{
        Allowance, Cost, Enforcement, KeyPart, Limit, OnMissing, Overrides, Per, Refund, Statuses,
    },
    response::Rejection,
};

/// What denials and logs call our own limit.
const NAME: &str = "preflights";

/// Preflights of an address in a window: what the pages of an office may well ask, and few servers
/// notice.
const MOST: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(60);

/// Our own limit, and what it allows.
static OWN: LazyLock<(Limit, Allowance)> = LazyLock::new(|| {
    let quota = Quota::FixedWindow(FixedWindow { limit: MOST, align: Align::FirstRequest(WINDOW) });
    let per = Per {
        parts: vec![KeyPart::ClientIp],
        on_missing: OnMissing::Skip,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
    };
    let none = Statuses::default();
    let limit = Limit {
        name: NAME.into(),
        resource: HeaderValue::from_static(NAME),
        per,
        rates: Vec::new(),
        overrides: Overrides::default(),
        cost: Cost::ONE,
        refund: Refund { everybody: none, authenticated: none },
        count_when: None,
        enforcement: Enforcement::Everybody,
        fallback: Fallback::Local,
        candidate: Vec::new(),
    };
    let allowance = Allowance {
        // No policy has an empty name: the counter is that of all of them.
        id: LimitId::new("", NAME, "fixed_window", WINDOW.as_micros() as u64),
        limit: MOST.into(),
        name: NAME.into(),
        window_secs: Some(WINDOW.as_secs()),
        quota,
    };
    (limit, allowance)
});

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
            ask_own(&charges, &nobody, &mut asked);
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

fn ask_own(charges: &Charges<'_, '_>, nobody: &Identity<'_>, asked: &mut Asked<'_>) {
    let (limit, allowance) = &*OWN;
    let keys = Keys { charges, per: &limit.per, identity: nobody };
    let Some((owner, entry)) = keys.hash() else { return };
    let has_primary = asked.limits.iter().any(|asked| asked.role == Role::Primary);
    let role = if has_primary { Role::Secondary } else { Role::Primary };
    asked.limits.push(AskedLimit { limit, allowance, cost: &limit.cost, role });
    asked.charges.push(Charge {
        key: Key::new(owner, entry, allowance.id),
        quota: &allowance.quota,
        cost: 1,
        stance: role.stance(),
        scope: limit.scope(),
        fallback: limit.fallback,
    });
}
