//! Forwarding: one request to a server of an upstream, and its response back.
//!
//! Each worker has its own connections; workers share the number of connections and the state of
//! the servers. A request is sent to one server, and retried, mostly at another, if that is safe.
//!
//! This crate knows no limits and no counters, and callers only by their hashes. [`downstream`]
//! is what is known of a client's connection.
//!
//! The types to know first:
//!
//! - [`Upstreams`]: a worker's connections to all upstreams.
//! - [`Destination`]: an upstream, and its servers as all workers see them.
//! - [`Keeper`]: keeps the servers of all upstreams, across reloads.
//! - [`UpstreamError`]: why there is no response.
//! - [`downstream::Peer`]: the client at the other end.

mod answers;
mod balance;
mod body;
mod client_shares;
mod connector;
mod destination;
mod dial;
pub mod downstream;
mod ejection;
mod error;
mod failure;
mod frames;
mod group;
mod headers;
mod health;
pub mod http1;
mod keeper;
mod outbound;
mod pool;
mod reach;
mod report;
mod resolve;
mod response_check;
mod retry;
mod secure_stream;
mod slots;
mod stream;
#[cfg(test)]
mod tests;
mod traced;
mod unread;
mod upgrade;
mod wait_queue;

use std::{
    cell::RefCell, future::poll_fn, mem, pin::pin, rc::Rc, sync::Arc, task::Poll, time::Instant,
};

use bytes::BytesMut;
use http::{Response, StatusCode, request::Parts};
use tollgate_clock::deadline::Ticker;
use tollgate_observe::trace::Attempts;
use tollgate_policy::{Protocol, Upstream};

use self::{
    body::Source,
    connector::{Connector, Connectors},
    failure::Failure,
    outbound::{Original, Outbound},
    pool::{Carrier, CarrierSource, Pool},
    response_check::without_content,
    retry::{Cost, Tries},
    traced::TracedAttempt,
};

pub use self::{
    answers::{AnswerCounts, UpstreamTotal},
    body::{Ahead, ClientBody, RequestBody, UpstreamBody},
    destination::{Destination, UpstreamGroups},
    error::{ExchangeError, RequestBodyError, UpstreamBodyError, UpstreamError},
    group::{Choice, Group, Load, Member},
    headers::{
        ConnectionNamesProtectedField, FAMILIES_OF_PROXIES, Forwarding, IdentityAlias,
        NAMES_OF_PROXIES, Unaliased, check_connection, check_identity_aliases, clean_request,
        clean_request_of_envoy, clean_response,
    },
    health::ProbeError,
    http1::ChunkError,
    keeper::Keeper,
    reach::{Unreached, reach},
    report::{MemberReport, MemberState, ServerReport, UpstreamReport},
    slots::{Slot, Slots},
    stream::Stream,
    upgrade::{DeclinedBody, Switch, Switched},
};

/// A worker's connections to all upstreams.
pub struct Upstreams {
    connectors: Connectors,
    ticker: Rc<Ticker>,
    /// Where heads of requests are written.
    heads: RefCell<BytesMut>,
}

/// The caller and the client of a request, as hashes for balancing and for fair shares.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The affinity hash of the caller.
    pub caller: u128,
    /// The number of the client's address, or of its network; without one its share is not bounded.
    pub client: Option<u128>,
}

/// An HTTP/1.1 connection for a single request; it is never reused.
#[derive(Debug)]
pub struct OwnConnection {
    /// The connection.
    pub stream: Stream,
    /// Counts it among the server's.
    pub slot: Slot,
    /// Counts the request among the server's.
    pub load: Load,
    /// The server.
    pub member: Arc<Member>,
}

/// One attempt to send a request.
#[derive(Clone, Copy)]
struct Attempt<'r> {
    connector: &'r Connector,
    upstream: &'r Upstream,
    member: &'r Arc<Member>,
    /// The number of the client's address.
    client: Option<u128>,
    /// The request, if it may be sent twice.
    original: Option<&'r Original>,
}

/// A response's head, and what the rest comes from.
type Received = (Response<()>, Source);

impl Upstreams {
    /// No connections yet.
    pub fn new(ticker: Rc<Ticker>) -> Self {
        let connectors = Connectors::new(Rc::clone(&ticker));
        Upstreams { connectors, ticker, heads: RefCell::default() }
    }

    /// The worker's clock of ticks.
    pub fn ticker(&self) -> &Rc<Ticker> {
        &self.ticker
    }

    /// Closes connections that have been idle for too long.
    pub fn close_idle(&self) {
        self.connectors.close_idle();
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// A failed request is retried, within the policy's attempts and the retry budget, if it was
    /// certainly never sent, or if it may be sent twice and no part of a response has come. Each
    /// attempt is recorded in `trace`, if the request's trace is.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn forward(
        &self,
        destination: Destination<'_>,
        Sender { caller, client }: Sender,
        head: Parts,
        body: ClientBody,
        trace: Option<&Attempts>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let upstream = destination.upstream;
        let connector = self.connectors.to(destination);
        connector.budget.earn(&upstream.retries);
        let mut tries = Tries::new(&upstream.retries);
        let (mut request, original) =
            Outbound::new(head, body, upstream, &mut self.heads.borrow_mut());
        let original = original.as_ref();
        let_others_run().await;
        let mut member = connector.first(caller, upstream).await?;
        loop {
            let attempt =
                Attempt { connector: &connector, upstream, member: &member, client, original };
            let begun = Instant::now();
            let traced = TracedAttempt::begin(trace, &member, &mut request);
            let made = pin!(attempt.make(request)).await;
            traced.end(made.as_ref().map(Response::status).map_err(|failure| &failure.error));
            connector.counters.duration.record(begun.elapsed());
            member.answers.count(made.as_ref().ok().map(Response::status));
            let (result, again, cost) = match made {
                Ok(response) => {
                    let status = response.status();
                    // A server may be weary of a client that is too slow with its body.
                    if status.is_success() || !response.body().awaited_client {
                        record_health(&member, status, upstream);
                    }
                    match original.filter(|_| upstream.retries.statuses.contains(status)) {
                        Some(original) => (Ok(response), original.again(), Cost::Sent),
                        None => return Ok(response),
                    }
                }
                Err(Failure { error, unsent, is_unanswered, awaited_client, .. }) => {
                    if error.is_servers_fault() && !awaited_client {
                        member.fail();
                    }
                    match (unsent, original.filter(|_| is_unanswered)) {
                        (Some(request), _) => (Err(error), request, Cost::NeverSent),
                        (None, Some(original)) => (Err(error), original.again(), Cost::Sent),
                        (None, None) => return Err(error),
                    }
                }
            };
            if !tries.may_go_on() {
                return result;
            }
            tries.tried.push(member);
            let choice = Choice { caller, tried: &tries.tried };
            let Some(next) = connector.next(choice) else { return result };
            let is_vain = result.as_ref().err().is_some_and(UpstreamError::calls_for_another)
                && tries.has_tried(&next);
            if is_vain || !tries.again(&next, cost, &connector.budget, self.ticker.now()) {
                return result;
            }
            connector.counters.retries.increment();
            (request, member) = (again, next);
        }
    }

    /// A new connection in HTTP/1.1 to a server for one request, which keeps it.
    ///
    /// # Errors
    /// [`UpstreamError`]; nothing was sent.
    pub async fn connect(
        &self,
        destination: Destination<'_>,
        Sender { caller, client }: Sender,
    ) -> Result<OwnConnection, UpstreamError> {
        let upstream = destination.upstream;
        let connector = self.connectors.to(destination);
        connector.budget.earn(&upstream.retries);
        let mut tries = Tries::new(&upstream.retries);
        let mut member = connector.first(caller, upstream).await?;
        loop {
            let error = match connect_to(&connector, &member, upstream, client).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            member.answers.count(None);
            if error.is_servers_fault() {
                member.fail();
            }
            tries.tried.push(member);
            let choice = Choice { caller, tried: &tries.tried };
            let Some(next) = connector.next(choice) else { return Err(error) };
            let is_vain = error.calls_for_another() && tries.has_tried(&next);
            let tick = self.ticker.now();
            if is_vain || !tries.again(&next, Cost::NeverSent, &connector.budget, tick) {
                return Err(error);
            }
            connector.counters.retries.increment();
            member = next;
        }
    }
}

async fn connect_to(
    connector: &Connector,
    member: &Arc<Member>,
    upstream: &Upstream,
    client: Option<u128>,
) -> Result<OwnConnection, UpstreamError> {
    let mut load = member.load();
    let pool = connector.pool(member);
    load.hold(pool.share(client, upstream).await?);
    let slot = pool.slot(upstream).await?;
    let stream = connector.dialer.dial(member, Protocol::Http1, upstream).await?;
    Ok(OwnConnection { stream, slot, load, member: Arc::clone(member) })
}

impl Attempt<'_> {
    /// Makes it.
    ///
    /// A kept connection may have been closed by the server just now, which is no failure of
    /// either. If nothing of a response came, the request is sent once more on a connection of
    /// which that cannot be said, provided that it was never sent or may be sent twice. This is no
    /// retry that the budget has to bear: it happens at most once a request, and takes an answer on
    /// the same connection before it.
    async fn make(self, request: Outbound) -> Result<Response<UpstreamBody>, Failure<Outbound>> {
        let Attempt { connector, upstream, member, client, original } = self;
        let mut load = member.load();
        let pool = connector.pool(member);
        match pool.share(client, upstream).await {
            Ok(share) => load.hold(share),
            Err(error) => return Err(Failure::unsent(error, request)),
        }
        let acquired = match pool.acquire(upstream).await {
            Ok(acquired) => acquired,
            Err(error) => return Err(Failure::unsent(error, request)),
        };
        let is_kept = matches!(acquired, CarrierSource::Kept(_));
        let carrier = match pool.carrier(acquired, &connector.dialer, upstream).await {
            Ok(carrier) => carrier,
            Err(error) => return Err(Failure::unsent(error, request)),
        };
        let received = pin!(exchange(carrier, request, upstream)).await;
        let (response, source) = match received {
            Ok(received) => received,
            Err(failure) if is_kept && failure.is_stale => {
                let copy = original.filter(|_| failure.is_unanswered).map(Original::again);
                match failure.unsent.or(copy) {
                    Some(request) => Box::pin(self.make_anew(&pool, request)).await?,
                    None => return Err(Failure { unsent: None, ..failure }),
                }
            }
            Err(failure) => return Err(failure),
        };
        let turn = connector.unread().turn(client, upstream.bounds.max_unread);
        let body = UpstreamBody::new(source, load, upstream.idle_timeout, Some(turn));
        let response = response.map(|()| body);
        match response.status() {
            StatusCode::RESET_CONTENT => {
                Box::pin(without_content(response)).await.map_err(Failure::sent)
            }
            _ => Ok(response),
        }
    }

    /// Makes it on a new connection, or one that is there if there may be no more of them.
    async fn make_anew(
        self,
        pool: &Rc<Pool>,
        request: Outbound,
    ) -> Result<Received, Failure<Outbound>> {
        let acquired = match pool.acquire_new(self.upstream).await {
            Ok(acquired) => acquired,
            Err(error) => return Err(Failure::unsent(error, request)),
        };
        match pool.carrier(acquired, &self.connector.dialer, self.upstream).await {
            Ok(carrier) => exchange(carrier, request, self.upstream).await,
            Err(error) => Err(Failure::unsent(error, request)),
        }
    }
}

/// Lets the tasks run that are ready, so that the requests of one turn of the loop are all judged
/// before the first of them is sent.
///
/// They go out in a burst then, of which the server hears once: between requests that are sent one
/// by one as they are judged it falls asleep, and waking it costs more than a request. Unlike
/// [`tokio::task::yield_now`], this does not wait for what the system has to tell meanwhile.
async fn let_others_run() {
    let mut has_run = false;
    poll_fn(|context| match mem::replace(&mut has_run, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

async fn exchange(
    carrier: Carrier,
    request: Outbound,
    upstream: &Upstream,
) -> Result<Received, Failure<Outbound>> {
    match (carrier, request) {
        (Carrier::Http1(connection), Outbound::Http1(message)) => {
            let received = pin!(connection.exchange(message, upstream)).await;
            let (response, connection) =
                received.map_err(|failure| failure.map(Outbound::Http1))?;
            Ok((response, Source::Http1(connection)))
        }
        (Carrier::Http2(permit), Outbound::Http2(request)) => {
            let (response, stream) = Box::pin(permit.exchange(*request, upstream))
                .await
                .map_err(|failure| failure.map(Outbound::Http2))?;
            let (head, incoming) = response.into_parts();
            Ok((Response::from_parts(head, ()), Source::Http2(incoming, stream)))
        }
        // A pool has connections of its upstream's protocol.
        (_, request) => Err(Failure::unsent(UpstreamError::Unsound, request)),
    }
}

/// Counts a response as a success or a failure of its server.
fn record_health(member: &Member, status: StatusCode, upstream: &Upstream) {
    match &upstream.ejection {
        Some(ejection) if ejection.statuses.contains(status) => member.fail(),
        _ => member.succeed(),
    }
}
