//! HTTP towards issuers: all of it on one thread of its own, with everything bounded.
//!
//! A worker must not be held up by a slow issuer, and a connection lives on the runtime that made
//! it. So whoever needs something fetched hands a job over and awaits the answer, from whichever
//! runtime it is on; the time limit runs over there.

mod client;
mod endpoint;
mod turns;

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use http::HeaderValue;
use thiserror::Error;
use tokio::{
    runtime,
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};

pub use self::endpoint::{Endpoint, EndpointError};
pub(super) use self::turns::{NoTurn, Place, Turn, Turns};
use self::{client::Clients, turns::AllTurns};

/// The largest body that is read.
pub(super) const MAX_BODY_BYTES: usize = 256 * 1024;
/// Jobs that have been handed over and not yet begun.
const MAX_WAITING: usize = 1024;
/// Documents that are read at once. Nobody outside can ask for many, so the others wait. For forms
/// see [`Turns`].
const MAX_GETS: usize = 64;
/// Threads that look up names: a name server that hangs takes one longer than any time limit.
const MAX_LOOKUPS: usize = 64;

/// Hands jobs over to the thread that does all HTTP for identity. Clones lead to the same thread,
/// which ends with the last of them.
#[derive(Clone)]
pub struct Fetcher {
    jobs: mpsc::Sender<Job>,
    clients: Arc<Clients>,
    gets: Arc<Semaphore>,
    turns: Arc<AllTurns>,
}

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why nothing was fetched. Never quotes what was.
#[derive(Clone, Debug, Error)]
pub enum FetchError {
    /// It took too long: lookup, connection, TLS, answer, all together.
    #[error("no whole answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// No name, nobody listening, or no TLS with somebody to be trusted.
    #[error("cannot connect: {}", Causes(.0.as_ref()))]
    Connect(Arc<dyn Error + Send + Sync>),
    /// The connection broke, or brought what is no HTTP.
    #[error("the exchange failed: {}", Causes(.0.as_ref()))]
    Exchange(Arc<dyn Error + Send + Sync>),
    /// Only 200 brings what was asked for.
    #[error("the answer has status {0}")]
    Status(u16),
    /// More than is read of anything.
    #[error("the answer is larger than {} KiB", MAX_BODY_BYTES / 1024)]
    TooLarge,
    /// Sent on to a server that nobody has configured.
    #[error("redirected to another server")]
    RedirectedElsewhere,
    /// Sent on to nowhere, or without end.
    #[error("redirected too often, or to no usable URL")]
    Redirected,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(rustls::Error),
    /// The authorities are not certificates.
    #[error(transparent)]
    Authorities(EndpointError),
    /// Too much is being fetched already.
    #[error("too many fetches at once")]
    Busy,
    /// The thread is gone.
    #[error("the fetch was given up")]
    GivenUp,
}

impl Fetcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread, or no event queue.
    pub fn start() -> io::Result<Fetcher> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("lookup")
            .max_blocking_threads(MAX_LOOKUPS)
            .build()?;
        let (jobs, mut waiting) = mpsc::channel(MAX_WAITING);
        thread::Builder::new().name("fetcher".into()).spawn(move || {
            runtime.block_on(async {
                while let Some(job) = waiting.recv().await {
                    tokio::spawn::<Job>(job);
                }
            });
            // Names that are still looked up hold up nobody.
            runtime.shutdown_background();
        })?;
        Ok(Fetcher::over(jobs))
    }

    /// One without a thread, which refuses every job: for those who must ask no server.
    pub fn offline() -> Fetcher {
        Fetcher::over(mpsc::channel(1).0)
    }

    fn over(jobs: mpsc::Sender<Job>) -> Fetcher {
        Fetcher {
            jobs,
            clients: Arc::default(),
            gets: Arc::new(Semaphore::new(MAX_GETS)),
            turns: Arc::default(),
        }
    }

    /// Reads a document of a type that `accept` lists. Follows redirects that stay on the server.
    ///
    /// # Errors
    /// [`FetchError`]; any status but 200 is one.
    pub async fn get(
        &self,
        endpoint: &Endpoint,
        accept: &'static str,
    ) -> Result<Vec<u8>, FetchError> {
        let (endpoint, clients) = (endpoint.clone(), Arc::clone(&self.clients));
        let gets = Arc::clone(&self.gets);
        let accept = HeaderValue::from_static(accept);
        self.run(endpoint.timeout, async move {
            let _slot = gets.acquire().await.map_err(|_| FetchError::GivenUp)?;
            client::get(&clients.for_endpoint(&endpoint)?, &endpoint.url, accept).await
        })
        .await
    }

    /// The turns at sending forms to an endpoint, which clients can cause any number of.
    pub(super) fn turns_at(&self, endpoint: &Endpoint) -> Arc<Turns> {
        self.turns.at(&endpoint.url)
    }

    /// Sends a form, which is urlencoded already, and reads the JSON that comes back. Follows no
    /// redirect: what is in the form is for this server. The turn ends when the exchange does.
    ///
    /// # Errors
    /// [`FetchError`]; any status but 200 is one.
    pub(super) async fn post_form(
        &self,
        turn: Turn,
        endpoint: &Endpoint,
        authorization: HeaderValue,
        form: String,
    ) -> Result<Vec<u8>, FetchError> {
        let (endpoint, clients) = (endpoint.clone(), Arc::clone(&self.clients));
        self.run(endpoint.timeout, async move {
            let _turn = turn;
            client::post(&clients.for_endpoint(&endpoint)?, &endpoint.url, authorization, form)
                .await
        })
        .await
    }

    /// Has the thread do something beside all else; whatever blocks there blocks everybody. If there
    /// is too much to do, `job` is dropped instead.
    pub fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        // A job that matters notices that it is dropped.
        let _ = self.jobs.try_send(Box::pin(job));
    }

    async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, FetchError>> + Send + 'static,
    ) -> Result<T, FetchError> {
        let (mut answer, answered) = oneshot::channel();
        let begun = Instant::now();
        let job: Job = Box::pin(async move {
            // The wait for the thread counts too.
            let left = limit.saturating_sub(begun.elapsed());
            let result = tokio::select! {
                biased;
                // Whoever wanted it has gone: what it holds is given back at once.
                () = answer.closed() => return,
                result = timeout(left, work) => result,
            };
            let _ = answer.send(result.unwrap_or(Err(FetchError::TimedOut(limit))));
        });
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => FetchError::Busy,
            mpsc::error::TrySendError::Closed(_) => FetchError::GivenUp,
        })?;
        answered.await.unwrap_or(Err(FetchError::GivenUp))
    }
}

/// An error's causes, outermost first. Its own text says nothing that its variant does not.
struct Causes<'a>(&'a (dyn Error + Send + Sync + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mut cause) = self.0.source() else { return write!(f, "{}", self.0) };
        write!(f, "{cause}")?;
        let mut told = cause.to_string();
        while let Some(next) = cause.source() {
            cause = next;
            // Wrappers that show what they wrap would say everything twice.
            let text = cause.to_string();
            if !told.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            told = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(timeout: Duration) -> Endpoint {
        Endpoint::parse("http://127.0.0.1:9/", false, None, timeout).unwrap()
    }

    #[tokio::test]
    async fn more_than_a_bound_of_documents_waits_but_not_forever() {
        let fetcher = Fetcher::start().unwrap();
        fetcher.gets.forget_permits(MAX_GETS);
        let answer = fetcher.get(&endpoint(Duration::from_millis(1)), "*/*").await;
        assert!(matches!(answer, Err(FetchError::TimedOut(_))));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_thread_that_has_ended() {
        let answer = Fetcher::offline().get(&endpoint(Duration::MAX), "*/*").await;
        assert!(matches!(answer, Err(FetchError::GivenUp)));
    }

    #[test]
    fn causes_are_told_once_each() {
        #[derive(Debug, Error)]
        #[error("{0}")]
        struct Told(&'static str, #[source] Option<Box<Told>>);
        let told = |text, cause| Told(text, Some(Box::new(cause)));
        let inner = told("refused: os error 111", Told("os error 111", None));
        for (error, expected) in [
            (
                told("client error", told("tcp connect error", inner)),
                "tcp connect error: refused: os error 111",
            ),
            (Told("alone", None), "alone"),
        ] {
            assert_eq!(Causes(&error).to_string(), expected);
        }
    }
}
