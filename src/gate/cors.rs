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

/// A browser's question that takes no token and is charged to nobody.
pub(super) struct Preflighted<'p> {
    /// The route of the request that the browser would send.
    pub(super) route: &'p Route,
    pub(super) course: Outcome<'p>,
}

/// Whether a request is such a question, and what becomes of it. None: it is a request like any
/// other. So is one of a page that the route knows nothing about, or one with a body, which no browser
/// sends: nobody is to get through for free what is not a question.
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
    let (route, upstream) = policy.route(request)?;
    let cors = route.cors.as_deref()?;
    let course = match &cors.preflight {
        Preflight::Check => return None,
        _ if declares_body(headers) => return None,
        Preflight::Answer { .. } => Outcome::Preflight(cors),
        Preflight::Pass if !cors.allows(origin) => return None,
        // It is about what is told here: no upstream knows of it.
        Preflight::Pass if asks_for_standings(policy, request) => Outcome::Preflight(cors),
        Preflight::Pass => {
            Outcome::Forward(upstream, head.target(&policy.identity.sources, &route.rewrite))
        }
    };
    Some(Preflighted { route, course })
}

/// The origin of the page that sends a request, if it may read an answer that is made here. `head` is
/// none of a request whose form is not sound.
pub(super) fn reader(
    passage: &Passage<'_>,
    head: Option<&Head<'_>>,
    headers: &HeaderMap,
    address: IpAddr,
) -> Option<AllowedOrigin> {
    // A request that came to no route of its own is held to the one that it would have taken.
    let would_take = || {
        origin(headers)?;
        Some(passage.policy?.route(head?.as_route_request(address))?.0)
    };
    let cors: &Cors = passage.route.or_else(would_take)?.cors.as_deref()?;
    AllowedOrigin::of(cors, origin(headers)?)
}

/// The one `Origin` field.
fn origin(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut fields = headers.get_all(header::ORIGIN).iter();
    fields.next().filter(|_| fields.next().is_none())
}
