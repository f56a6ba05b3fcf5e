//! The access log's line about a request.

use std::{net::IpAddr, rc::Rc};

use http::{HeaderValue, Method, request::Parts};

use super::{Arrival, Note, Passage, head::Head};
use crate::{
    access_log::{Counted, Entry, LogBuffer, Tail},
    response::{CLIENT_CLOSED_REQUEST, Rejection},
};

/// What the log tells of a request whose head has gone to the upstream by the time it is told.
pub(super) struct Seen {
    method: Method,
    host: Option<String>,
    path: String,
    address: IpAddr,
}

impl Seen {
    pub(super) fn of(parts: &Parts, head: &Result<Head<'_>, Rejection>, address: IpAddr) -> Self {
        let (host, path) = match head {
            Ok(head) => (head.host().map(str::to_owned), head.path.to_string()),
            Err(_) => (None, parts.uri.path().to_owned()),
        };
        Seen { method: parts.method.clone(), host, path, address }
    }
}

/// A line that is owed. If it is dropped before it was begun, the client has gone, and the line says
/// so: what was charged and forwarded is not passed over.
pub(super) struct Owed<'g> {
    pub(super) log: &'g Rc<LogBuffer>,
    pub(super) seen: Seen,
    pub(super) passage: &'g Passage<'g>,
    pub(super) request_id: &'g HeaderValue,
    pub(super) arrival: Arrival,
    pub(super) is_begun: bool,
}

impl Owed<'_> {
    /// The line, but for what is known only when the response has ended.
    pub(super) fn begin(mut self, status: u16, note: &Note) -> Tail {
        self.is_begun = true;
        self.write(status, note)
    }

    fn write(&self, status: u16, note: &Note) -> Tail {
        let Owed { log, seen, passage, request_id, arrival, .. } = self;
        let identity = passage.identity.as_ref();
        let caller = identity.and_then(|identity| identity.caller.as_ref());
        let tier = passage.policy.zip(identity).and_then(|(policy, identity)| {
            policy.identity.tiers.get(identity.tier).map(|tier| &*tier.name)
        });
        let line = log.begin(&Entry {
            time: arrival.now,
            request_id: request_id.to_str().unwrap_or_default(),
            client: &seen.address,
            caller: caller.map(|caller| (caller.kind, &caller.value as _)),
            tier,
            method: seen.method.as_str(),
            host: seen.host.as_deref(),
            path: &seen.path,
            route: passage.route.map(|route| &*route.name),
            limit: passage.told.as_ref().map(|(asked, standing)| Counted {
                name: &asked.limit.name,
                used: standing.used,
                limit: standing.limit,
            }),
            error: note.error.as_ref().map(|error| error as _),
            status,
            upstream: note.upstream_time,
        });
        Tail::new(Rc::clone(log), line, arrival.started)
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if !self.is_begun {
            self.write(CLIENT_CLOSED_REQUEST, &Note::default()).end(false);
        }
    }
}
