//! A request that no client has sent, and what would happen to it.

use std::net::IpAddr;

use http::{HeaderValue, Request, Uri, header, request::Parts};
use tollgate_gate::{request_state::RequestState, respond::Reply};
use tollgate_identity::AssumedToken;
use tollgate_policy::{Given, Upstream};

/// A request that no client has sent.
pub struct Draft {
    /// Its head.
    pub head: Parts,
    /// Its body; of a request of the past, what is known of it.
    pub body: Box<[u8]>,
    /// The address of its sender: the client, or a proxy before it.
    pub address: IpAddr,
    /// Its token, which counts as verified. None: the credential is in its headers.
    pub token: Option<AssumedToken>,
}

/// The result of a dry run of a draft.
pub(super) struct DraftResult<'p> {
    /// What the gate found out about it.
    pub(super) state: RequestState<'p>,
    /// What would happen to it.
    pub(super) outcome: DraftOutcome<'p>,
}

/// What would happen to a draft.
pub(super) enum DraftOutcome<'p> {
    /// The head that this upstream would receive.
    Forwarded(&'p Upstream, Parts),
    /// The response of the proxy itself.
    Answered(Reply),
}

impl Draft {
    /// The request of a test inside a policy.
    pub fn of(given: &Given) -> Draft {
        let mut request = Request::new(());
        *request.method_mut() = given.method.clone();
        *request.uri_mut() = Uri::from(given.target.clone());
        request.headers_mut().clone_from(&given.headers);
        if let Ok(host) = HeaderValue::from_str(&given.host) {
            request.headers_mut().insert(header::HOST, host);
        }
        let (head, ()) = request.into_parts();
        let Given { body, address, token, .. } = given;
        Draft { head, body: body.clone(), address: *address, token: token.clone() }
    }
}
