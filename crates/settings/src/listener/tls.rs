//! TLS of a listener: certificates by name, client authorities, versions.
//!
//! All of it is read with the settings and replaced while traffic flows: handshakes that begin from
//! then on use the new configuration, and connections go on with theirs.

mod certificates;
mod choice;
mod clients;
mod revocation;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs as provider,
    pki_types::{CertificateDer, UnixTime},
    server::{ServerSessionMemoryCache, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_clock::Timestamp;
use tollgate_keyword::{Keyword, keywords};
use tollgate_yaml::{Check, Choice, Spanned};

use self::certificates::{Certificates, RawCertificate};
use super::Protocols;
use crate::Checker;

pub(super) use self::certificates::read_certificates;
pub use self::{
    certificates::CertificateValidity,
    choice::{CertificateChoice, HandshakeConfig},
};

/// Certificates: files in PEM form, from this file's folder. They are read anew when they change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "listener tls section")]
pub(crate) struct RawTls {
    /// Certificates with their keys. A client gets the one that has the name that it asks for, or
    /// else the first.
    #[schemars(length(min = 1))]
    certificates: Spanned<Vec<RawCertificate>>,
    /// The authorities whose certificates clients may show. Left out: no certificate is requested.
    #[schemars(extend("examples" = ["clients.pem"]))]
    client_ca_file: Option<Spanned<String>>,
    /// Whether clients must show one: `required` or `optional`. Default: required.
    client_certificate: Option<Spanned<Choice<ClientCertificate>>>,
    /// Which certificates these authorities have revoked: their CRLs, one or more, in PEM form. A
    /// client that shows such a one is refused. Needs `client_ca_file`. Left out: a certificate is
    /// good until its time is over.
    #[schemars(extend("examples" = ["clients.crl"]))]
    crl_file: Option<Spanned<String>>,
    /// How a client is treated whose authority's CRL is past its next update: `refuse`, or `accept`
    /// to go on using that CRL. Default: refuse.
    crl_expired: Option<Spanned<Choice<WithoutCrl>>>,
    /// How a client is treated whose authority, or one between, has no CRL in `crl_file`: `refuse`
    /// or `accept`. Default: refuse.
    crl_missing: Option<Spanned<Choice<WithoutCrl>>>,
    /// The oldest version of TLS that is spoken: "1.2" or "1.3". Default: "1.2".
    min_version: Option<Spanned<Choice<TlsVersion>>>,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Default)]
enum ClientCertificate {
    #[default]
    Required,
    Optional,
}

keywords! { ClientCertificate { Required = "required", Optional = "optional" } }

impl RawTls {
    /// Whether only clients with a certificate get through.
    pub(crate) fn requires_certificate(&self) -> bool {
        let may_have_none = |raw: &Spanned<Choice<ClientCertificate>>| {
            raw.value.as_ref() == ClientCertificate::Optional.keyword()
        };
        self.client_ca_file.is_some()
            && !self.client_certificate.as_ref().is_some_and(may_have_none)
    }
}

/// The decision about a client whose authority has no CRL, or an old one.
#[derive(Clone, Copy, Default)]
enum WithoutCrl {
    #[default]
    Refuse,
    Accept,
}

keywords! { WithoutCrl { Refuse = "refuse", Accept = "accept" } }

/// A version of TLS.
#[derive(Clone, Copy)]
enum TlsVersion {
    V1_2,
    V1_3,
}

keywords! { TlsVersion { V1_2 = "1.2", V1_3 = "1.3" } }

/// TLS as it is configured now.
pub struct CurrentTls(ArcSwap<Tls>);

struct Tls {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// When the lists of revoked certificates are out of date; none: that makes no difference.
    lists_until: Option<Timestamp>,
    /// Of each certificate, in the order of the settings.
    validity: Arc<[CertificateValidity]>,
    /// Of all that it was made from, but for clients' certificates.
    own: Fingerprint,
    /// Of what it was made from as far as that is about clients' certificates.
    clients: Fingerprint,
    /// How often that has changed.
    epoch: Epoch,
}

/// Identifies the rules about clients' certificates that were in force.
pub type Epoch = u64;

/// What of a listener's TLS was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Its certificates, or its versions of TLS.
    pub certificates: bool,
    /// Which certificates of clients are good.
    pub clients: bool,
}

type Fingerprint = [u8; 32];

const SINCE_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const SINCE_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

/// How many sessions of clients without tickets can be resumed.
const SESSIONS: usize = 4096;

/// Largest file with certificates that is read.
pub(super) const MAX_PEM_BYTES: u64 = 1 << 20;

impl CurrentTls {
    /// What a handshake that begins now uses, and what learns which certificate it takes.
    pub fn handshake(&self) -> HandshakeConfig {
        let tls = self.0.load();
        HandshakeConfig::new(&tls.config, &tls.certificates, tls.epoch)
    }

    /// What a handshake that begins now uses, and by which rules it checks the client's
    /// certificate.
    pub fn config(&self) -> (Arc<ServerConfig>, Epoch) {
        let tls = self.0.load();
        (Arc::clone(&tls.config), tls.epoch)
    }

    /// How long the certificates are valid that clients are shown, in the order of the settings.
    pub fn validity(&self) -> Arc<[CertificateValidity]> {
        Arc::clone(&self.0.load().validity)
    }

    /// Whether clients are asked for a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.0.load().verifier.offer_client_auth()
    }

    /// Which rules about clients' certificates are in force.
    pub fn epoch(&self) -> Epoch {
        self.0.load().epoch
    }

    /// From when on a certificate that was good by these rules has to be checked again, as a list
    /// of revoked certificates is out of date by then. None: never for that.
    pub fn lists_until(&self) -> Option<Timestamp> {
        self.0.load().lists_until
    }

    /// Checks a certificate, and those that came with it, by the rules that are in force, and says
    /// which these are.
    ///
    /// # Errors
    /// It is not good at `now`: revoked, too old, of an authority that is not named any more; or
    /// clients are asked for none any more.
    pub fn check(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Epoch, rustls::Error> {
        let tls = self.0.load();
        let (Some((own, others)), true) = (chain.split_first(), tls.verifier.offer_client_auth())
        else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let now = UnixTime::since_unix_epoch(Duration::from_micros(now.as_micros()));
        tls.verifier.verify_client_cert(own, others, now).map(|_| tls.epoch)
    }

    /// Takes over what `newer` has. None: that is the same.
    pub fn replace_by(&self, newer: &CurrentTls) -> Option<Renewed> {
        let running = self.0.load_full();
        let newer = newer.0.load_full();
        let renewed = Renewed {
            certificates: running.own != newer.own,
            clients: running.clients != newer.clients,
        };
        if !renewed.certificates && !renewed.clients {
            return None;
        }
        let mut config = ServerConfig::clone(&newer.config);
        // What is spoken on the listener changes with a restart.
        config.alpn_protocols.clone_from(&running.config.alpn_protocols);
        // A resumed session skips the check of the client's certificate: when the rules of that
        // check change, no earlier session is resumed.
        if !renewed.clients {
            config.ticketer = Arc::clone(&running.config.ticketer);
            config.session_storage = Arc::clone(&running.config.session_storage);
        }
        self.0.store(Arc::new(Tls {
            config: Arc::new(config),
            certificates: Arc::clone(&newer.certificates),
            verifier: Arc::clone(&newer.verifier),
            lists_until: newer.lists_until,
            validity: Arc::clone(&newer.validity),
            own: newer.own,
            clients: newer.clients,
            epoch: running.epoch + u64::from(renewed.clients),
        }));
        Some(renewed)
    }
}

/// What is in it is replaced, never compared: two listeners that both speak TLS are alike.
impl PartialEq for CurrentTls {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for CurrentTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentTls")
    }
}

impl Checker<'_> {
    pub(crate) fn listener_tls(
        &mut self,
        raw: &RawTls,
        protocols: Protocols,
    ) -> Option<Arc<CurrentTls>> {
        let provider = Arc::new(provider::default_provider());
        let certificates = self.certificates(&raw.certificates, &provider);
        let clients = self.clients(raw, &provider);
        let versions = match &raw.min_version {
            None => SINCE_1_2,
            Some(raw) => match self.keyword(raw)? {
                TlsVersion::V1_2 => SINCE_1_2,
                TlsVersion::V1_3 => SINCE_1_3,
            },
        };
        let certificates = Arc::new(certificates?);
        let clients = clients.ok()?;

        let validity = certificates.validity.as_slice().into();
        let mut own = digest::Context::new(&digest::SHA256);
        own.update(&certificates.fingerprint);
        own.update(&[versions.len() as u8]);

        let builder = ServerConfig::builder_with_provider(provider);
        let builder = match builder.with_protocol_versions(versions) {
            Ok(builder) => builder,
            Err(error) => {
                self.refuse(&raw.certificates, error.to_string(), "");
                return None;
            }
        };
        let mut config = builder
            .with_client_cert_verifier(Arc::clone(&clients.verifier))
            .with_cert_resolver(Arc::<Certificates>::clone(&certificates));
        config.alpn_protocols = protocols.alpn();
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        // Without random numbers there are no tickets, and each handshake is a whole one.
        if let Ok(ticketer) = provider::Ticketer::new() {
            config.ticketer = ticketer;
        }
        let tls = Tls {
            config: Arc::new(config),
            certificates,
            verifier: clients.verifier,
            lists_until: clients.until,
            validity,
            own: fingerprint_of(own),
            clients: clients.fingerprint,
            epoch: 0,
        };
        Some(Arc::new(CurrentTls(ArcSwap::from_pointee(tls))))
    }
}

impl Protocols {
    /// The names by which they are agreed on in a handshake (RFC 7301), the preferred one first.
    fn alpn(self) -> Vec<Vec<u8>> {
        let names = [(self.has_http2(), ALPN_HTTP2), (self.has_http1(), ALPN_HTTP1)];
        names.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_vec()).collect()
    }
}

/// What HTTP/2 is called in a handshake.
pub const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

fn fingerprint_of(context: digest::Context) -> Fingerprint {
    let mut fingerprint = Fingerprint::default();
    let digest = context.finish();
    fingerprint.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    fingerprint
}
