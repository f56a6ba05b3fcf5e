//! How a request is handled and why, in words: for people and for machines.
//!
//! An explanation comes from the code that answers requests, or from a second call to parts of that
//! code: those that find the credential, what a limit counts by, and its key. It never contains a
//! token, a cookie, or the value of a header that a client has sent.

mod caller;
mod limits;
mod prospect;

use std::net::IpAddr;

use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    caller::FoundCaller,
    limits::{FoundLimit, FoundStanding, FoundWindow},
    prospect::Prospect,
};
use tollgate_gate::charge_context::ChargeContext;
use tollgate_identity::IdentityError;
use tollgate_policy::{HostPattern, Policies, Policy, RoutePart};

use super::{
    diff::words,
    draft::{Draft, DraftResult},
};

/// How a request is handled, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The request, as it was understood.
    pub request: Understood,
    /// The policy that decides about it.
    pub policy: Option<ChosenPolicy>,
    /// Routes that come before the one that it takes, and in what they differ from it.
    pub passed_over: Vec<PassedRoute>,
    /// The route that it takes.
    pub route: Option<TakenRoute>,
    /// Who sends it. None: the request was refused before that was checked.
    pub caller: Option<FoundCaller>,
    /// The limits that apply, and those that might have.
    pub limits: Vec<FoundLimit>,
    /// What would happen.
    pub prospect: Prospect,
}

/// A request, as it was understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Understood {
    /// Its method.
    pub method: String,
    /// The host that it is for.
    pub host: Option<String>,
    /// Its path, in the normal form in which it is matched and forwarded.
    pub path: String,
    /// The client's address.
    pub address: IpAddr,
}

/// The policy that decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenPolicy {
    /// Its name.
    pub name: String,
    /// Why it is this one.
    pub because: String,
}

/// A route that a request does not take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassedRoute {
    /// Its path pattern.
    pub route: String,
    /// What of it the request does not match.
    pub differs_in: Vec<RoutePart>,
}

/// The route that a request takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TakenRoute {
    /// Its path pattern.
    pub route: String,
    /// Whether it looks at tokens, and at whose.
    pub auth: String,
    /// Scopes that a token must grant.
    pub scopes: Vec<String>,
}

/// What an explanation is made from.
pub(super) struct ExplanationInput<'r, 'p> {
    pub(super) result: DraftResult<'p>,
    /// None: the request's form is not sound, or it is about the server itself.
    pub(super) context: Option<ChargeContext<'r, 'p>>,
    /// What is wrong with the request's credentials, where it goes on without them.
    pub(super) ignored: Option<IdentityError>,
}

impl Explanation {
    pub(super) fn of(
        draft: &Draft,
        address: IpAddr,
        input: &ExplanationInput<'_, '_>,
        policies: &Policies,
    ) -> Explanation {
        let ExplanationInput { result, context, .. } = input;
        let state = &result.state;
        let head = context.as_ref().map(|context| context.input.head);
        let host = head.and_then(|head| head.host());
        let Parts { method, uri, .. } = &draft.head;
        Explanation {
            request: Understood {
                method: method.to_string(),
                host: host.map(str::to_owned),
                path: head.map_or(uri.path(), |head| &head.path).to_owned(),
                address,
            },
            policy: state.policy.map(|policy| ChosenPolicy::of(policy, host, policies)),
            passed_over: context.as_ref().map(passed_over).unwrap_or_default(),
            route: state.policy.zip(state.route).map(|(policy, route)| TakenRoute {
                route: route.name.to_string(),
                auth: words::auth(&route.auth, policy),
                scopes: route.scopes.iter().map(ToString::to_string).collect(),
            }),
            caller: context.as_ref().and_then(|context| caller::found(context, input)),
            limits: context.as_ref().map(|own| limits::found(own, state)).unwrap_or_default(),
            prospect: prospect::of(draft, result),
        }
    }

    /// The same without the standings of limits: the counters were made for this explanation only.
    #[must_use]
    pub fn without_standings(mut self) -> Explanation {
        let windows = self.limits.iter_mut().flat_map(|limit| &mut limit.windows);
        windows.for_each(|window| window.standing = None);
        self
    }
}

impl ChosenPolicy {
    fn of(policy: &Policy, host: Option<&str>, policies: &Policies) -> ChosenPolicy {
        let pattern = host.and_then(|host| {
            let mut matching = policy.hosts.iter().filter(|pattern| pattern.matches(host));
            let exact = |pattern: &&HostPattern| matches!(pattern, HostPattern::Exact(_));
            matching.clone().find(exact).or_else(|| matching.next())
        });
        let because = match pattern {
            Some(pattern) => format!("it is for {}", words::host(pattern)),
            None if policies.iter().count() == 1 => "it is for every host".into(),
            None => "it is for hosts that no other policy names".into(),
        };
        ChosenPolicy { name: policy.name.to_string(), because }
    }
}

/// The routes before the one that the request takes, or would take if it were not refused; all of
/// them, if none matches.
fn passed_over(context: &ChargeContext<'_, '_>) -> Vec<PassedRoute> {
    let ChargeContext { policy, route, input, .. } = context;
    let is_taken = |at: usize| {
        let taken = route.zip(policy.routes.get(at));
        taken.is_some_and(|(taken, route)| std::ptr::eq(taken, route))
    };
    let differences = policy.router.differences(input.head.as_route_request(input.client.address));
    differences
        .enumerate()
        .take_while(|(at, differs_in)| !is_taken(*at) && !differs_in.is_empty())
        .filter_map(|(at, differs_in)| {
            let route = policy.routes.get(at)?.name.to_string();
            Some(PassedRoute { route, differs_in })
        })
        .collect()
}
