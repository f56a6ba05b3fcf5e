//! Limits that no policy has: how much one address may do of what no other limit is charged for.

use std::{sync::LazyLock, time::Duration};

use http::HeaderValue;
use tollgate_identity::Identity;
use tollgate_limit::{Align, Fallback, FixedWindow, Key, LimitId, Quota, WhenFull};
use tollgate_policy::{
    Allowance, Cost, Enforcement, KeyPart, Limit, OnMissing, OpenParts, Overrides, Per, Refund,
    Statuses,
};

use super::{
    charge_context::ChargeContext,
    charge_context::keys::KeyBuilder,
    charge_plan::{ChargePlan, ChargeRole, PlannedLimit},
};

/// Preflight requests that go on to an upstream: as many as the pages of an office may well send in
/// a minute, and few enough for any server.
pub(super) static PREFLIGHTS: LazyLock<BuiltInLimit> =
    LazyLock::new(|| BuiltInLimit::new("preflights", 1_000, Duration::from_secs(60)));

/// Queries of standings that go to Redis, in a second.
pub(super) static STANDINGS: LazyLock<BuiltInLimit> =
    LazyLock::new(|| BuiltInLimit::new("rate_limit", 100, Duration::from_secs(1)));

/// A number of requests in a window, for each address (IPv6: a /64), whichever policy they are for.
pub(super) struct BuiltInLimit {
    limit: Limit,
    allowance: Allowance,
}

impl BuiltInLimit {
    /// A limit that has this name in denials and logs.
    fn new(name: &'static str, most: u32, window: Duration) -> BuiltInLimit {
        let per = Per {
            parts: vec![KeyPart::ClientIp],
            on_missing: OnMissing::Skip,
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        };
        let none = Statuses::default();
        let limit = Limit {
            name: name.into(),
            position: usize::MAX,
            resource: HeaderValue::from_static(name),
            per,
            verified: false,
            rates: Vec::new(),
            overrides: Overrides::default(),
            cost: Cost::ONE,
            refund: Refund { everybody: none, authenticated: none, at_most: None },
            count_when: None,
            enforcement: Enforcement::AllCallers,
            fallback: Fallback::Local,
            full: WhenFull::default(),
            candidate: Vec::new(),
            open: OpenParts::default(),
        };
        let align = Align::FirstRequest(window);
        let allowance = Allowance {
            // No policy has an empty name, so that all policies share the counter.
            id: LimitId::new("", name, "fixed_window", window.as_micros() as u64),
            limit: most.into(),
            name: name.into(),
            window_secs: Some(window.as_secs()),
            quota: Quota::FixedWindow(FixedWindow { limit: most, align }),
            refunds: None,
        };
        BuiltInLimit { limit, allowance }
    }

    /// Adds its charge to a plan.
    pub(super) fn add_to<'p>(
        &'p self,
        plan: &mut ChargePlan<'p>,
        context: &ChargeContext<'_, '_>,
        identity: &Identity<'_>,
    ) {
        let BuiltInLimit { limit, allowance } = self;
        let keys = KeyBuilder { context, per: &limit.per, identity };
        let Some((owner, entry)) = keys.hash() else { return };
        let role = ChargeRole::Secondary;
        let planned = PlannedLimit { limit, allowance, cost: &limit.cost, role, input_units: 0 };
        let key = Key::new(owner, entry, allowance.id);
        plan.add(planned, planned.charge(key, 1, keys.origin(limit.open)));
    }
}
