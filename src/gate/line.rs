//! The access log's line about a request.

use std::{net::IpAddr, rc::Rc};

use http::{HeaderValue, Method, Response, Uri, header, request::Parts};

use super::{Arrival, Note, Passage};
use crate::{
    access_log::{Counted, Entry, LogBuffer, Tail},
    response::Body,
};

/// What the log tells of a request whose head has gone to the upstream by the time it is told.
pub(super) struct Seen {
    method: Method,
    uri: Uri,
    host: Option<HeaderValue>,
    address: IpAddr,
}

impl Seen {
    pub(super) fn of(parts: &Parts, address: IpAddr) -> Self {
        let host = parts.headers.get(header::HOST).cloned();
        Seen { method: parts.method.clone(), uri: parts.uri.clone(), host, address }
    }

    /// The line, but for what is known only when the response has ended.
    pub(super) fn begin_line(
        &self,
        log: &Rc<LogBuffer>,
        passage: &Passage<'_>,
        note: &Note,
        (response, request_id, arrival): (&Response<Body>, &HeaderValue, Arrival),
    ) -> Tail {
        let identity = passage.identity.as_ref();
        let caller = identity.and_then(|identity| identity.caller.as_ref());
        let tier = passage.policy.zip(identity).and_then(|(policy, identity)| {
            policy.identity.tiers.get(identity.tier).map(|tier| &*tier.name)
        });
        let line = log.begin(&Entry {
            time: arrival.now,
            request_id: request_id.to_str().unwrap_or_default(),
            client: &self.address,
            caller: caller.map(|caller| (caller.kind, &caller.value as _)),
            tier,
            method: self.method.as_str(),
            host: self.host.as_ref().and_then(|host| host.to_str().ok()),
            path: self.uri.path(),
            route: passage.route.map(|route| &*route.name),
            limit: passage.told.as_ref().map(|(limit, standing)| Counted {
                name: &limit.name,
                used: standing.used,
                limit: standing.limit,
            }),
            error: note.error.as_ref().map(|error| error as _),
            status: response.status().as_u16(),
            upstream: note.upstream_time,
        });
        Tail::new(Rc::clone(log), line, arrival.started)
    }
}
