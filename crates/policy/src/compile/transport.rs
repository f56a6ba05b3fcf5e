//! TLS to upstreams: trusted authorities and client certificates.
//!
//! The cryptography is named, not taken from what the process may have installed.

use std::sync::Arc;

use rustls::{
    ClientConfig, Error, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tollgate_outbound::platform_authorities;
use tollgate_yaml::{Check, Span, Spanned};

use super::{Compiler, fingerprint::Fingerprint, upstreams::WrittenServer};
use crate::{
    Transport, UpstreamTls,
    file::{RawUpstream, RawUpstreamTls},
};

/// The largest file of certificates or of a key that is read.
const MAX_PEM_BYTES: u64 = 1024 * 1024;
const CERTIFICATES: &str = "name a file with CERTIFICATE blocks in PEM form";

/// A certificate and those between it and its authority, and its key.
type CertificateAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Compiler<'_> {
    pub(super) fn transport(
        &mut self,
        raw: &RawUpstream,
        servers: &[WrittenServer],
    ) -> Option<Transport> {
        let is_secure = servers.iter().any(|written| written.is_secure);
        if is_secure && servers.iter().any(|written| !written.is_secure) {
            let help = "write all addresses with http://, or all with https://";
            self.refuse(raw.servers.span, "some servers with TLS, and some without", help);
            return None;
        }
        match (is_secure, &raw.tls) {
            (false, None) => Some(Transport::Plain),
            (false, Some(tls)) => {
                let help = "write their addresses with https://, or remove it";
                self.refuse(tls.span, "`tls` for servers that are spoken to without", help);
                None
            }
            (true, tls) => {
                let place = raw.servers.span;
                let tls = self.upstream_tls(tls.as_ref().map(|tls| &tls.value), place)?;
                if tls.server_name.is_none() {
                    servers.iter().for_each(|written| self.check_certified(written));
                }
                Some(Transport::Tls(tls))
            }
        }
    }

    /// Whether a certificate can be for a server's own name.
    fn check_certified(&mut self, written: &WrittenServer) {
        if ServerName::try_from(&*written.server.host).is_err() {
            let message = format!("no certificate can be for `{}`", written.server.host);
            let help = "write another name, or the certificate's as `tls: { server_name: … }`";
            self.refuse(written.span, message, help);
        }
    }

    /// `place` is the place of problems that belong to no single field.
    fn upstream_tls(&mut self, raw: Option<&RawUpstreamTls>, place: Span) -> Option<UpstreamTls> {
        let mut fingerprint = Fingerprint::new();
        let ca_file = raw.and_then(|raw| raw.ca_file.as_ref());
        let roots = match ca_file {
            None => Some(platform_authorities()),
            Some(path) if self.inspection.sources.are_by_name() => {
                fingerprint.add(path.value.as_bytes());
                Some(platform_authorities())
            }
            Some(path) => self.roots(path, &mut fingerprint),
        };
        let shown = raw.and_then(|raw| self.shown(raw, &mut fingerprint));
        let server_name = match raw.and_then(|raw| raw.server_name.as_ref()) {
            None => Some(None),
            Some(raw) => self.server_name(raw, &mut fingerprint).map(Some),
        };
        let roots = roots?;
        let server_name = server_name?;
        let config = match client_config(roots, shown) {
            Ok(config) => Arc::new(config),
            Err(error) => {
                self.refuse_config(&error, raw, place);
                return None;
            }
        };
        Some(UpstreamTls { config, server_name, fingerprint: fingerprint.finish() })
    }

    fn refuse_config(&mut self, error: &Error, raw: Option<&RawUpstreamTls>, place: Span) {
        let files =
            raw.and_then(|raw| Some((raw.certificate_file.as_ref()?, raw.key_file.as_ref()?)));
        let (place, message) = match (files, error) {
            (Some((certificate, key)), Error::InconsistentKeys(_)) => {
                let message = format!("`{}` is not the key of `{}`", key.value, certificate.value);
                (key.span, message)
            }
            (Some((_, key)), error) => {
                (key.span, format!("`{}` cannot be used: {error}", key.value))
            }
            (None, error) => (place, format!("no TLS: {error}")),
        };
        self.refuse(place, message, "name the key of the first certificate in `certificate_file`");
    }

    fn roots(
        &mut self,
        path: &Spanned<String>,
        fingerprint: &mut Fingerprint,
    ) -> Option<Arc<RootCertStore>> {
        let certificates = self.certificates(path, fingerprint)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            if let Err(error) = roots.add(certificate) {
                let message = format!("a certificate of `{}` cannot be used: {error}", path.value);
                self.refuse(path.span, message, CERTIFICATES);
                return None;
            }
        }
        Some(Arc::new(roots))
    }

    /// None: no certificate is shown, or it was refused.
    fn shown(
        &mut self,
        raw: &RawUpstreamTls,
        fingerprint: &mut Fingerprint,
    ) -> Option<CertificateAndKey> {
        let (certificate_file, key_file) =
            self.certificate_and_key(&raw.certificate_file, &raw.key_file)?;
        if self.inspection.sources.are_by_name() {
            fingerprint.add(certificate_file.value.as_bytes());
            fingerprint.add(key_file.value.as_bytes());
            return None;
        }
        let certificates = self.certificates(certificate_file, fingerprint);
        let key = self.key(key_file, fingerprint);
        Some((certificates?, key?))
    }

    fn certificates(
        &mut self,
        path: &Spanned<String>,
        fingerprint: &mut Fingerprint,
    ) -> Option<Vec<CertificateDer<'static>>> {
        let pem = self.file(path, MAX_PEM_BYTES)?;
        fingerprint.add(b"certificates");
        fingerprint.add(&pem);
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Some(certificates),
            _ => {
                let message = format!("`{}` holds no certificates", path.value);
                self.refuse(path.span, message, CERTIFICATES);
                None
            }
        }
    }

    fn key(
        &mut self,
        path: &Spanned<String>,
        fingerprint: &mut Fingerprint,
    ) -> Option<PrivateKeyDer<'static>> {
        let pem = self.file(path, MAX_PEM_BYTES)?;
        self.warn_if_open_to_all(path);
        fingerprint.add(b"key");
        fingerprint.add(&pem);
        let key = PrivateKeyDer::from_pem_slice(&pem).ok();
        if key.is_none() {
            let help = "name a file with a PRIVATE KEY block in PEM form, without a password";
            self.refuse(path.span, format!("`{}` holds no key", path.value), help);
        }
        key
    }

    fn server_name(
        &mut self,
        raw: &Spanned<String>,
        fingerprint: &mut Fingerprint,
    ) -> Option<ServerName<'static>> {
        fingerprint.add(b"server name");
        fingerprint.add(raw.value.as_bytes());
        let name = ServerName::try_from(raw.value.clone()).ok();
        if name.is_none() {
            let message = format!("no certificate can be for `{}`", raw.value);
            self.refuse(raw.span, message, "write a host name or an address");
        }
        name
    }
}

/// TLS 1.2 and 1.3.
fn client_config(
    roots: Arc<RootCertStore>,
    shown: Option<CertificateAndKey>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    match shown {
        None => Ok(config.with_no_client_auth()),
        Some((certificates, key)) => config.with_client_auth_cert(certificates, key),
    }
}
