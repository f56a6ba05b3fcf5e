//! A certificate for loopback, and the authority that vouches for it.

use std::{fs, net::TcpStream, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned, crypto::aws_lc_rs, pki_types::PrivateKeyDer,
};
use tempfile::TempDir;

use super::wire::Line;

pub(super) struct Certificate {
    folder: TempDir,
    config: Arc<ServerConfig>,
}

impl Certificate {
    pub(super) fn new() -> Certificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), ca.pem()).unwrap();

        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(params, ca_key);
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Certificate { folder, config: Arc::new(config) }
    }

    pub(super) fn ca_file(&self) -> String {
        self.folder.path().join("ca.pem").to_str().unwrap().to_owned()
    }

    /// The handshake is made with the first read, and fails like one.
    pub(super) fn accept(&self, stream: TcpStream) -> Line {
        let connection = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        let socket = stream.try_clone().unwrap();
        Line::new(socket, Box::new(StreamOwned::new(connection, stream)))
    }
}
