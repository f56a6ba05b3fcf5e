//! The certificate that a client has shown in its handshake, for as long as it is good.
//!
//! It was checked then. When the rules change under an open connection (an authority is gone, a
//! certificate was revoked), or the time of a certificate or of a list of revoked ones is over, it
//! is checked again before the next request.

use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::CertificateDer;
use tollgate_clock::Timestamp;
use tollgate_identity::{ClientCertificate, certificate_expiry};
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
    /// Microseconds at which it is checked again by the same rules.
    good_until: AtomicU64,
}

impl ClientChain {
    /// One that was found good by the rules of `epoch`, which `tls` has. None: its time is over.
    pub fn read(
        chain: &[CertificateDer<'_>],
        tls: &CurrentTls,
        epoch: Epoch,
        now: Timestamp,
    ) -> Option<ClientChain> {
        let own = ClientChain {
            certificate: ClientCertificate::read(chain.first()?, now)?,
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            checked: AtomicU64::new(epoch),
            good_until: AtomicU64::default(),
        };
        own.look_ahead(tls, now);
        Some(own)
    }

    /// Finds the next instant at which a certificate of the chain has expired, or a list is out of
    /// date.
    fn look_ahead(&self, tls: &CurrentTls, now: Timestamp) {
        let expiries = self.chain.iter().filter_map(|certificate| certificate_expiry(certificate));
        let next = expiries.chain(tls.lists_until()).filter(|instant| *instant > now).min();
        let micros = next.map_or(u64::MAX, Timestamp::as_micros);
        self.good_until.store(micros, Ordering::Relaxed);
    }

    /// Whether it is good by the rules that are in force. To ask costs next to nothing while these
    /// are the same, and the time of nothing is over.
    pub fn is_good(&self, tls: &CurrentTls, now: Timestamp) -> bool {
        if self.checked.load(Ordering::Relaxed) == tls.epoch()
            && now.as_micros() < self.good_until.load(Ordering::Relaxed)
        {
            return true;
        }
        match tls.check(&self.chain, now) {
            Ok(epoch) => {
                self.checked.store(epoch, Ordering::Relaxed);
                self.look_ahead(tls, now);
                true
            }
            Err(_) => false,
        }
    }
}
