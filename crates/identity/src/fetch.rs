//! HTTP to issuers: all of it on one thread of its own, with everything bounded.
//!
//! A slow issuer must not hold up a worker, and a connection lives on the runtime that made it. So
//! a caller sends a job to the thread and awaits the result, from whichever runtime it is on; the
//! time limit runs on the thread.

mod client;
mod fair_limiter;
mod issuer_server;

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

pub(super) use self::fair_limiter::{FairLimiter, Permit, PermitError, PermitRequest};
pub use self::issuer_server::{IssuerServer, IssuerServerError};
use self::{client::HttpClients, fair_limiter::FairLimiters};

/// The largest body that is read.
pub(super) const MAX_BODY_BYTES: usize = 256 * 1024;
/// Jobs that were sent to the thread and have not begun.
const MAX_WAITING: usize = 1024;
/// Documents that are read at once. Clients cannot cause many, so the others wait in order. Forms
/// have [`FairLimiter`].
const MAX_GETS: usize = 64;
/// Threads for DNS lookups: a name server that hangs occupies one beyond any time limit.
const MAX_LOOKUPS: usize = 64;

/// Sends jobs to the thread that does all HTTP for identity. Clones share the thread, which ends
/// with the last of them.
#[derive(Clone)]
pub struct Fetcher {
    jobs: mpsc::Sender<Job>,
    clients: Arc<HttpClients>,
    gets: Arc<Semaphore>,
    limiters: Arc<FairLimiters>,
}

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why nothing was fetched. Never quotes a response.
#[derive(Clone, Debug, Error)]
pub enum FetchError {
    /// It took too long: lookup, connection, TLS and response together.
    #[error("no complete response within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// The lookup, the connection or the TLS handshake failed.
    #[error("cannot connect: {}", Causes(.0.as_ref()))]
    Connect(Arc<dyn Error + Send + Sync>),
    /// The connection broke, or the response is not HTTP.
    #[error("the request failed: {}", Causes(.0.as_ref()))]
    Request(Arc<dyn Error + Send + Sync>),
    /// A status other than 200.
    #[error("the response has status {0}")]
    Status(u16),
    /// A body larger than any that is read.
    #[error("the response is larger than {} KiB", MAX_BODY_BYTES / 1024)]
    TooLarge,
    /// A redirect to a server that is not the configured one.
    #[error("redirected to another server")]
    RedirectedElsewhere,
    /// Too many redirects, or one without a usable URL.
    #[error("redirected too often, or to no usable URL")]
    Redirected,
    /// The TLS configuration is refused.
    #[error("TLS cannot be set up: {0}")]
    Tls(rustls::Error),
    /// The configured authorities are not certificates.
    #[error(transparent)]
    Authorities(IssuerServerError),
    /// Too many fetches are under way.
    #[error("too many fetches at once")]
    Busy,
    /// The thread has ended.
    #[error("the fetch was cancelled")]
    Cancelled,
}

impl Fetcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot create a thread or an event queue.
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
            // Does not wait for DNS lookups that still run.
            runtime.shutdown_background();
        })?;
        Ok(Fetcher::new(jobs))
    }

    /// A fetcher without a thread, which refuses every job: for commands that must contact no
    /// server.
    pub fn offline() -> Fetcher {
        Fetcher::new(mpsc::channel(1).0)
    }

    fn new(jobs: mpsc::Sender<Job>) -> Fetcher {
        Fetcher {
            jobs,
            clients: Arc::default(),
            gets: Arc::new(Semaphore::new(MAX_GETS)),
            limiters: Arc::default(),
        }
    }

    /// Reads a document of a type that `accept` lists. Follows redirects that stay on the server.
    ///
    /// # Errors
    /// [`FetchError`]; any status but 200 is one.
    pub async fn get(
        &self,
        server: &IssuerServer,
        accept: &'static str,
    ) -> Result<Vec<u8>, FetchError> {
        let server = server.clone();
        let clients = Arc::clone(&self.clients);
        let gets = Arc::clone(&self.gets);
        let accept = HeaderValue::from_static(accept);
        self.run(server.timeout, async move {
            let _permit = gets.acquire().await.map_err(|_| FetchError::Cancelled)?;
            client::get(&clients.for_server(&server)?, &server.url, accept).await
        })
        .await
    }

    /// Gives out the permits to send forms to a server, of which clients can cause any number.
    pub(super) fn limiter_at(&self, server: &IssuerServer) -> Arc<FairLimiter> {
        self.limiters.at(&server.url)
    }

    /// Sends a form, which is urlencoded already, and reads the JSON that comes back. Follows no
    /// redirect: the form holds a token, which only this server may see. The permit is given back
    /// when the request ends.
    ///
    /// # Errors
    /// [`FetchError`]; any status but 200 is one.
    pub(super) async fn post_form(
        &self,
        permit: Permit,
        server: &IssuerServer,
        authorization: HeaderValue,
        form: String,
    ) -> Result<Vec<u8>, FetchError> {
        let server = server.clone();
        let clients = Arc::clone(&self.clients);
        self.run(server.timeout, async move {
            let _permit = permit;
            client::post(&clients.for_server(&server)?, &server.url, authorization, form).await
        })
        .await
    }

    /// Runs a job on the thread, beside the others. A job that blocks the thread holds up all of
    /// them. If too many jobs wait, this one is dropped instead.
    pub fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        // Jobs that must know of it notice in their `Drop`.
        let _ = self.jobs.try_send(Box::pin(job));
    }

    async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, FetchError>> + Send + 'static,
    ) -> Result<T, FetchError> {
        let (mut sender, result) = oneshot::channel();
        let begun = Instant::now();
        let job: Job = Box::pin(async move {
            // The time that the job waited counts too.
            let left = limit.saturating_sub(begun.elapsed());
            let result = tokio::select! {
                biased;
                // The caller has gone: the job ends, so that its permits are free at once.
                () = sender.closed() => return,
                result = timeout(left, work) => result,
            };
            let _ = sender.send(result.unwrap_or(Err(FetchError::TimedOut(limit))));
        });
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => FetchError::Busy,
            mpsc::error::TrySendError::Closed(_) => FetchError::Cancelled,
        })?;
        result.await.unwrap_or(Err(FetchError::Cancelled))
    }
}

/// An error's causes, outermost first. The error's own text is left out, since it only names the
/// kind of failure, as the variant does.
struct Causes<'a>(&'a (dyn Error + Send + Sync + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mut cause) = self.0.source() else { return write!(f, "{}", self.0) };
        write!(f, "{cause}")?;
        let mut written = cause.to_string();
        while let Some(next) = cause.source() {
            cause = next;
            // The text of some wrappers ends with the text of the error that they wrap.
            let text = cause.to_string();
            if !written.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            written = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(timeout: Duration) -> IssuerServer {
        IssuerServer::parse("http://127.0.0.1:9/", false, None, timeout).unwrap()
    }

    #[tokio::test]
    async fn document_beyond_the_bound_waits_but_not_forever() {
        let fetcher = Fetcher::start().unwrap();
        fetcher.gets.forget_permits(MAX_GETS);
        let result = fetcher.get(&server(Duration::from_millis(1)), "*/*").await;
        assert!(matches!(result, Err(FetchError::TimedOut(_))));
    }

    #[tokio::test]
    async fn fetch_on_a_thread_that_has_ended_fails_at_once() {
        let result = Fetcher::offline().get(&server(Duration::MAX), "*/*").await;
        assert!(matches!(result, Err(FetchError::Cancelled)));
    }

    #[test]
    fn each_cause_is_written_once() {
        #[derive(Debug, Error)]
        #[error("{0}")]
        struct Layer(&'static str, #[source] Option<Box<Layer>>);
        let layer = |text, cause| Layer(text, Some(Box::new(cause)));
        let inner = layer("refused: os error 111", Layer("os error 111", None));
        for (error, expected) in [
            (
                layer("client error", layer("tcp connect error", inner)),
                "tcp connect error: refused: os error 111",
            ),
            (Layer("single", None), "single"),
        ] {
            assert_eq!(Causes(&error).to_string(), expected);
        }
    }
}
