//! A health probe: one GET on a connection of its own.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, Version, header};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use thiserror::Error;
use tokio::{task::JoinHandle, time::timeout};
use tollgate_policy::{HealthCheck, Protocol, Transport, Upstream};

use super::super::{Member, UpstreamError, dial::Dialer};

/// The probe for all servers of an upstream.
pub(crate) struct Probe {
    /// The interval, and which statuses count as healthy.
    pub(crate) check: HealthCheck,
    upstream: Upstream,
    dialer: Dialer,
}

/// Why a probe failed.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// Connecting, TLS and the response head together took too long.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// No connection, or no trusted one.
    #[error(transparent)]
    Connect(#[from] UpstreamError),
    /// The connection broke, or the response is not HTTP.
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    /// The path or host makes no valid request.
    #[error("the probe request is invalid: {0}")]
    Request(#[from] http::Error),
    /// The status does not count as healthy.
    #[error("the answer has status {0}")]
    Status(StatusCode),
}

/// The largest response head that is read.
const MAX_HEAD_BYTES: usize = 64 * 1024;

impl Probe {
    /// `None` if the policy has no health check.
    pub(crate) fn of(upstream: &Upstream) -> Option<Probe> {
        let check = upstream.health_check.clone()?;
        let dialer = Dialer::new(upstream);
        Some(Probe { check, dialer, upstream: upstream.clone() })
    }

    /// Probes a server.
    ///
    /// # Errors
    /// Why the probe failed.
    pub(crate) async fn run(&self, member: &Member) -> Result<(), ProbeError> {
        let limit = self.check.timeout;
        let status = timeout(limit, self.exchange(member))
            .await
            .map_err(|_| ProbeError::TimedOut(limit))??;
        match self.check.statuses.contains(status) {
            true => Ok(()),
            false => Err(ProbeError::Status(status)),
        }
    }

    async fn exchange(&self, member: &Member) -> Result<StatusCode, ProbeError> {
        let protocol = self.upstream.protocol;
        let stream = self.dialer.dial(member, protocol, &self.upstream).await?;
        let request = self.request(member)?;
        // The connection is closed after the head: the body is not needed.
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

    fn request(&self, member: &Member) -> Result<Request<Empty<Bytes>>, ProbeError> {
        let host = self.check.host.as_ref().unwrap_or(&member.server.authority);
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

/// The check alone: the upstream and its dialer would fill the log.
impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("check", &self.check).finish_non_exhaustive()
    }
}
