//! HTTP/1.1 to servers that are called beside the path of requests: those of issuers, and the one
//! that collects traces. Who calls them chooses whom to trust, and bounds time and bodies.
//!
//! This crate does not know who calls, or why. [`client`] makes an [`HttpClient`],
//! [`platform_authorities`] and [`public_authorities`] are those to trust, and [`OUR_USER_AGENT`]
//! is how our requests name us.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// A client with connections of its own, with TLS or without, as a URL says.
pub type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The largest head of a response.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// `User-Agent` of our own requests.
pub const OUR_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));

/// A client that trusts `roots`, and keeps at most `max_idle` connections to a server for `idle`.
///
/// # Errors
/// There is no TLS.
pub fn client(
    roots: impl Into<Arc<RootCertStore>>,
    idle: Duration,
    max_idle: usize,
) -> Result<HttpClient, rustls::Error> {
    // The provider has a name here, so as not to depend on one that the process has installed.
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(max_idle)
        .http1_max_buf_size(MAX_HEAD_BYTES)
        .build(connector))
}

/// The authorities of this machine, or those of this program where a container has none. Read once:
/// the platform's list is no part of a configuration, and a reload does not read it again.
pub fn platform_authorities() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            tracing::info!("the platform trusts no authorities: using those of this program");
            roots = public_authorities();
        }
        Arc::new(roots)
    });
    Arc::clone(roots)
}

/// The authorities that browsers trust.
pub fn public_authorities() -> RootCertStore {
    webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()
}
