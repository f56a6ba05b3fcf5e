//! The certificates of a listener, and which of them a client gets: the one with the name that it
//! asks for, then one with a wildcard for it, then the first.
//!
//! Several may have one name: a client gets the first of them whose kind of key it knows, so that
//! an ECDSA certificate can stand beside an RSA one for old clients.

use std::{collections::HashMap, sync::Arc};

use aws_lc_rs::digest;
use rustls::{
    Error, InconsistentKeys,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_clock::Clock;
use tollgate_yaml::{Check, Spanned, warning::Rule};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

use super::{Fingerprint, MAX_PEM_BYTES, fingerprint_of};
use crate::Checker;

/// A certificate with its key: files in PEM form.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "listener certificate")]
pub(super) struct RawCertificate {
    /// The certificate, and those between it and the authority.
    #[schemars(extend("examples" = ["server.pem"]))]
    certificate_file: Spanned<String>,
    /// The private key of the first certificate in that file.
    #[schemars(extend("examples" = ["server.key"]))]
    key_file: Spanned<String>,
}

/// Certificates by name.
#[derive(Debug)]
pub(super) struct Certificates {
    /// In the order of the settings: the first is for clients that request none of the names.
    all: Vec<Arc<CertifiedKey>>,
    /// By whole name, in lower case.
    exact: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// By what follows the `*.` of a name.
    wildcard: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    pub(super) validity: Vec<CertificateValidity>,
    pub(super) fingerprint: Fingerprint,
}

/// How long a certificate is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// Its file, as the settings name it.
    pub file: Box<str>,
    /// Its last second, in seconds since the epoch.
    pub not_after: i64,
}

/// What clients know a certificate by, and for how long.
struct CertificateFacts {
    /// The DNS names in lower case.
    names: Vec<Box<str>>,
    not_after: i64,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_usable = |certificate: &&Arc<CertifiedKey>| {
            certificate.key.choose_scheme(hello.signature_schemes()).is_some()
        };
        let named = hello.server_name().map_or(&[][..], |name| self.named(name));
        let found = named.iter().find(is_usable).or_else(|| self.all.iter().find(is_usable));
        found.or(self.all.first()).cloned()
    }
}

impl Certificates {
    /// Those that have a name, or a wildcard for it.
    fn named(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let name = name.to_ascii_lowercase();
        let exact = self.exact.get(name.as_str());
        // A wildcard matches one label (RFC 9525 section 6.3).
        let parent = || name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        exact.or_else(parent).map_or(&[], Vec::as_slice)
    }

    /// Those that are valid for a host, in lower case: by its name, or by a wildcard for it.
    pub(super) fn covering(&self, host: &str) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        let wildcard = parent.and_then(|parent| self.wildcard.get(parent));
        self.exact.get(host).into_iter().chain(wildcard).flatten()
    }

    /// Whether there is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    fn add(&mut self, certificate: Arc<CertifiedKey>, names: &[Box<str>]) {
        for name in names {
            let (table, name) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent),
                None => (&mut self.exact, &**name),
            };
            table.entry(name.into()).or_default().push(Arc::clone(&certificate));
        }
        self.all.push(certificate);
    }
}

impl Checker<'_> {
    /// Reads all pairs; none if anything is wrong with one of them.
    pub(super) fn certificates(
        &mut self,
        raw: &Spanned<Vec<RawCertificate>>,
        provider: &CryptoProvider,
    ) -> Option<Certificates> {
        if raw.value.is_empty() {
            let help = "add one: `- { certificate_file: site.pem, key_file: site.key }`";
            self.refuse(raw, "TLS without a certificate", help);
        }
        let mut all = digest::Context::new(&digest::SHA256);
        let mut certificates = Certificates {
            all: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            validity: Vec::new(),
            fingerprint: Fingerprint::default(),
        };
        for raw in &raw.value {
            let chain = self.file(&raw.certificate_file, MAX_PEM_BYTES);
            let key = self.secret_file(&raw.key_file, MAX_PEM_BYTES);
            let (Some(chain), Some(key)) = (chain, key) else { continue };
            for file in [&chain, &key] {
                all.update(digest::digest(&digest::SHA256, file).as_ref());
            }
            if let Some((certificate, facts)) = self.certificate(raw, &chain, &key, provider) {
                let CertificateFacts { names, not_after } = facts;
                if names.is_empty() && !certificates.all.is_empty() {
                    let message = "this certificate has no DNS name, so no client gets it";
                    let place = &raw.certificate_file;
                    self.warn(Rule::UselessCertificate, place, message, "remove it");
                }
                certificates.add(certificate, &names);
                let file = raw.certificate_file.value.as_str().into();
                certificates.validity.push(CertificateValidity { file, not_after });
            }
        }
        certificates.fingerprint = fingerprint_of(all);
        Some(certificates).filter(|read| read.all.len() == raw.value.len() && !read.all.is_empty())
    }

    /// A pair, with what the certificate says.
    fn certificate(
        &mut self,
        raw: &RawCertificate,
        chain: &[u8],
        key: &[u8],
        provider: &CryptoProvider,
    ) -> Option<(Arc<CertifiedKey>, CertificateFacts)> {
        let RawCertificate { certificate_file, key_file } = raw;
        let chain = read_certificates(chain);
        if chain.is_none() {
            let message = format!("no certificate in `{}`", certificate_file.value);
            self.refuse(certificate_file, message, "name a file with certificates in PEM form");
        }
        let key = PrivateKeyDer::from_pem_slice(key).ok();
        if key.is_none() {
            let message = format!("no private key in `{}`", key_file.value);
            self.refuse(
                key_file,
                message,
                "name a file with a private key in PEM form, unencrypted",
            );
        }
        let chain = chain?;
        let key = key?;
        let facts = self.facts(certificate_file, chain.first()?)?;
        match CertifiedKey::from_der(chain, key, provider) {
            Ok(certificate) => Some((Arc::new(certificate), facts)),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let message =
                    format!("`{}` is not the key of `{}`", key_file.value, certificate_file.value);
                self.refuse(key_file, message, "name the key that the certificate was made for");
                None
            }
            Err(error) => {
                let message = format!("`{}` cannot be used: {error}", key_file.value);
                self.refuse(key_file, message, "use an RSA, ECDSA or Ed25519 key");
                None
            }
        }
    }

    /// What a certificate says. That its time is over is no reason to stop.
    fn facts(&mut self, file: &Spanned<String>, der: &[u8]) -> Option<CertificateFacts> {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            let message = format!("the first certificate in `{}` cannot be read", file.value);
            self.refuse(file, message, "name a file with certificates in PEM form");
            return None;
        };
        let validity = certificate.validity();
        let now = i64::try_from(Clock::System.now().as_micros() / 1_000_000).unwrap_or(i64::MAX);
        let amiss = match (validity.not_before.timestamp(), validity.not_after.timestamp()) {
            (begin, _) if now < begin => Some("is not valid yet"),
            (_, end) if end < now => Some("has expired"),
            _ => None,
        };
        if let Some(amiss) = amiss {
            let message = format!("the certificate in `{}` {amiss}", file.value);
            self.warn(Rule::UselessCertificate, file, message, "renew it");
        }
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let names = alternatives.map_or(&[][..], |alternatives| &alternatives.value.general_names);
        let dns = names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into()),
            _ => None,
        });
        Some(CertificateFacts { names: dns.collect(), not_after: validity.not_after.timestamp() })
    }
}

/// The certificates in a file in PEM form; none if there are none, or one is broken.
pub(in crate::listener) fn read_certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|certificates| !certificates.is_empty())
}
