//! What the body of a request says, for the limits that count by it: it is read before the request
//! is charged, as far as that is bounded, and passed on as if nothing had been read.

use std::{cell::Cell, rc::Rc, time::Duration};

use http::{HeaderMap, header};
use tollgate_clock::deadline::Ticker;
use tollgate_policy::{Policy, Route};
use tollgate_response::Rejection;
use tollgate_upstream::ClientBody;
use tollgate_usage::request::{FoundMembers, decoded};

/// Where the body of a request is.
#[derive(Clone, Copy, Default)]
pub enum BodyInput<'r> {
    /// There is none, or another proxy has it.
    #[default]
    Elsewhere,
    /// It is here, of a request that no client has sent.
    Whole(&'r [u8]),
    /// Of a request of the past: it had so many bytes, and nobody knows which.
    Logged(u64),
    /// It comes from the client.
    Coming(&'r ComingBody<'r>),
}

/// A body that comes from a client, and how much of it may be read ahead.
pub struct ComingBody<'g> {
    body: Cell<Option<ClientBody>>,
    ticker: &'g Rc<Ticker>,
    bounds: LookBounds,
}

/// How much of a body is read before its request is charged.
#[derive(Clone, Copy)]
pub(super) struct LookBounds {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

/// What the body of a request says.
#[derive(Default)]
pub struct BodyFacts {
    /// None: it is no JSON, or too long, or not here.
    pub(super) members: Option<FoundMembers>,
    /// How long it is at most; none: as long as it likes.
    pub(super) bytes: Option<u64>,
}

impl<'g> ComingBody<'g> {
    pub(super) fn new(
        body: Option<ClientBody>,
        ticker: &'g Rc<Ticker>,
        bounds: LookBounds,
    ) -> Self {
        ComingBody { body: Cell::new(body), ticker, bounds }
    }

    /// The body, to be passed on.
    pub(super) fn take(&self) -> Option<ClientBody> {
        self.body.take()
    }
}

impl BodyInput<'_> {
    /// Looks into the body of a request on this route with these header fields.
    ///
    /// # Errors
    /// The [`Rejection`]: the client breaks it off, is too slow, or sends more than the route
    /// takes.
    pub(super) async fn look(
        self,
        policy: &Policy,
        route: &Route,
        headers: &HeaderMap,
    ) -> Result<BodyFacts, Rejection> {
        let declared = headers.contains_key(header::CONTENT_LENGTH);
        let told = if declared { Some(declared_bytes(headers)) } else { route.max_body };
        let coming = match self {
            // It may be longer than this says; what it says itself is not known either.
            BodyInput::Elsewhere => {
                return Ok(BodyFacts { members: None, bytes: Some(declared_bytes(headers)) });
            }
            BodyInput::Logged(bytes) => {
                return Ok(BodyFacts { members: None, bytes: Some(bytes) });
            }
            BodyInput::Whole(body) => return Ok(facts_of(policy, body, headers, u64::MAX)),
            BodyInput::Coming(coming) => coming,
        };
        let LookBounds { bytes, time } = coming.bounds;
        let Some(mut body) = coming.take() else {
            return Ok(BodyFacts { members: None, bytes: Some(0) });
        };
        // What is known to be too long is not read ahead at all.
        if declared && told > Some(bytes) {
            coming.body.set(Some(body));
            return Ok(BodyFacts { members: None, bytes: told });
        }
        let most = route.max_body.map_or(bytes, |most| most.min(bytes));
        let is_whole = body.read_ahead(most, time, coming.ticker).await?;
        let facts = match is_whole {
            true => facts_of(policy, &body.ahead(), headers, bytes),
            false if route.max_body.is_some_and(|max| max <= bytes) => {
                return Err(Rejection::BodyTooLarge);
            }
            false => BodyFacts { members: None, bytes: told },
        };
        coming.body.set(Some(body));
        Ok(facts)
    }
}

/// What a whole body says, which has at most `max_bytes` without its content coding.
fn facts_of(policy: &Policy, body: &[u8], headers: &HeaderMap, max_bytes: u64) -> BodyFacts {
    let coding = headers.get(header::CONTENT_ENCODING);
    let coding = coding.map(|coding| coding.to_str().unwrap_or("unknown"));
    let members = policy.members.as_ref();
    let Ok(body) = decoded(body, coding, max_bytes) else {
        return BodyFacts { members: None, bytes: Some(body.len() as u64) };
    };
    BodyFacts {
        members: members.and_then(|members| members.find(&body).ok()),
        bytes: Some(body.len() as u64),
    }
}

/// The length that a request declares for its body; zero if it declares none.
pub(super) fn declared_bytes(headers: &HeaderMap) -> u64 {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
