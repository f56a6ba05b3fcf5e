//! Which of a listener's certificates a connection was secured with, and for which hosts that is
//! the wrong one.

use std::sync::{Arc, OnceLock};

use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{Epoch, certificates::Certificates};

/// What a handshake is made with.
pub struct HandshakeConfig {
    /// For rustls.
    pub config: Arc<ServerConfig>,
    /// By which rules the client's certificate is checked.
    pub epoch: Epoch,
    /// Learns which certificate the client gets; none: there is only one.
    pub choice: Option<Arc<CertificateChoice>>,
}

impl HandshakeConfig {
    /// For a listener with these certificates, whose choice is noted if there are several.
    pub(super) fn new(
        config: &Arc<ServerConfig>,
        certificates: &Arc<Certificates>,
        epoch: Epoch,
    ) -> HandshakeConfig {
        if !certificates.are_several() {
            return HandshakeConfig { config: Arc::clone(config), epoch, choice: None };
        }
        let (certificates, chosen) = (Arc::clone(certificates), OnceLock::new());
        let choice = Arc::new(CertificateChoice { certificates, chosen });
        let mut config = ServerConfig::clone(config);
        config.cert_resolver = Arc::<CertificateChoice>::clone(&choice);
        HandshakeConfig { config: Arc::new(config), epoch, choice: Some(choice) }
    }
}

/// The certificate of a connection, among those that its listener had at the time of its handshake.
#[derive(Debug)]
pub struct CertificateChoice {
    certificates: Arc<Certificates>,
    /// Not set: the handshake has not come so far, or the client has named no host in it.
    chosen: OnceLock<Arc<CertifiedKey>>,
}

impl CertificateChoice {
    /// Whether a host, in lower case, is one of another certificate, and not of this one.
    pub fn is_misdirected(&self, host: &str) -> bool {
        let is_own = |certificate: &Arc<CertifiedKey>| {
            self.chosen.get().is_none_or(|own| Arc::ptr_eq(own, certificate))
        };
        let mut found = self.certificates.covering(host).peekable();
        found.peek().is_some() && !found.any(is_own)
    }
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let names_host = hello.server_name().is_some();
        let chosen = self.certificates.resolve(hello)?;
        // A client that has to send its hello again asks for the same.
        Some(match names_host {
            true => Arc::clone(self.chosen.get_or_init(|| chosen)),
            false => chosen,
        })
    }
}
