//! How many requests to one server may run at once, and how many of these for one client.
//!
//! A client that makes up tokens can cause any number of requests. So it gets only a share of the
//! permits, and the rest of its requests wait in a queue of its own. Where permits are scarce, the
//! clients that wait get them in rotation, one each: no client waits longer because another sends
//! more.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use http::Uri;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

/// Requests to one server at once.
const MAX_AT_ONCE: u32 = 256;
/// Of these, the requests of one client.
const MAX_PER_CLIENT: u32 = 16;
/// Requests of one client that wait. The number of clients is bounded by the requests in flight.
const MAX_QUEUED: usize = 128;

/// The limiters of all servers, by URL: policies with the same server share its limiter.
#[derive(Default)]
pub(super) struct FairLimiters(Mutex<HashMap<Uri, Weak<FairLimiter>>>);

impl FairLimiters {
    /// The limiter of the server with this URL.
    pub(super) fn at(&self, url: &Uri) -> Arc<FairLimiter> {
        let mut limiters = self.0.lock();
        if let Some(limiter) = limiters.get(url).and_then(Weak::upgrade) {
            return limiter;
        }
        // A limiter that no request uses has nothing to remember.
        limiters.retain(|_, limiter| limiter.strong_count() > 0);
        let limiter = Arc::default();
        limiters.insert(url.clone(), Arc::downgrade(&limiter));
        limiter
    }
}

/// Gives out the permits for one server.
#[derive(Default)]
pub(crate) struct FairLimiter(Mutex<LimiterState>);

/// Why a request gets no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitError {
    /// Its client has its share.
    ClientLimit,
    /// Other clients have all permits.
    ServerLimit,
}

struct LimiterState {
    free: u32,
    clients: HashMap<u128, ClientQueue>,
    /// Clients with queued requests and less than their share, each once, in the order in which
    /// they get the next permits. Empty while a permit is free.
    rotation: VecDeque<u128>,
    /// How many requests have been queued: the number of the latest.
    queued: u64,
}

/// The permits and the queue of one client; removed when both are empty.
#[derive(Default)]
struct ClientQueue {
    permits: u32,
    /// Requests by number, oldest first.
    queued: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Default for LimiterState {
    fn default() -> Self {
        LimiterState {
            free: MAX_AT_ONCE,
            clients: HashMap::new(),
            rotation: VecDeque::new(),
            queued: 0,
        }
    }
}

impl FairLimiter {
    /// Requests a permit for a client: it is granted at once, or the request is queued.
    ///
    /// # Errors
    /// The client's queue is full.
    pub(crate) fn request(self: &Arc<Self>, client: u128) -> Result<PermitRequest, PermitError> {
        let mut state = self.0.lock();
        let LimiterState { free, clients, rotation, queued } = &mut *state;
        let queue = clients.entry(client).or_default();
        if queue.permits < MAX_PER_CLIENT && *free > 0 {
            queue.permits += 1;
            *free -= 1;
            return Ok(PermitRequest::Granted(Permit { limiter: Arc::clone(self), client }));
        }
        if queue.queued.len() >= MAX_QUEUED {
            return Err(queue.reached_limit());
        }
        if queue.permits < MAX_PER_CLIENT && queue.queued.is_empty() {
            rotation.push_back(client);
        }
        let (sender, granted) = oneshot::channel();
        *queued += 1;
        queue.queued.push_back((*queued, sender));
        let limiter = Arc::clone(self);
        Ok(PermitRequest::Queued(QueuedRequest { limiter, client, number: *queued, granted }))
    }
}

impl ClientQueue {
    fn reached_limit(&self) -> PermitError {
        match self.permits >= MAX_PER_CLIENT {
            true => PermitError::ClientLimit,
            false => PermitError::ServerLimit,
        }
    }
}

impl LimiterState {
    /// Takes a permit back from a client and grants it to the next request.
    fn release(&mut self, client: u128) {
        self.free += 1;
        if let Some(queue) = self.clients.get_mut(&client) {
            let was_at_limit = queue.permits >= MAX_PER_CLIENT;
            queue.permits -= 1;
            if was_at_limit && !queue.queued.is_empty() {
                self.rotation.push_back(client);
            }
        }
        self.remove_idle(client);
        self.grant_free();
    }

    /// Grants the free permits to queued requests.
    fn grant_free(&mut self) {
        while self.free > 0
            && let Some(client) = self.rotation.pop_front()
        {
            let Some(queue) = self.clients.get_mut(&client) else { continue };
            let is_granted =
                queue.queued.pop_front().is_some_and(|(_, sender)| sender.send(()).is_ok());
            if is_granted {
                queue.permits += 1;
                self.free -= 1;
            }
            if queue.permits < MAX_PER_CLIENT && !queue.queued.is_empty() {
                self.rotation.push_back(client);
            }
        }
    }

    /// Removes a request from its client's queue.
    fn cancel(&mut self, client: u128, number: u64) {
        let Some(queue) = self.clients.get_mut(&client) else { return };
        queue.queued.retain(|(own, _)| *own != number);
        if queue.queued.is_empty() {
            self.rotation.retain(|own| *own != client);
        }
        self.remove_idle(client);
    }

    fn remove_idle(&mut self, client: u128) {
        let is_idle = |queue: &ClientQueue| queue.permits == 0 && queue.queued.is_empty();
        if self.clients.get(&client).is_some_and(is_idle) {
            self.clients.remove(&client);
        }
    }
}

/// Permission for one request; given back when this is dropped.
pub(crate) struct Permit {
    limiter: Arc<FairLimiter>,
    client: u128,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.0.lock().release(self.client);
    }
}

/// A permit, or a request for one. Dropping it frees what it holds.
pub(crate) enum PermitRequest {
    /// The permit was free.
    Granted(Permit),
    /// The request waits for one.
    Queued(QueuedRequest),
}

impl PermitRequest {
    /// The permit, after a wait of `limit` at most.
    ///
    /// # Errors
    /// It was not granted in time.
    pub(crate) async fn permit(self, limit: Duration) -> Result<Permit, PermitError> {
        let mut request = match self {
            PermitRequest::Granted(permit) => return Ok(permit),
            PermitRequest::Queued(request) => request,
        };
        match timeout(limit, &mut request.granted).await {
            Ok(Ok(())) => {
                Ok(Permit { limiter: Arc::clone(&request.limiter), client: request.client })
            }
            _ => Err(request.reached_limit()),
        }
    }
}

/// A request in a client's queue.
pub(crate) struct QueuedRequest {
    limiter: Arc<FairLimiter>,
    client: u128,
    number: u64,
    /// Sent, under the lock, when the permit is granted.
    granted: oneshot::Receiver<()>,
}

impl QueuedRequest {
    fn reached_limit(&self) -> PermitError {
        let state = self.limiter.0.lock();
        let queue = state.clients.get(&self.client);
        queue.map_or(PermitError::ServerLimit, ClientQueue::reached_limit)
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let mut state = self.limiter.0.lock();
        // The permit may have been granted just before the request was dropped.
        match self.granted.try_recv() {
            Ok(()) => state.release(self.client),
            Err(_) => state.cancel(self.client, self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests this many permits for a client; every request is granted or queued.
    fn request(limiter: &Arc<FairLimiter>, client: u128, times: u32) -> Vec<PermitRequest> {
        (0..times).map(|_| limiter.request(client).unwrap()).collect()
    }

    fn permits_of(limiter: &FairLimiter, client: u128) -> u32 {
        limiter.0.lock().clients.get(&client).map_or(0, |queue| queue.permits)
    }

    fn is_queued(request: &PermitRequest) -> bool {
        matches!(request, PermitRequest::Queued(_))
    }

    #[test]
    fn client_has_no_more_than_its_share_and_others_have_theirs() {
        let limiter = Arc::<FairLimiter>::default();
        let flood = request(&limiter, 1, MAX_PER_CLIENT + MAX_QUEUED as u32);
        assert_eq!(flood.iter().filter(|request| is_queued(request)).count(), MAX_QUEUED);
        assert!(matches!(limiter.request(1), Err(PermitError::ClientLimit)));
        let others = request(&limiter, 2, MAX_PER_CLIENT);
        assert!(!others.iter().any(is_queued));
        drop((flood, others));
        let state = limiter.0.lock();
        assert_eq!((state.free, state.clients.len(), state.rotation.len()), (MAX_AT_ONCE, 0, 0));
    }

    #[test]
    fn scarce_permits_go_round() {
        let limiter = Arc::<FairLimiter>::default();
        let full = u128::from(MAX_AT_ONCE / MAX_PER_CLIENT);
        let mut held: Vec<_> =
            (0..full).map(|client| request(&limiter, client, MAX_PER_CLIENT)).collect();
        // One client with many requests, then two with one each.
        let mut many = request(&limiter, 100, MAX_QUEUED as u32);
        assert!(matches!(limiter.request(100), Err(PermitError::ServerLimit)));
        let few = [request(&limiter, 101, 1), request(&limiter, 102, 1)];
        held[0].truncate(MAX_PER_CLIENT as usize - 3);
        assert_eq!([100, 101, 102].map(|client| permits_of(&limiter, client)), [1, 1, 1]);
        // The permits of clients that have gone are granted to the next.
        drop(few);
        assert_eq!([100, 101, 102].map(|client| permits_of(&limiter, client)), [3, 0, 0]);
        many.clear();
        held.clear();
        assert_eq!(limiter.0.lock().free, MAX_AT_ONCE);
    }

    #[test]
    fn client_at_its_limit_delays_no_other() {
        let limiter = Arc::<FairLimiter>::default();
        let mut flood = request(&limiter, 1, MAX_PER_CLIENT + 2);
        let full = u128::from(MAX_AT_ONCE / MAX_PER_CLIENT);
        let _held: Vec<_> =
            (2..=full).map(|client| request(&limiter, client, MAX_PER_CLIENT)).collect();
        let other = request(&limiter, 100, 1);
        assert!(is_queued(&other[0]));
        // The client at its limit has queued requests too, but is not in the rotation.
        flood.remove(0);
        assert_eq!((permits_of(&limiter, 1), permits_of(&limiter, 100)), (MAX_PER_CLIENT - 1, 1));
        drop(other);
        assert_eq!(permits_of(&limiter, 1), MAX_PER_CLIENT);
    }

    #[tokio::test]
    async fn queued_request_gets_a_permit_or_the_limit_that_it_reached() {
        let limiter = Arc::<FairLimiter>::default();
        let mut held = request(&limiter, 1, MAX_PER_CLIENT);
        let late = limiter.request(1).unwrap();
        assert_eq!(late.permit(Duration::ZERO).await.err(), Some(PermitError::ClientLimit));
        let queued = limiter.request(1).unwrap();
        held.pop();
        let permit = queued.permit(Duration::MAX).await.unwrap();
        assert_eq!(permits_of(&limiter, 1), MAX_PER_CLIENT);
        drop((permit, held));
        assert_eq!(limiter.0.lock().free, MAX_AT_ONCE);
    }

    #[test]
    fn limiter_lives_as_long_as_its_server_is_used() {
        let limiters = FairLimiters::default();
        let one = Uri::from_static("https://a.b/");
        let other = Uri::from_static("https://c.d/");
        let limiter = limiters.at(&one);
        assert!(Arc::ptr_eq(&limiter, &limiters.at(&one)));
        drop(limiter);
        assert_eq!(permits_of(&limiters.at(&other), 1), 0);
        assert_eq!(limiters.0.lock().len(), 1);
    }
}
