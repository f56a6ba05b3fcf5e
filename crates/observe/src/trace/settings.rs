//! What a tracer is started with.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use tollgate_keyword::keywords;

use super::Sampling;

/// What a tracer is started with.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceSettings {
    /// Where spans are posted to: the whole URL, with the path.
    pub endpoint: Uri,
    /// Fields of each such request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one such request may take.
    pub timeout: Duration,
    /// What spans are of: attributes, `service.name` among them.
    pub resource: Vec<(String, String)>,
    /// Which traces are recorded.
    pub sampling: Sampling,
    /// Whether requests that a limit denies are recorded, whatever the sampling.
    pub denials: bool,
    /// Whose `traceparent` is believed.
    pub trust_parent: TrustParent,
    /// Whether spans name the caller and the client's address.
    pub caller: bool,
    /// Most spans that wait.
    pub queue: usize,
    /// Most spans of one request to the endpoint.
    pub batch: usize,
    /// How long a span waits for others, at most.
    pub every: Duration,
}

/// Whose `traceparent` is believed. A request of anybody else begins a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustParent {
    /// That of trusted proxies.
    #[default]
    Trusted,
    /// Everybody's.
    Always,
    /// Nobody's.
    Never,
}

keywords! { TrustParent { Trusted = "trusted", Always = "always", Never = "never" } }

impl TrustParent {
    /// Whether a peer is believed.
    pub(super) fn trusts(self, is_trusted_proxy: bool) -> bool {
        match self {
            TrustParent::Trusted => is_trusted_proxy,
            TrustParent::Always => true,
            TrustParent::Never => false,
        }
    }
}
