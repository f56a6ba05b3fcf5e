//! The certificate that a client has shown in its handshake, for as long as it is good.
//!
//! It was checked then. When the rules change under an open connection (an authority is gone, a
//! certificate was revoked), it is checked again before the next request.

use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::CertificateDer;
use tollgate_clock::Timestamp;
use tollgate_identity::ClientCertificate;
use tollgate_settings::{CurrentTls, Epoch};

/// A certificate that a client has shown.
#[derive(Debug)]
pub struct ClientChain {
    /// What it says of the client.
    pub certificate: ClientCertificate,
    /// The certificate itself, and those between it and its authority.
    chain: Vec<CertificateDer<'static>>,
    /// Of the rules by which it was found good last.
    checked: AtomicU64,
}

impl ClientChain {
    /// One that was found good by the rules of `epoch`. None: its time is over.
    pub fn read(chain: &[CertificateDer<'_>], epoch: Epoch, now: Timestamp) -> Option<ClientChain> {
        Some(ClientChain {
            certificate: ClientCertificate::read(chain.first()?, now)?,
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            checked: AtomicU64::new(epoch),
        })
    }

    /// Whether it is good by the rules that are in force. To ask costs next to nothing while these
    /// are the same.
    pub fn is_good(&self, tls: &CurrentTls, now: Timestamp) -> bool {
        if self.checked.load(Ordering::Relaxed) == tls.epoch() {
            return true;
        }
        match tls.check(&self.chain, now) {
            Ok(epoch) => {
                self.checked.store(epoch, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }
}
