//! Asking a server how it is: one GET on a connection of its own.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, Version, header};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;
use tokio::{task::JoinHandle, time::timeout};

use super::super::{Endpoint, UpstreamError, dial::Dialer};
use crate::policy::{HealthCheck, Protocol, Transport, Upstream};

/// What all servers of an upstream are asked.
pub(in crate::upstream) struct Question {
    /// When, and which answers are good.
    pub(in crate::upstream) check: HealthCheck,
    upstream: Upstream,
    dialer: Dialer,
}

/// What is wrong with a server.
#[derive(Debug, Error)]
pub(in crate::upstream) enum Symptom {
    /// It took too long: connection, TLS, head of the answer, all together.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// Nobody listens there, or nobody to be trusted.
    #[error(transparent)]
    Connect(#[from] UpstreamError),
    /// The connection broke, or brought what is no HTTP.
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    /// The question cannot be put into words.
    #[error("not to be asked for: {0}")]
    Request(#[from] http::Error),
    /// It says so itself.
    #[error("the answer has status {0}")]
    Status(StatusCode),
}

/// What is read of an answer at most.
const MAX_HEAD_BYTES: usize = 64 * 1024;

impl Question {
    /// None: the servers are not asked.
    pub(in crate::upstream) fn of(upstream: &Upstream) -> Option<Question> {
        let check = upstream.health_check.clone()?;
        let dialer = Dialer::new(upstream);
        Some(Question { check, dialer, upstream: upstream.clone() })
    }

    /// Asks a server.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::upstream) async fn ask(&self, endpoint: &Endpoint) -> Result<(), Symptom> {
        let limit = self.check.timeout;
        let status = timeout(limit, self.exchange(endpoint))
            .await
            .map_err(|_| Symptom::TimedOut(limit))??;
        match self.check.statuses.contains(status) {
            true => Ok(()),
            false => Err(Symptom::Status(status)),
        }
    }

    async fn exchange(&self, endpoint: &Endpoint) -> Result<StatusCode, Symptom> {
        let protocol = self.upstream.protocol;
        let stream = self.dialer.dial(endpoint, protocol, &self.upstream).await?;
        let request = self.request(endpoint)?;
        // The connection is closed when the head is there: nobody wants the body.
        let response = match protocol {
            Protocol::Http1 => {
                let (mut sender, connection) = http1::Builder::new()
                    .max_buf_size(MAX_HEAD_BYTES)
                    .handshake(TokioIo::new(stream))
                    .await?;
                let _driver = Driver(tokio::spawn(async move { drop(connection.await) }));
                sender.send_request(request).await?
            }
            Protocol::Http2 => {
                let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .max_header_list_size(MAX_HEAD_BYTES as u32)
                    .handshake(TokioIo::new(stream))
                    .await?;
                let _driver = Driver(tokio::spawn(async move { drop(connection.await) }));
                sender.send_request(request).await?
            }
        };
        Ok(response.status())
    }

    fn request(&self, endpoint: &Endpoint) -> Result<Request<Empty<Bytes>>, Symptom> {
        let host = self.check.host.as_ref().unwrap_or(&endpoint.server.authority);
        let request = Request::get(&*self.check.path)
            .header(header::USER_AGENT, HeaderValue::from_static("tollgate"));
        let request = match self.upstream.protocol {
            Protocol::Http1 => request
                .header(header::HOST, host)
                .header(header::CONNECTION, HeaderValue::from_static("close")),
            Protocol::Http2 => {
                let scheme = match self.upstream.transport {
                    Transport::Plain => "http",
                    Transport::Tls(_) => "https",
                };
                let target = Uri::builder()
                    .scheme(scheme)
                    .authority(host.as_bytes())
                    .path_and_query(&*self.check.path);
                request.version(Version::HTTP_2).uri(target.build()?)
            }
        };
        Ok(request.body(Empty::new())?)
    }
}

/// A connection's task, which ends with this.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// In short.
impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("check", &self.check).finish_non_exhaustive()
    }
}
