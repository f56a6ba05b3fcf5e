//! TLS of a listener: certificates by name, who may connect, which versions.
//!
//! All of it is read with the settings and replaced while traffic flows: handshakes that begin from
//! then on use the new configuration, and connections go on with theirs.

mod certificates;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use rustls::{
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs as provider},
    pki_types::CertificateDer,
    server::{ServerSessionMemoryCache, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use schemars::JsonSchema;
use serde::Deserialize;

use self::certificates::RawCertificate;
use super::Protocols;
use crate::{settings::Checker, yaml::Spanned};

pub(super) use self::certificates::read_certificates;

/// Certificates: files in PEM form, from this file's folder. They are read anew when they change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "listener tls section")]
pub(super) struct RawTls {
    /// Certificates with their keys. A client gets the one that has the name that it asks for, or
    /// else the first.
    #[schemars(length(min = 1))]
    certificates: Spanned<Vec<RawCertificate>>,
    /// The authorities whose certificates clients may show. Left out: clients are asked for none.
    #[schemars(extend("examples" = ["clients.pem"]))]
    client_ca_file: Option<Spanned<String>>,
    /// Whether clients must show one: `required` or `optional`. Default: required.
    #[schemars(extend("enum" = ["required", "optional"]))]
    client_certificate: Option<Spanned<String>>,
    /// The oldest version of TLS that is spoken: "1.2" or "1.3". Default: "1.2".
    #[schemars(extend("enum" = ["1.2", "1.3"]))]
    min_version: Option<Spanned<String>>,
}

/// TLS as it is configured now.
pub struct CurrentTls(ArcSwap<Tls>);

struct Tls {
    config: Arc<ServerConfig>,
    /// Of all that it was made from.
    fingerprint: Fingerprint,
    /// Of what it was made from as far as that is about clients' certificates.
    clients: Fingerprint,
}

type Fingerprint = [u8; 32];

const SINCE_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const SINCE_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

/// How many sessions of clients without tickets can be resumed.
const SESSIONS: usize = 4096;

/// Largest file with certificates that is read.
pub(super) const MAX_PEM_BYTES: u64 = 1 << 20;

impl CurrentTls {
    /// What a handshake that begins now uses.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.load().config)
    }

    /// Takes over what `newer` has; whether that is something else.
    pub fn replace_by(&self, newer: &CurrentTls) -> bool {
        let (running, newer) = (self.0.load_full(), newer.0.load_full());
        if running.fingerprint == newer.fingerprint {
            return false;
        }
        let mut config = ServerConfig::clone(&newer.config);
        // What is spoken on the listener changes with a restart.
        config.alpn_protocols.clone_from(&running.config.alpn_protocols);
        // A session stands for a client whose certificate was checked: where that is checked in
        // another way from now on, none is resumed.
        if running.clients == newer.clients {
            config.ticketer = Arc::clone(&running.config.ticketer);
            config.session_storage = Arc::clone(&running.config.session_storage);
        }
        let Tls { fingerprint, clients, .. } = *newer;
        self.0.store(Arc::new(Tls { config: Arc::new(config), fingerprint, clients }));
        true
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

/// Who may connect.
struct Clients {
    verifier: Arc<dyn ClientCertVerifier>,
    fingerprint: Fingerprint,
}

impl Checker<'_> {
    pub(super) fn listener_tls(
        &mut self,
        raw: &RawTls,
        protocols: Protocols,
    ) -> Option<Arc<CurrentTls>> {
        let provider = Arc::new(provider::default_provider());
        let certificates = self.certificates(&raw.certificates, &provider);
        let clients = self.clients(raw, &provider);
        let versions = match &raw.min_version {
            None => SINCE_1_2,
            Some(raw) => self.one_of(raw, &[("1.2", SINCE_1_2), ("1.3", SINCE_1_3)])?,
        };
        let (certificates, clients) = (certificates?, clients.ok()?);

        let mut all = digest::Context::new(&digest::SHA256);
        all.update(&certificates.fingerprint);
        all.update(&clients.fingerprint);
        all.update(&[versions.len() as u8]);

        let builder = ServerConfig::builder_with_provider(provider);
        let builder = match builder.with_protocol_versions(versions) {
            Ok(builder) => builder,
            Err(error) => {
                self.refuse(&raw.certificates, error.to_string(), "");
                return None;
            }
        };
        let mut config = builder
            .with_client_cert_verifier(clients.verifier)
            .with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = protocols.alpn();
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        // Without random numbers there are no tickets, and each handshake is a whole one.
        if let Ok(ticketer) = provider::Ticketer::new() {
            config.ticketer = ticketer;
        }
        let tls = Tls {
            config: Arc::new(config),
            fingerprint: fingerprint_of(all),
            clients: clients.fingerprint,
        };
        Some(Arc::new(CurrentTls(ArcSwap::from_pointee(tls))))
    }

    /// Who may connect; an error was told if there is none.
    fn clients(&mut self, raw: &RawTls, provider: &Arc<CryptoProvider>) -> Result<Clients, ()> {
        let words = [("required", false), ("optional", true)];
        let may_have_none = match &raw.client_certificate {
            None => false,
            Some(raw) => self.one_of(raw, &words).ok_or(())?,
        };
        let Some(file) = &raw.client_ca_file else {
            if let Some(place) = &raw.client_certificate {
                let message = "`client_certificate` needs `client_ca_file`";
                self.refuse(place, message, "add `client_ca_file`, or remove this");
            }
            let verifier = WebPkiClientVerifier::no_client_auth();
            return Ok(Clients { verifier, fingerprint: Fingerprint::default() });
        };
        let pem = self.file(file, MAX_PEM_BYTES).ok_or(())?;
        let mut all = digest::Context::new(&digest::SHA256);
        all.update(&[u8::from(may_have_none)]);
        let mut roots = RootCertStore::empty();
        for authority in self.authorities(file, &pem).ok_or(())? {
            all.update(&authority);
            if roots.add(authority).is_err() {
                let help = "name a file with the certificates of authorities, in PEM form";
                self.refuse(
                    file,
                    format!("not an authority's certificate in `{}`", file.value),
                    help,
                );
                return Err(());
            }
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let builder = if may_have_none { builder.allow_unauthenticated() } else { builder };
        match builder.build() {
            Ok(verifier) => Ok(Clients { verifier, fingerprint: fingerprint_of(all) }),
            Err(error) => {
                self.refuse(
                    file,
                    format!("cannot check certificates by `{}`: {error}", file.value),
                    "",
                );
                Err(())
            }
        }
    }

    fn authorities(
        &mut self,
        file: &Spanned<String>,
        pem: &[u8],
    ) -> Option<Vec<CertificateDer<'static>>> {
        let authorities = read_certificates(pem);
        if authorities.is_none() {
            let message = format!("no certificate in `{}`", file.value);
            self.refuse(file, message, "name a file with certificates in PEM form");
        }
        authorities
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
