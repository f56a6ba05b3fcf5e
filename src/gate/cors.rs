//! Pages of other origins: their browsers' questions, and whether they may read what is answered here.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Method, header};

use super::{
    head::{Head, declares_body},
    judge::{Outcome, Passage, asks_for_standings},
};
use crate::{
    identity::Client,
    policy::{self, Cors, Policy, Preflight, Route},
    response::AllowedOrigin,
};

/// A browser's question that takes no token.
pub(super) struct Preflighted<'p> {
    /// The route of the request that the browser would send; none: it would ask how its limits stand.
    pub(super) route: Option<&'p Route>,
    /// Whose pages may send it.
    pub(super) cors: &'p Cors,
    pub(super) course: Outcome<'p>,
}

/// Whether a request is such a question, and what becomes of it. None: it is a request like any
/// other. So is one of a page that the route knows nothing about, or one with a body, which no browser
/// sends: nobody is to get through without a token with what is not a question.
pub(super) fn preflight<'p>(
    policy: &'p Policy,
    head: &Head<'_>,
    client: Client<'_>,
) -> Option<Preflighted<'p>> {
    let headers = client.headers;
    if *head.method != Method::OPTIONS {
        return None;
    }
    let origin = origin(headers)?;
    let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let request = policy::Request { method: &method, ..head.as_route_request(client.address) };
    if asks_for_standings(policy, request) {
        // It is about what is told here: no upstream knows of it, whatever becomes of others.
        let cors = of_standings(policy, request).filter(|_| !declares_body(headers))?;
        return Some(Preflighted { route: None, cors, course: Outcome::Preflight(cors) });
    }
    let (route, upstream) = policy.route(request)?;
    let cors = route.cors.as_deref()?;
    let course = match &cors.preflight {
        Preflight::Check => return None,
        _ if declares_body(headers) => return None,
        Preflight::Answer { .. } => Outcome::Preflight(cors),
        Preflight::Pass if !cors.allows(origin) => return None,
        Preflight::Pass => {
            Outcome::Forward(upstream, head.target(&policy.identity.sources, &route.rewrite))
        }
    };
    Some(Preflighted { route: Some(route), cors, course })
}

/// Whose pages may read how their caller stands: those that the policy names or, if it names none,
/// the route that has the path.
fn of_standings<'p>(policy: &'p Policy, request: policy::Request<'_>) -> Option<&'p Cors> {
    let of_route = || policy.route(request)?.0.cors.as_deref();
    policy.cors.as_deref().or_else(of_route)
}

/// The origin of the page that sends a request, if it may read an answer that is made here. `head` is
/// none of a request whose form is not sound.
pub(super) fn reader(
    passage: &Passage<'_>,
    head: Option<&Head<'_>>,
    headers: &HeaderMap,
    address: IpAddr,
) -> Option<AllowedOrigin> {
    let origin = origin(headers)?;
    let cors = match (passage.cors, passage.route) {
        (Some(cors), _) => cors,
        (None, Some(route)) => route.cors.as_deref()?,
        (None, None) => {
            let (policy, request) = (passage.policy?, head?.as_route_request(address));
            match asks_for_standings(policy, request) {
                true => of_standings(policy, request)?,
                // What came to no route of its own is held to the one that it would have taken.
                false => policy.route(request)?.0.cors.as_deref()?,
            }
        }
    };
    AllowedOrigin::of(cors, origin)
}

/// The one `Origin` field.
fn origin(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut fields = headers.get_all(header::ORIGIN).iter();
    fields.next().filter(|_| fields.next().is_none())
}
