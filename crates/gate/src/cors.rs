//! Pages of other origins: their browsers' preflight requests, and whether they may read responses
//! of this proxy.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Method, header};
use tollgate_policy::{self as policy, Cors, Policy, Route};
use tollgate_response::AllowedOrigin;

use super::{
    head::{Head, asks_for_standings, declares_body},
    judge_input::JudgeInput,
    request_state::{Action, Forward, RequestState},
};

/// A browser's preflight request, which takes no token.
pub(super) struct Preflight<'p> {
    /// The route of the request that the browser would send; none: that one would query standings.
    pub(super) route: Option<&'p Route>,
    /// Which pages may send it.
    pub(super) cors: &'p Cors,
    pub(super) action: Action<'p>,
}

/// The preflight request that this is, if it is one; none: it is a request like any other. So is
/// one from a page that the route does not allow, and one with a body, which no browser sends: only
/// real preflight requests may get through without a token. Another proxy that asks would take any
/// answer of ours for a denial or for leave to forward: there all of them are forwarded.
pub(super) fn preflight<'p>(policy: &'p Policy, input: &JudgeInput<'_>) -> Option<Preflight<'p>> {
    let &JudgeInput { head, client, is_asked, .. } = input;
    let headers = client.headers;
    if *head.method != Method::OPTIONS {
        return None;
    }
    let origin = origin(headers)?;
    let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let request = policy::Request { method: &method, ..head.as_route_request(client.address) };
    if asks_for_standings(policy, request) && !is_asked {
        // Standings are reported here and no upstream knows of them, whatever other routes do.
        let cors = of_standings(policy, request).filter(|_| !declares_body(headers))?;
        return Some(Preflight { route: None, cors, action: Action::Preflight(cors) });
    }
    let (route, upstream) = policy.route(request)?;
    let cors = route.cors.as_deref()?;
    let action = match &cors.preflight {
        policy::Preflight::Check => return None,
        _ if declares_body(headers) => return None,
        policy::Preflight::Answer { .. } if !is_asked => Action::Preflight(cors),
        _ if !cors.allows(origin) => return None,
        policy::Preflight::Pass | policy::Preflight::Answer { .. } => {
            let target = head.target(&policy.identity.sources, route);
            Action::Forward(Forward { upstream, target })
        }
    };
    Some(Preflight { route: Some(route), cors, action })
}

/// Which pages may read the standings of their caller: those that the policy names or, if it names
/// none, those of the route that has the path.
fn of_standings<'p>(policy: &'p Policy, request: policy::Request<'_>) -> Option<&'p Cors> {
    let of_route = || policy.route(request)?.0.cors.as_deref();
    policy.cors.as_deref().or_else(of_route)
}

/// The origin of the page that sends a request, if it may read a response of this proxy. Without a
/// `head`, the request's form is not sound.
pub(super) fn reader(
    state: &RequestState<'_>,
    head: Option<&Head<'_>>,
    headers: &HeaderMap,
    address: IpAddr,
) -> Option<AllowedOrigin> {
    let origin = origin(headers)?;
    let cors = match (state.cors, state.route) {
        (Some(cors), _) => cors,
        (None, Some(route)) => route.cors.as_deref()?,
        (None, None) => {
            let policy = state.policy?;
            let request = head?.as_route_request(address);
            match asks_for_standings(policy, request) {
                true => of_standings(policy, request)?,
                // A request that was refused before routing counts for the route it would have
                // taken.
                false => policy.route(request)?.0.cors.as_deref()?,
            }
        }
    };
    AllowedOrigin::of(cors, origin)
}

/// The value of `Origin`, if the field comes once.
fn origin(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut fields = headers.get_all(header::ORIGIN).iter();
    fields.next().filter(|_| fields.next().is_none())
}
