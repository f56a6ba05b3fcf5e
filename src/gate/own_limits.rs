//! Limits that no policy has: what one address may do of what is charged to nobody else.

use std::{sync::LazyLock, time::Duration};

use http::HeaderValue;

use super::{
    charges::{Asked, AskedLimit, Charges, Role},
    keys::Keys,
};
use crate::{
    identity::Identity,
    limit::{Align, Charge, Fallback, FixedWindow, Key, LimitId, Quota, WhenFull},
    policy::{
        Allowance, Cost, Enforcement, KeyPart, Limit, OnMissing, OpenParts, Overrides, Per, Refund,
        Statuses,
    },
};

/// Preflights that go on to an upstream: what the pages of an office may well ask in a minute, and few
/// servers notice.
pub(super) static PREFLIGHTS: LazyLock<OwnLimit> =
    LazyLock::new(|| OwnLimit::new("preflights", 1_000, Duration::from_secs(60)));

/// Questions to Redis how callers stand, in a second.
pub(super) static STANDINGS: LazyLock<OwnLimit> =
    LazyLock::new(|| OwnLimit::new("rate_limit", 100, Duration::from_secs(1)));

/// So much in a window, for each address (IPv6: a /64), whichever policy the requests are for.
pub(super) struct OwnLimit {
    limit: Limit,
    allowance: Allowance,
}

impl OwnLimit {
    /// One that denials and logs call `name`.
    fn new(name: &'static str, most: u32, window: Duration) -> OwnLimit {
        let per = Per {
            parts: vec![KeyPart::ClientIp],
            on_missing: OnMissing::Skip,
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        };
        let none = Statuses::default();
        let limit = Limit {
            name: name.into(),
            resource: HeaderValue::from_static(name),
            per,
            rates: Vec::new(),
            overrides: Overrides::default(),
            cost: Cost::ONE,
            refund: Refund { everybody: none, authenticated: none, at_most: None },
            count_when: None,
            enforcement: Enforcement::Everybody,
            fallback: Fallback::Local,
            full: WhenFull::default(),
            candidate: Vec::new(),
            open: OpenParts::default(),
        };
        let align = Align::FirstRequest(window);
        let allowance = Allowance {
            // No policy has an empty name: the counter is that of all of them.
            id: LimitId::new("", name, "fixed_window", window.as_micros() as u64),
            limit: most.into(),
            name: name.into(),
            window_secs: Some(window.as_secs()),
            quota: Quota::FixedWindow(FixedWindow { limit: most, align }),
            refunds: None,
        };
        OwnLimit { limit, allowance }
    }

    /// Adds what it asks for.
    pub(super) fn ask<'p>(
        &'p self,
        charges: &Charges<'_, '_>,
        nobody: &Identity<'_>,
        asked: &mut Asked<'p>,
    ) {
        let OwnLimit { limit, allowance } = self;
        let keys = Keys { charges, per: &limit.per, identity: nobody };
        let Some((owner, entry)) = keys.hash() else { return };
        let role = Role::Secondary;
        asked.limits.push(AskedLimit { limit, allowance, cost: &limit.cost, role });
        asked.charges.push(Charge {
            key: Key::new(owner, entry, allowance.id),
            quota: &allowance.quota,
            cost: 1,
            stance: role.stance(),
            scope: limit.scope(),
            fallback: limit.fallback,
            full: limit.full,
            origin: keys.origin(limit.open),
        });
    }
}
