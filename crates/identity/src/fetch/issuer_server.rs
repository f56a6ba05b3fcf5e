//! The URL of an issuer's server, and the authorities that are trusted to certify it.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use http::{Uri, uri::Scheme};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use thiserror::Error;

/// How a server of an issuer is reached. Equal ones share connections, and keys across
/// reloads.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IssuerServer {
    /// Absolute, `https` unless plain HTTP is allowed; no user, no fragment.
    pub url: Uri,
    /// Authorities in place of the public ones, in PEM.
    pub ca: Option<Arc<[u8]>>,
    /// For lookup, connection, TLS and response together.
    pub timeout: Duration,
    /// Whether plain HTTP is allowed to other machines. URLs that a response refers to may then be
    /// plain HTTP only if the request was.
    pub allow_http: bool,
}

/// Why a server is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IssuerServerError {
    /// Not an absolute URL.
    #[error("not an absolute URL")]
    NotUrl,
    /// Neither `https`, nor `http` to this machine.
    #[error("not an https URL")]
    NotHttps,
    /// A host that no certificate could be for, or a bad port.
    #[error("a URL without a usable host or port")]
    Host,
    /// A user or a password, which logs would show.
    #[error("a URL with a user or a password")]
    User,
    /// A fragment, which clients never send.
    #[error("a URL with a fragment")]
    Fragment,
    /// A file of authorities without a certificate.
    #[error("no certificate in the file of authorities")]
    NoAuthority,
    /// A block in the file of authorities that is not a certificate.
    #[error("not a certificate in PEM form among the authorities")]
    Authority,
}

impl IssuerServerError {
    /// What to write instead.
    pub const fn help(&self) -> &'static str {
        match self {
            IssuerServerError::NotUrl => "write it whole: https://host/path",
            IssuerServerError::NotHttps => {
                "write https://; http:// only to this machine, or with `allow_http: true`"
            }
            IssuerServerError::Host => "write a host name or an address, and a port up to 65535",
            IssuerServerError::User => "remove the part before the `@`",
            IssuerServerError::Fragment => "remove the part from the `#` on",
            IssuerServerError::NoAuthority | IssuerServerError::Authority => {
                "name a file with CERTIFICATE blocks in PEM form"
            }
        }
    }

    /// Whether the authorities are refused, and not the URL.
    pub const fn is_about_authorities(&self) -> bool {
        matches!(self, IssuerServerError::NoAuthority | IssuerServerError::Authority)
    }
}

impl IssuerServer {
    /// Checks a URL and the authorities that certify its server. `allow_http` allows plain HTTP to
    /// other machines; to this one it always is.
    ///
    /// # Errors
    /// [`IssuerServerError`]; none quotes the URL, which may hold a password.
    pub fn parse(
        url: &str,
        allow_http: bool,
        ca: Option<Arc<[u8]>>,
        timeout: Duration,
    ) -> Result<IssuerServer, IssuerServerError> {
        if let Some(pem) = &ca {
            authorities(pem)?;
        }
        Ok(IssuerServer { url: parse_url(url, allow_http)?, ca, timeout, allow_http })
    }

    /// Another URL by the same rules, which a discovery document refers to. A document that came
    /// over TLS cannot refer to plain HTTP, not even on this machine: another server must not
    /// choose what is called here, and keys are only as trustworthy as the weakest connection that
    /// they took.
    ///
    /// # Errors
    /// [`IssuerServerError`]
    pub fn beside(&self, url: &str) -> Result<IssuerServer, IssuerServerError> {
        let url = parse_url(url, self.allow_http)?;
        if self.url.scheme() == Some(&Scheme::HTTPS) && url.scheme() != Some(&Scheme::HTTPS) {
            return Err(IssuerServerError::NotHttps);
        }
        Ok(IssuerServer { url, ..self.clone() })
    }
}

impl fmt::Display for IssuerServer {
    /// Leaves out the query, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.scheme_str().unwrap_or_default();
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        write!(f, "{scheme}://{authority}{}", self.url.path())
    }
}

impl fmt::Debug for IssuerServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IssuerServer({self})")
    }
}

fn parse_url(text: &str, allow_http: bool) -> Result<Uri, IssuerServerError> {
    // The parser drops a fragment silently.
    if text.contains('#') {
        return Err(IssuerServerError::Fragment);
    }
    let url: Option<Uri> = text.parse().ok().filter(|_| text.is_ascii());
    let url = url.ok_or(IssuerServerError::NotUrl)?;
    let (Some(scheme), Some(authority)) = (url.scheme(), url.authority()) else {
        return Err(IssuerServerError::NotUrl);
    };
    if has_user(&url) {
        return Err(IssuerServerError::User);
    }
    let host = authority.host();
    let has_port = authority.as_str().len() > host.len();
    let has_bad_port = has_port && authority.port_u16().is_none_or(|port| port == 0);
    if has_bad_port || !is_name(host) {
        return Err(IssuerServerError::Host);
    }
    let may_be_plain = *scheme == Scheme::HTTP && (allow_http || is_this_machine(host));
    if *scheme != Scheme::HTTPS && !may_be_plain {
        return Err(IssuerServerError::NotHttps);
    }
    Ok(url)
}

pub(super) fn has_user(url: &Uri) -> bool {
    url.authority().is_some_and(|authority| authority.as_str().contains('@'))
}

/// Whether a certificate could be for this host.
fn is_name(host: &str) -> bool {
    ServerName::try_from(without_brackets(host)).is_ok()
}

fn is_this_machine(host: &str) -> bool {
    let address = without_brackets(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The certificates in PEM, as roots of trust.
pub(super) fn authorities(pem: &[u8]) -> Result<RootCertStore, IssuerServerError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| IssuerServerError::Authority)?;
        roots.add(certificate).map_err(|_| IssuerServerError::Authority)?;
    }
    if roots.is_empty() { Err(IssuerServerError::NoAuthority) } else { Ok(roots) }
}

#[cfg(test)]
pub(super) mod tests;
