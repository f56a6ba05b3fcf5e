//! The limits that a request meets: what they count by, how much, and how they stand.

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_gate::{
    charge_context::{ChargeContext, keys::KeyBuilder},
    charge_plan::{ChargePlan, ChargeRole, PlannedLimit},
    request_state::RequestState,
    tally::DecidedCharge,
    unfit_claims::unfit_claim,
};
use tollgate_identity::Identity;
use tollgate_limit::{Charge, DecidedBy, WhenFull};
use tollgate_policy::{CostSource, KeyPart, Limit, OnMissing, Per};
use tollgate_response::Rejection;

use crate::diff::words;

/// A limit that applies to a request, or might have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundLimit {
    /// Its name.
    pub name: String,
    /// `primary`: the one that response headers are about; `secondary`; `shadow`: it only counts.
    /// None: it does not apply.
    pub role: Option<String>,
    /// What it counts by, with the request's values: `caller user:42`, `path /login`. Values of
    /// headers and cookies are left out.
    pub per: Vec<String>,
    /// The name of its counter, as `tollgate look` takes it: `user:42`, `jwt.org:acme`. What may be
    /// a secret is a hash. None: it does not apply.
    #[serde(default)]
    pub counter: Option<String>,
    /// How much, in each of its windows.
    pub windows: Vec<FoundWindow>,
    /// What the request costs.
    pub cost: Option<u32>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// How much, in one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundWindow {
    /// What it is called where each window has a name.
    pub name: String,
    /// How much, and how that is counted: `5000/hour`.
    pub rate: String,
    /// Whether it is only tried out.
    pub is_candidate: bool,
    /// Whether the request fits.
    pub fits: bool,
    /// How it stands before the request. None: no store was queried, or the standing is not known.
    pub standing: Option<FoundStanding>,
}

/// How a window stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundStanding {
    /// Units that can be used.
    pub limit: u32,
    /// Units used.
    pub used: u32,
    /// Units left.
    pub remaining: u32,
    /// When all are there again.
    pub reset: String,
}

/// All limits of the route, or of the policy where the request is about the limits themselves.
pub(super) fn found(context: &ChargeContext<'_, '_>, state: &RequestState<'_>) -> Vec<FoundLimit> {
    let identifier = context.identifier;
    // A client that could not be identified is charged by its address, by limits that count so.
    let unidentified;
    let (identity, is_unidentified) = match &state.identity {
        Some(identity) => (identity, false),
        None if state.tally.is_some() => {
            unidentified =
                identifier.unidentified(&context.policy.identity, context.input.client.address);
            (&unidentified, true)
        }
        None => return Vec::new(),
    };
    if context.policy.exempt.contains(identity) {
        let limits = context.route.into_iter().flat_map(|route| &route.limits);
        let limits = limits.filter_map(|at| context.policy.limits.get(*at));
        return limits
            .map(|limit| FoundLimit::not_applied(limit, "the caller is exempt"))
            .collect();
    }
    let mut plan = ChargePlan::default();
    let limits = context.limits(identity).filter(|limit| !is_unidentified || limit.is_by_address());
    limits.map(|limit| found_limit(limit, context, identity, state, &mut plan)).collect()
}

fn found_limit<'p>(
    limit: &'p Limit,
    context: &ChargeContext<'_, 'p>,
    identity: &Identity<'_>,
    state: &RequestState<'_>,
    plan: &mut ChargePlan<'p>,
) -> FoundLimit {
    let before = plan.limits.len();
    let added = context.add_limit(limit, identity, plan);
    let own = || {
        let own = plan.limits.iter().zip(&plan.charges).skip(before);
        own.filter(|(planned, _)| planned.role != ChargeRole::Refund)
    };
    let keys = |part: &KeyPart| key_in_words(part, limit, context, identity);
    let (per, lacking): (Vec<_>, Vec<_>) =
        limit.per.parts.iter().map(keys).partition(Result::is_ok);
    let lacking: Vec<String> = lacking.into_iter().filter_map(Result::err).collect();
    let Some((first, charge)) = own().next() else {
        let tier = context.policy.identity.tiers.get(identity.tier);
        let shares = limit.per.on_missing == OnMissing::Share;
        let why = match added {
            Err(Rejection::MissingKey(_)) => {
                format!("refused: the request lacks {}", lacking.join(", "))
            }
            Err(rejection) => format!("refused: {rejection}"),
            Ok(()) if lacking.is_empty() || shares => {
                format!("unlimited for tier {}", tier.map(|tier| &*tier.name).unwrap_or_default())
            }
            Ok(()) => format!("not counted: the request lacks {}", lacking.join(", ")),
        };
        return FoundLimit::not_applied(limit, &why);
    };
    let mut counter = String::new();
    KeyBuilder { context, per: &limit.per, identity }.write_name(&mut counter);
    FoundLimit {
        name: limit.name.to_string(),
        role: Some(role_in_words(first.role).into()),
        per: per.into_iter().filter_map(Result::ok).collect(),
        counter: Some(counter),
        windows: own().map(|(planned, charge)| window(planned, charge, state)).collect(),
        cost: context.route.map(|_| charge.cost),
        notes: notes(limit, first, context, identity),
    }
}

impl FoundLimit {
    fn not_applied(limit: &Limit, why: &str) -> FoundLimit {
        FoundLimit {
            name: limit.name.to_string(),
            role: None,
            per: Vec::new(),
            counter: None,
            windows: Vec::new(),
            cost: None,
            notes: vec![why.to_owned()],
        }
    }
}

fn role_in_words(role: ChargeRole) -> &'static str {
    match role {
        ChargeRole::Primary => "primary",
        ChargeRole::Secondary => "secondary",
        ChargeRole::Shadow | ChargeRole::Candidate | ChargeRole::Refund => "shadow",
    }
}

fn window(
    planned: &PlannedLimit<'_>,
    charge: &Charge<'_>,
    state: &RequestState<'_>,
) -> FoundWindow {
    let mut items = state.tally.iter().flat_map(|tally| tally.charges());
    let item: Option<DecidedCharge<'_, '_>> = items.find(|item| item.charge.key == charge.key);
    let known = item.filter(|item| item.outcome.decided_by != DecidedBy::NoStore);
    FoundWindow {
        name: planned.allowance.name.to_string(),
        rate: words::quota(charge.quota),
        is_candidate: planned.role == ChargeRole::Candidate,
        fits: known.is_none_or(|item| item.outcome.fits()),
        standing: known.map(|item| {
            let standing = item.standing();
            FoundStanding {
                limit: standing.limit,
                used: standing.used,
                remaining: standing.remaining,
                reset: standing.reset.to_string(),
            }
        }),
    }
}

fn notes(
    limit: &Limit,
    planned: &PlannedLimit<'_>,
    context: &ChargeContext<'_, '_>,
    identity: &Identity<'_>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(own) = context.override_of(limit, identity) {
        let until = own.until.map(|until| format!(", until {until}")).unwrap_or_default();
        notes.push(format!("an override of {own}{until}: {}", own.why));
    }
    if let Some(name) = planned.cost.header()
        && !planned.allowance.quota.holds_leases()
    {
        let abandoned = match planned.cost.abandoned {
            Some(units) => units.to_string(),
            None => "the highest recent cost".to_owned(),
        };
        notes.push(format!(
            "the response header {name} holds the actual cost; if the client disconnects before the response, the cost is {abandoned}"
        ));
    }
    if let Some(source) = planned.cost.source.as_deref()
        && !matches!(source, CostSource::Header(_))
    {
        notes.push(format!(
            "the request is charged what it reserves; when its response has ended, the actual cost comes from {source}"
        ));
    }
    if limit.count_when.is_some() {
        notes.push(
            "only some responses count: the request is charged now, and refunded if its response does not count".into(),
        );
    }
    if let Some(percent) = limit.refund.at_most {
        notes.push(format!("at most {percent}% of the limit is refunded in a window"));
    }
    match limit.full {
        WhenFull::OpenWhileAlone => {}
        WhenFull::Open => {
            notes.push("if memory has no room for its counter, the limit is not applied".into());
        }
        WhenFull::Closed => notes.push(
            "if memory has no room for its counter, the request is refused, also while redis is unreachable".into(),
        ),
    }
    if planned.role == ChargeRole::Shadow {
        notes.push("it denies no request of this caller".into());
    }
    notes
}

/// A part of a key with its value; what is lacking, if the request has none.
fn key_in_words(
    part: &KeyPart,
    limit: &Limit,
    context: &ChargeContext<'_, '_>,
    identity: &Identity<'_>,
) -> Result<String, String> {
    let name = part.to_string();
    let on_missing = OnMissing::Skip;
    let per = Per { parts: vec![part.clone()], on_missing, ..limit.per.clone() };
    let keys = KeyBuilder { context, per: &per, identity };
    let lacks = keys.hash().is_none();
    if lacks && limit.per.shares(part) {
        return Ok(format!("no {name}, as all requests without one"));
    }
    if lacks {
        let form = match part {
            KeyPart::Claim(claim) => unfit_claim(identity, claim),
            _ => None,
        };
        return Err(match form {
            Some(form) => format!("{name}, which is {form}"),
            None => name,
        });
    }
    let value = match part {
        KeyPart::ClientIp => Some(network(context, &per)),
        _ => keys.value_in_words(part),
    };
    Ok(match value {
        Some(value) => format!("{name} {value}"),
        None => name,
    })
}

/// The addresses that are counted as one with the client's.
fn network(context: &ChargeContext<'_, '_>, per: &Per) -> String {
    let address = context.input.client.address;
    let length = if address.is_ipv4() { per.ipv4_prefix } else { per.ipv6_prefix };
    let network = IpNet::new(address, length).map(|network| network.trunc());
    match network {
        Ok(network) if network.prefix_len() < network.max_prefix_len() => network.to_string(),
        _ => address.to_string(),
    }
}
