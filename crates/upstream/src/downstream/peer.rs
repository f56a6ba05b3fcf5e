//! The other end of a client's connection: its address, and the certificate that it has shown.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, header};
use tollgate_clock::Timestamp;
use tollgate_identity::ClientCertificate;
use tollgate_settings::{CertificateChoice, ListenerSettings};

use super::ClientChain;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address; never an IPv4 address in the guise of IPv6.
    pub address: IpAddr,
    /// The address as a header value, made once.
    pub address_value: HeaderValue,
    /// Whether it is a trusted proxy.
    pub is_trusted: bool,
    /// The certificates that it sent in its handshake, if any.
    pub client_chain: Option<Arc<ClientChain>>,
    /// The certificate of the listener that its connection was secured with. None: it has no TLS,
    /// or the listener only one; or this is a trusted proxy, whose connection says nothing about
    /// that of its client.
    pub certificate_choice: Option<Arc<CertificateChoice>>,
    /// The address of this machine that it has connected to, at a listener for decisions.
    pub own_address: Option<IpAddr>,
    /// Where it came in.
    pub listener: Arc<ListenerSettings>,
}

impl Peer {
    /// Sets the listener's HSTS field on a response, in place of the upstream's.
    pub fn mark(&self, headers: &mut HeaderMap) {
        if let Some(hsts) = &self.listener.hsts {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
    }

    /// Its certificate, if it has shown one.
    ///
    /// # Errors
    /// It was good when the connection was opened, and is not any more.
    pub fn certificate(&self, now: Timestamp) -> Result<Option<&ClientCertificate>, NotGood> {
        let (Some(chain), Some(tls)) = (&self.client_chain, &self.listener.tls) else {
            return Ok(None);
        };
        if chain.is_good(tls, now) { Ok(Some(&chain.certificate)) } else { Err(NotGood) }
    }

    /// Checks that a request for this host may come on its connection.
    ///
    /// # Errors
    /// [`Misdirected`].
    //= rfc9110#section-7.4
    //# an origin server MUST reject a request if any scheme-specific requirements for the target
    //# URI are not met
    //= rfc9110#section-7.4
    //# a request for an "https" resource MUST be rejected unless it has been received over a
    //# connection that has been secured via a certificate valid for that target URI's origin
    pub fn check_host(&self, host: &str) -> Result<(), Misdirected> {
        match &self.certificate_choice {
            Some(choice) if choice.is_misdirected(host) => Err(Misdirected),
            _ => Ok(()),
        }
    }

    /// Whether its connection is encrypted.
    pub fn speaks_tls(&self) -> bool {
        self.listener.tls.is_some()
    }
}

/// A client's certificate is no longer valid: it has expired, it was revoked, or its authority is
/// no longer trusted or has no current list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client's certificate is no longer valid")]
pub struct NotGood;

/// The request is for a host of another certificate than the one that its connection was secured
/// with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was not opened with the certificate of this host")]
pub struct Misdirected;
