//! One batch of spans on its way to the endpoint: an HTTP request, and others if that may help.
//!
//! Which statuses may be tried again, and what `Retry-After` and a partial success mean, is in
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use rustls::RootCertStore;
use tokio::time::timeout;
use tollgate_outbound::{self as outbound, HttpClient, OUR_USER_AGENT};

use super::TraceSettings;

/// The first pause before a batch is sent again; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, also if the endpoint asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often a batch is sent. Meanwhile others wait, and the queue may become full.
pub(super) const MOST_TIMES: u32 = 5;

/// Most of a response that is read.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(60);

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Posts spans to the endpoint.
pub(super) struct Delivery {
    client: HttpClient,
    settings: Arc<TraceSettings>,
}

/// What the endpoint says of a batch that it took.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Receipt {
    /// Spans that it has refused all the same.
    pub(super) refused: usize,
    /// Why, in its words.
    pub(super) message: String,
}

/// Why the endpoint has not taken a batch.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    /// There was no response.
    #[error("no response: {0}")]
    NoResponse(String),
    /// There was none in time.
    #[error("no response in time")]
    Timeout,
    /// It may take the batch later: after so long, if it says that.
    #[error("status {0}")]
    Later(StatusCode, Option<Duration>),
    /// It will not take the batch.
    #[error("status {0}")]
    Refused(StatusCode),
}

impl Delivery {
    /// # Errors
    /// There is no TLS.
    pub(super) fn new(settings: Arc<TraceSettings>) -> Result<Delivery, rustls::Error> {
        let client = outbound::client(authorities(&settings), IDLE, 1)?;
        Ok(Delivery { client, settings })
    }

    /// Posts a batch once.
    pub(super) async fn post(&self, batch: Bytes) -> Result<Receipt, DeliveryError> {
        let exchange = async {
            let response = self.client.request(self.request(batch)).await;
            let response = response.map_err(|error| DeliveryError::NoResponse(reasons(&error)))?;
            let status = response.status();
            let wait = retry_after(response.headers());
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            match status {
                StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT => Err(DeliveryError::Later(status, wait)),
                // A response that cannot be read says nothing of refused spans.
                _ if status.is_success() => {
                    Ok(body.map(|body| taken(body.to_bytes())).unwrap_or_default())
                }
                _ => Err(DeliveryError::Refused(status)),
            }
        };
        timeout(self.settings.timeout, exchange).await.unwrap_or(Err(DeliveryError::Timeout))
    }

    fn request(&self, batch: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(batch));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.endpoint.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, OUR_USER_AGENT);
        for (name, value) in &self.settings.headers {
            headers.insert(name, value.clone());
        }
        headers.insert(CONTENT_TYPE, PROTOBUF);
        request
    }
}

impl DeliveryError {
    /// How long to wait before the batch is sent for the next time; `times` is how often it was
    /// sent. None: that would not help.
    pub(super) fn pause(&self, times: u32) -> Option<Duration> {
        if times >= MOST_TIMES {
            return None;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (times.max(1) - 1).min(16));
        match self {
            DeliveryError::Refused(_) => None,
            DeliveryError::Later(_, Some(pause)) => Some((*pause).min(LONGEST_PAUSE)),
            DeliveryError::Later(_, None)
            | DeliveryError::NoResponse(_)
            | DeliveryError::Timeout => Some(jittered(pause.min(LONGEST_PAUSE))),
        }
    }
}

/// Those of the platform and of the public; none, if no TLS is needed.
fn authorities(settings: &TraceSettings) -> Arc<RootCertStore> {
    match settings.endpoint.scheme_str() {
        Some("https") => outbound::platform_authorities(),
        _ => Arc::new(RootCertStore::empty()),
    }
}

/// What a response says of refused spans.
fn taken(body: Bytes) -> Receipt {
    let response = ExportTraceServiceResponse::decode(body).ok();
    let partial = response.and_then(|response| response.partial_success);
    let taken = partial.map(|partial| Receipt {
        refused: usize::try_from(partial.rejected_spans).unwrap_or_default(),
        message: partial.error_message.chars().take(200).collect(),
    });
    taken.unwrap_or_default()
}

/// The seconds of `Retry-After`. A date is not read: the pause is the usual one then.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// An error and what has caused it.
fn reasons(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A pause, less up to a half, so that proxies do not all come at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness they do.
    let _ = aws_lc_rs::rand::fill(&mut byte);
    let [byte] = byte;
    pause - pause / 2 * u32::from(byte) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let error = DeliveryError::Timeout;
        for (times, most) in [(1, 500), (2, 1000), (3, 2000), (4, 4000)] {
            let pause = error.pause(times).unwrap();
            let most = Duration::from_millis(most);
            assert!(pause >= most / 2 && pause <= most, "{times}: {pause:?}");
        }
        assert_eq!(error.pause(MOST_TIMES), None);
        let asked = |seconds| {
            let wait = Some(Duration::from_secs(seconds));
            DeliveryError::Later(StatusCode::SERVICE_UNAVAILABLE, wait).pause(1)
        };
        assert_eq!(asked(0), Some(Duration::ZERO));
        assert_eq!(asked(7), Some(Duration::from_secs(7)));
        assert_eq!(asked(3600), Some(LONGEST_PAUSE));
        assert_eq!(DeliveryError::Refused(StatusCode::BAD_REQUEST).pause(1), None);
    }

    #[test]
    fn partial_success_is_read() {
        // ExportTracePartialSuccess { rejected_spans: 3, error_message: "no" }
        let body = Bytes::from_static(&[10, 6, 8, 3, 18, 2, b'n', b'o']);
        assert_eq!(taken(body), Receipt { refused: 3, message: "no".into() });
        for nothing in [&b""[..], b"{}", b"\x0a\x00"] {
            assert_eq!(taken(Bytes::from_static(nothing)), Receipt::default());
        }
    }
}
