//! TLS handshakes with clients, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_keyword::{Keyword, keywords};

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// It succeeded.
    Done {
        /// The version is TLS 1.3; else it is 1.2.
        is_tls13: bool,
        /// The client resumed an earlier session.
        is_resumed: bool,
    },
    /// It failed.
    Failed(HandshakeFailure),
}

keywords! {
    /// Why a handshake failed. A client that closes the connection in between is no failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum HandshakeFailure {
        /// It took too long.
        Timeout = "timeout",
        /// The client has sent an alert: it does not trust the certificate, for example.
        Alert = "alert",
        /// Both sides have no version, cipher or signature in common.
        Incompatible = "incompatible",
        /// The client's certificate is missing, not valid or revoked.
        ClientCertificate = "client_certificate",
        /// What came is no TLS, or breaks its rules.
        Malformed = "malformed",
        /// Anything else.
        Other = "other",
    }
}

/// How many handshakes ended in which way.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// By version, then by whether a session was resumed.
    done: [[AtomicU64; 2]; 2],
    failed: [AtomicU64; HandshakeFailure::KEYWORDS.len()],
}

impl HandshakeFailure {
    /// What an error of TLS stands for.
    pub fn of(error: &rustls::Error) -> HandshakeFailure {
        match error {
            rustls::Error::AlertReceived(_) => HandshakeFailure::Alert,
            rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol => {
                HandshakeFailure::Incompatible
            }
            rustls::Error::InvalidCertificate(_)
            | rustls::Error::InvalidCertRevocationList(_)
            | rustls::Error::NoCertificatesPresented => HandshakeFailure::ClientCertificate,
            rustls::Error::InvalidMessage(_)
            | rustls::Error::InappropriateMessage { .. }
            | rustls::Error::InappropriateHandshakeMessage { .. }
            | rustls::Error::PeerMisbehaved(_)
            | rustls::Error::DecryptError
            | rustls::Error::PeerSentOversizedRecord => HandshakeFailure::Malformed,
            _ => HandshakeFailure::Other,
        }
    }
}

impl Handshakes {
    /// Counts one more.
    pub fn count(&self, handshake: Handshake) {
        if let Some(count) = self.of(handshake) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many ended so since the start.
    pub fn total(&self, handshake: Handshake) -> u64 {
        self.of(handshake).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn of(&self, handshake: Handshake) -> Option<&AtomicU64> {
        match handshake {
            Handshake::Done { is_tls13, is_resumed } => {
                self.done.get(usize::from(is_tls13))?.get(usize::from(is_resumed))
            }
            Handshake::Failed(reason) => self.failed.get(reason as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_end_has_its_own_count() {
        let handshakes = Handshakes::default();
        let done = [(false, false), (false, true), (true, false), (true, true)];
        let done = done.map(|(is_tls13, is_resumed)| Handshake::Done { is_tls13, is_resumed });
        let failed = HandshakeFailure::all().map(Handshake::Failed);
        let all: Vec<Handshake> = done.into_iter().chain(failed).collect();
        for (times, handshake) in all.iter().enumerate() {
            (0..times).for_each(|_| handshakes.count(*handshake));
        }
        let counts: Vec<u64> = all.iter().map(|each| handshakes.total(*each)).collect();
        assert_eq!(counts, (0..all.len() as u64).collect::<Vec<_>>());
    }
}
