//! What is known about a request while it is judged and after, and what is to be done with it.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tollgate_identity::Identity;
use tollgate_policy::{
    Cors, HeaderEdits, Policy, Protocol, Responses, Route, StreamUsage, Upstream,
};
use tollgate_response::{Format, Rejection};
use tollgate_upstream::downstream::InterimEdits;

use super::{body_look::BodyFacts, head::Target, kept_names::KeptNames, tally::Tally};

/// What is known about a request. It is filled in place as the request is judged.
#[derive(Default)]
pub struct RequestState<'p> {
    /// The policy for the host; none until it is known.
    pub policy: Option<&'p Policy>,
    /// The method by which the request is judged, if it overrides its own.
    pub(super) overriding_method: Option<Method>,
    /// The route that matches; none until it is known.
    pub route: Option<&'p Route>,
    /// Of a preflight request: which pages may send the request that it is about.
    pub(super) cors: Option<&'p Cors>,
    /// Who is calling; none until it is known.
    pub identity: Option<Identity<'p>>,
    /// What was charged; none if nothing was.
    pub tally: Option<Tally<'p>>,
    /// Whether the client asks if what it has is still current.
    pub(super) is_revalidation: bool,
    /// Names for what the response may charge more.
    pub(super) kept_names: KeptNames,
}

/// What is to be done with a request.
pub enum Action<'p> {
    /// To a server of an upstream.
    Forward(Forward<'p>),
    /// `OPTIONS *` is about this server, and other OPTIONS requests may end here.
    Options,
    /// The caller queries its standings.
    Standings,
    /// The listener redirects every request.
    Redirect(StatusCode, HeaderValue),
    /// A browser's preflight request, which gets its response here.
    Preflight(&'p Cors),
    /// The response says why.
    Refuse(Rejection),
}

/// Where a request is forwarded to.
pub struct Forward<'p> {
    /// Whose servers it goes to.
    pub upstream: &'p Upstream,
    pub(super) target: Target,
}

impl<'p> RequestState<'p> {
    /// The limits that an error body names, if its format does.
    pub(super) fn violated(&self, format: Format) -> Vec<&str> {
        match (format, &self.tally) {
            (Format::Problem, Some(tally)) => tally.violated().collect(),
            _ => Vec::new(),
        }
    }

    /// Bytes that the body may have; none: any number.
    pub(super) fn max_body(&self) -> Option<u64> {
        match &self.identity {
            Some(_) => self.route.and_then(|route| route.max_body),
            // A preflight request, which takes no token and has no body.
            None => Some(0),
        }
    }

    /// Whether the usage of a stream is to be asked for in the place of this request.
    pub(super) fn asks_for_usage(&self, body: Option<&BodyFacts>) -> bool {
        let (Some(tally), Some(body)) = (&self.tally, body) else { return false };
        tally.all().any(|own| match own.planned.cost.asked_usage() {
            Some((asked, StreamUsage::Inject)) if own.planned.role.is_enforced() => {
                body.lacks_usage(asked).is_ok_and(|lacks| lacks)
            }
            _ => false,
        })
    }

    /// What the route changes in interim responses; none: nothing.
    pub(super) fn interim_edits(&self) -> Option<InterimEdits> {
        let (policy, route) = self.policy.zip(self.route)?;
        let hidden: Vec<HeaderName> = policy.cost_headers(route).cloned().collect();
        let edits = &route.response_headers;
        let is_any = !hidden.is_empty() || **edits != HeaderEdits::default();
        is_any.then(|| InterimEdits { hidden, edits: Arc::clone(edits) })
    }

    /// Whether the route leads to servers that speak HTTP/2, which gRPC needs.
    pub(super) fn may_speak_grpc(&self) -> bool {
        let upstream = self
            .policy
            .zip(self.route)
            .and_then(|(policy, route)| policy.upstreams.get(route.upstream));
        upstream.is_some_and(|upstream| upstream.protocol == Protocol::Http2)
    }

    /// Whether the caller was identified by a token in this query of the request.
    pub(super) fn has_token_in(&self, query: Option<&str>) -> bool {
        let has_token = self.identity.as_ref().is_some_and(|identity| identity.token.is_some());
        has_token && self.policy.is_some_and(|policy| policy.identity.sources.found_in(query))
    }

    /// Whether the policy exempts the client from all limits.
    pub(super) fn is_exempt(&self, address: IpAddr) -> bool {
        let Some(policy) = self.policy else { return false };
        match &self.identity {
            Some(identity) => policy.exempt.contains(identity),
            None => policy.exempt.contains_address(address),
        }
    }

    /// Whether the log may have `User-Agent`: not where the policy reads credentials from it.
    pub(super) fn may_log_user_agent(&self) -> bool {
        self.policy.is_none_or(|policy| !policy.identity.sources.reads(&header::USER_AGENT))
    }

    /// What the policy says about responses; its defaults before a policy is known.
    pub fn responses(&self) -> &'p Responses {
        self.policy.map_or(&Responses::DEFAULT, |policy| &policy.responses)
    }
}
