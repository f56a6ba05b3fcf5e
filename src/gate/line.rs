//! The access log's line about a request.

use std::{cell::Cell, net::IpAddr, rc::Rc};

use http::{HeaderValue, Method, request::Parts};

use super::{Arrival, Note, Passage, head::Head, tally::Tally};
use crate::{
    access_log::{Counted, Entry, LogBuffer, Tail},
    clock::Clock,
    response::{CLIENT_CLOSED_REQUEST, INTERNAL_ERROR, Rejection},
    store::Store,
};

/// What the log tells of a request whose head has gone to the upstream by the time it is told.
pub(super) struct Seen {
    method: Method,
    host: Option<String>,
    path: String,
    address: IpAddr,
}

impl Seen {
    /// `head` is none of a request whose form is not sound.
    pub(super) fn of(parts: &Parts, head: Option<&Head<'_>>, address: IpAddr) -> Self {
        let (host, path) = match head {
            Some(head) => (head.host().map(str::to_owned), head.path.to_string()),
            None => (None, parts.uri.path().to_owned()),
        };
        Seen { method: parts.method.clone(), host, path, address }
    }
}

/// A request that was judged, and what is owed about it: a line, and what its response would have put
/// right. If it is dropped before the line was begun, the client has gone: the line says so, and what
/// only some responses count is counted, for the response may have been one of them.
pub(super) struct Owed<'g, 'p> {
    pub(super) store: &'g Rc<Store>,
    pub(super) clock: &'g Clock,
    /// None: there is no access log.
    pub(super) line: Option<(&'g Rc<LogBuffer>, Seen)>,
    pub(super) passage: Passage<'p>,
    pub(super) request_id: &'g HeaderValue,
    pub(super) arrival: Arrival,
    pub(super) is_begun: bool,
    /// Where a request is named that panicked, after its line was written.
    pub(super) panicked: &'g Cell<Option<HeaderValue>>,
}

impl Owed<'_, '_> {
    /// The line, but for what is known only when the response has ended.
    pub(super) fn begin(mut self, status: u16, note: &Note) -> Option<Tail> {
        self.is_begun = true;
        self.write(status, note)
    }

    fn write(&self, status: u16, note: &Note) -> Option<Tail> {
        let Owed { line, passage, request_id, arrival, .. } = self;
        let (log, seen) = line.as_ref()?;
        let identity = passage.identity.as_ref();
        let caller = identity.and_then(|identity| identity.caller.as_ref());
        let tier = passage.policy.zip(identity).and_then(|(policy, identity)| {
            policy.identity.tiers.get(identity.tier).map(|tier| &*tier.name)
        });
        let told = passage.tally.as_ref().and_then(Tally::told);
        let shadowed = passage.tally.as_ref().and_then(Tally::would_deny_names);
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
            limit: told.map(|item| Counted {
                name: &item.asked.limit.name,
                used: item.standing().used,
                limit: item.standing().limit,
            }),
            would_deny: shadowed.as_deref(),
            error: note.error.as_ref().map(|error| error as _),
            status,
            upstream: note.upstream_time,
        });
        Some(Tail::new(Rc::clone(log), line, arrival.started))
    }
}

impl Drop for Owed<'_, '_> {
    fn drop(&mut self) {
        if self.is_begun {
            return;
        }
        if let Some(tally) = &mut self.passage.tally {
            tally.abandon(self.store, self.clock.now());
        }
        // What panics ends here as well.
        let (status, note) = match std::thread::panicking() {
            true => {
                self.panicked.set(Some(self.request_id.clone()));
                let error = Some(Rejection::Internal.to_string());
                (INTERNAL_ERROR, Note { error, upstream_time: None })
            }
            false => (CLIENT_CLOSED_REQUEST, Note::default()),
        };
        if let Some(tail) = self.write(status, &note) {
            tail.end(false);
        }
    }
}
