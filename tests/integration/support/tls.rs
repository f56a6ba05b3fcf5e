//! Certificates that a test's own authority signs, and clients that trust it.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, RevocationReason, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tempfile::TempDir;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::PATIENCE;

/// An authority, and a folder with what it has signed.
pub(crate) struct Signer {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A client's connection through TLS.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Who a client is: its certificate and key.
pub(crate) type ClientIdentity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Signer {
    pub(crate) fn new() -> Signer {
        Signer::named("Authority")
    }

    /// An authority of this name.
    pub(crate) fn named(name: &str) -> Signer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let certificate = authority.der().clone();
        Signer { folder, issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.path().join(file).to_str().unwrap().to_owned()
    }

    /// Makes `file`.pem and `file`.key for these names, in place of what they were, and says them
    /// as settings do.
    pub(crate) fn sign(&self, file: &str, names: &[&str]) -> String {
        self.sign_until(file, names, 2090)
    }

    /// The same, valid until this year begins.
    pub(crate) fn sign_until(&self, file: &str, names: &[&str], year: i32) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
        self.pair(file, file)
    }

    /// A certificate and a key, as settings say them.
    pub(crate) fn pair(&self, certificate: &str, key: &str) -> String {
        let certificate = self.path(&format!("{certificate}.pem"));
        let key = self.path(&format!("{key}.key"));
        format!("{{ certificate_file: \"{certificate}\", key_file: \"{key}\" }}")
    }

    /// Who a client is that is called so.
    pub(crate) fn identity(&self, common_name: &str, names: &[SanType]) -> ClientIdentity {
        self.identity_until(4000, common_name, names)
    }

    /// The same of a certificate that expires with the beginning of a year.
    pub(crate) fn identity_until(
        &self,
        year: i32,
        common_name: &str,
        names: &[SanType],
    ) -> ClientIdentity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(year, 1, 1);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = names.to_vec();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// Says in `file` that these certificates are revoked. `serial` is the list's own number, and
    /// `until` the year in which there is to be another one.
    pub(crate) fn revoke(
        &self,
        file: &str,
        revoked: &[&ClientIdentity],
        (serial, until): (u64, i32),
    ) {
        fs::write(self.path(file), self.revocation_list(revoked, (serial, until))).unwrap();
    }

    /// The same list, in PEM form.
    pub(crate) fn revocation_list(
        &self,
        revoked: &[&ClientIdentity],
        (serial, until): (u64, i32),
    ) -> String {
        let entry = |(certificate, _): &&ClientIdentity| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial_of(certificate)),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000 + i32::try_from(serial).unwrap(), 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: serial.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A client that trusts this authority and offers these protocols.
    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        Arc::new(self.config(rustls::ALL_VERSIONS, None, alpn))
    }

    /// A client that speaks only this version.
    pub(crate) fn client_of(
        &self,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        Arc::new(self.config(&[version], None, &[]))
    }

    /// A client that shows who it is.
    pub(crate) fn client_as(&self, identity: ClientIdentity) -> Arc<ClientConfig> {
        Arc::new(self.config(rustls::ALL_VERSIONS, Some(identity), &[]))
    }

    /// A client that shows who it is, and speaks only this version.
    pub(crate) fn client_of_as(
        &self,
        version: &'static SupportedProtocolVersion,
        identity: ClientIdentity,
    ) -> Arc<ClientConfig> {
        Arc::new(self.config(&[version], Some(identity), &[]))
    }

    fn config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<ClientIdentity>,
        alpn: &[&str],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some((certificate, key)) => {
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

fn serial_of(certificate: &[u8]) -> &[u8] {
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    certificate.raw_serial()
}

/// Connects and shakes hands.
pub(crate) fn dial(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &str,
) -> io::Result<TlsStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    shake_hands(&mut socket, config, name).map(|connection| StreamOwned::new(connection, socket))
}

/// Shakes hands on a socket.
pub(crate) fn shake_hands(
    socket: &mut TcpStream,
    config: &Arc<ClientConfig>,
    name: &str,
) -> io::Result<ClientConnection> {
    let name = name.to_owned().try_into().unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(socket)?;
    }
    Ok(connection)
}

/// Sends one last request, and reads all that comes.
pub(crate) fn last_request(
    stream: &mut (impl Read + Write),
    target: &str,
    fields: &str,
) -> io::Result<String> {
    let request = format!(
        "GET {target} HTTP/1.1\r\nhost: api.example.com\r\nconnection: close\r\n{fields}\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
