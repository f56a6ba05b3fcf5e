//! The authorities whose client certificates a listener accepts.

use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    pki_types::CertificateDer,
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tollgate_clock::Timestamp;
use tollgate_yaml::{Check, Spanned};

use super::{
    ClientCertificate, Fingerprint, MAX_PEM_BYTES, RawTls, fingerprint_of, read_certificates,
};
use crate::Checker;

/// Who may connect.
pub(super) struct Clients {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// When lists of revoked certificates are out of date; none: that makes no difference.
    pub(super) until: Option<Timestamp>,
    /// Of all that decides about it.
    pub(super) fingerprint: Fingerprint,
}

/// What the verifier takes (RFC 5280 section 5), and where `openssl ca` leaves it out.
const CRL_HELP: &str = "use whole lists of version 2, with a number (`crlnumber` of `openssl ca`) and \
                        a next update";

impl Checker<'_> {
    /// Which clients may connect. None: a problem was reported.
    pub(super) fn clients(
        &mut self,
        raw: &RawTls,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Clients, ()> {
        let certificate = match &raw.client_certificate {
            None => ClientCertificate::default(),
            Some(raw) => self.keyword(raw).ok_or(())?,
        };
        let may_have_none = matches!(certificate, ClientCertificate::Optional);
        let Some(file) = &raw.client_ca_file else {
            return self.any_client(raw);
        };
        let pem = self.file(file, MAX_PEM_BYTES).ok_or(())?;
        let mut all = digest::Context::new(&digest::SHA256);
        all.update(&[u8::from(may_have_none)]);
        let mut roots = RootCertStore::empty();
        let authorities = self.authorities(file, &pem).ok_or(())?;
        for authority in &authorities {
            all.update(authority);
            if roots.add(authority.clone()).is_err() {
                let help = "name a file with the certificates of authorities, in PEM form";
                self.refuse(
                    file,
                    format!("not an authority's certificate in `{}`", file.value),
                    help,
                );
                return Err(());
            }
        }
        let revocation = self.revocation(raw, &authorities)?;
        let until = revocation.as_ref().and_then(|revocation| revocation.until);
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        if may_have_none {
            builder = builder.allow_unauthenticated();
        }
        if let Some(revocation) = revocation {
            revocation.identify(&mut all);
            builder = revocation.apply(builder);
        }
        match builder.build() {
            Ok(verifier) => Ok(Clients { verifier, until, fingerprint: fingerprint_of(all) }),
            Err(error) => {
                let (file, help) = match (&error, &raw.crl_file) {
                    (VerifierBuilderError::InvalidCrl(_), Some(crl_file)) => (crl_file, CRL_HELP),
                    _ => (file, ""),
                };
                let message = format!("cannot check certificates by `{}`: {error}", file.value);
                self.refuse(file, message, help);
                Err(())
            }
        }
    }

    /// Without authorities, any client may connect.
    fn any_client(&mut self, raw: &RawTls) -> Result<Clients, ()> {
        let fields = [
            ("client_certificate", raw.client_certificate.as_ref().map(|field| field.span)),
            ("crl_file", raw.crl_file.as_ref().map(|field| field.span)),
        ];
        for (name, span) in fields {
            if let Some(span) = span {
                let message = format!("`{name}` needs `client_ca_file`");
                self.refuse(span, message, "add `client_ca_file`, or remove this");
            }
        }
        if raw.crl_file.is_none() {
            self.revocation(raw, &[])?;
        }
        let verifier = WebPkiClientVerifier::no_client_auth();
        Ok(Clients { verifier, until: None, fingerprint: Fingerprint::default() })
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
