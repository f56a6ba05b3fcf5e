//! What a connection to Redis needs besides an address: user and password, TLS, TCP options.

use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, TlsCertificates,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Check, Spanned};

use super::{
    RawRedis, Topology,
    address::{Login, RedisAddress, Role},
};
use crate::Checker;

/// Certificates: files in PEM form, from this file's folder.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tls section")]
pub(super) struct RawTls {
    /// The authorities to trust in place of the public ones.
    #[schemars(extend("examples" = ["redis-ca.pem"]))]
    ca_file: Option<Spanned<String>>,
    /// The certificate that servers are shown.
    #[schemars(extend("examples" = ["client.pem"]))]
    certificate_file: Option<Spanned<String>>,
    /// The private key of that certificate.
    #[schemars(extend("examples" = ["client.key"]))]
    key_file: Option<Spanned<String>>,
}

/// Largest file with certificates that is read.
const MAX_PEM_BYTES: u64 = 1 << 20;
/// How long a silent connection counts as alive: then its peer is probed once a second, and
/// given up on after three questions.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(1);
const KEEPALIVE_TRIES: u32 = 3;
/// How long the peer's system may leave what was sent unacknowledged. The system's own patience, a
/// quarter of an hour, would keep a connection to a machine that is gone.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);

/// How to get in, as it is now. Passwords and certificates are replaced while traffic flows:
/// connections that are made from then on use the new ones.
#[derive(Debug)]
pub struct CurrentAccess(ArcSwap<Access>);

impl CurrentAccess {
    /// What connects to `server` now.
    ///
    /// # Errors
    /// None is expected: certificates were checked when the settings were read.
    pub fn client(&self, server: &RedisAddress) -> Result<Client, RedisError> {
        self.0.load().client(server)
    }

    /// Takes over what `newer` has; whether that is something else.
    pub fn replace_by(&self, newer: &CurrentAccess) -> bool {
        let newer = newer.0.load_full();
        let is_other = *self.0.load_full() != *newer;
        if is_other {
            self.0.store(newer);
        }
        is_other
    }
}

impl From<Access> for CurrentAccess {
    fn from(access: Access) -> Self {
        CurrentAccess(ArcSwap::from_pointee(access))
    }
}

/// The login, and the certificates that are trusted.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Where the URL says nothing; sentinels know only of their URL's.
    pub(super) login: Option<Login>,
    /// None: the public authorities, and no certificate of ours.
    pub(super) tls: Option<TlsCertificates>,
}

/// Certificates are compared byte by byte: the library's own types are not comparable.
impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        fn bytes(access: &Access) -> Option<[Option<&[u8]>; 3]> {
            let TlsCertificates { client_tls, root_cert } = access.tls.as_ref()?;
            let client = client_tls.as_ref();
            Some([
                client.map(|client| &*client.client_cert),
                client.map(|client| &*client.client_key),
                root_cert.as_deref(),
            ])
        }
        self.login == other.login && bytes(self) == bytes(other)
    }
}

impl Access {
    fn client(&self, server: &RedisAddress) -> Result<Client, RedisError> {
        let host = server.host.clone();
        let port = server.port;
        let address = match server.is_tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let info = address
            .into_connection_info()?
            .set_tcp_settings(tcp_settings())
            .set_redis_settings(self.session(server));
        if !server.is_tls {
            return Client::open(info);
        }
        install_crypto();
        let public = TlsCertificates { client_tls: None, root_cert: None };
        Client::build_with_tls(info, self.tls.clone().unwrap_or(public))
    }

    /// The user, password and database that are sent first on a connection.
    fn session(&self, server: &RedisAddress) -> RedisConnectionInfo {
        let login = server.login.as_ref();
        let (login, database) = match server.role {
            Role::Server => (login.or(self.login.as_ref()), server.database),
            Role::Sentinel => (login, 0),
        };
        // The name of a library would need a right (`client|setinfo`) that older servers, which do
        // not know the command, take for a mistake.
        let session = RedisConnectionInfo::default()
            .set_db(database.into())
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let Some(Login { username, password }) = login else { return session };
        let session = session.set_password(password.reveal());
        match username {
            Some(username) => session.set_username(username),
            None => session,
        }
    }
}

/// Requests wait for single small writes, so none is held back (Nagle's algorithm).
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_PAUSE)
        .with_retries(KEEPALIVE_TRIES);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED);
    settings
}

/// TLS takes its cryptography from what the process installed, and panics if nothing was.
fn install_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster, with the same.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}

impl Checker<'_> {
    /// How to get in; `topology` is given unless something is wrong with it.
    pub(super) fn access(&mut self, raw: &RawRedis, topology: Option<&Topology>) -> Access {
        let login = self.login(raw, topology);
        let tls = raw.tls.as_ref().map(|tls| self.tls(tls, topology));
        Access { login, tls }
    }

    fn login(&mut self, raw: &RawRedis, topology: Option<&Topology>) -> Option<Login> {
        let password = self.secret(raw.password_env.as_ref(), raw.password_file.as_ref());
        let named = [&raw.username, &raw.username_env, &raw.username_file];
        let named = named.into_iter().flatten().next();
        let Some(place) = raw.password_env.as_ref().or(raw.password_file.as_ref()) else {
            if let Some(username) = named {
                let help = "add `password_env` or `password_file`";
                self.refuse(username, "`username` needs a password", help);
            }
            return None;
        };
        if let Some(username) = &raw.username
            && username.is_empty()
        {
            self.refuse(username, "`username` is empty", "write it, or remove this");
        }
        let addresses = topology.map(Topology::addresses).unwrap_or_default();
        let has_own = |at: &&RedisAddress| at.role == Role::Server && at.login.is_some();
        if addresses.iter().any(has_own) {
            self.refuse(place, "a URL names a user too", "keep the user in one place");
        }
        let elsewhere = self.secret(raw.username_env.as_ref(), raw.username_file.as_ref());
        if let (Some(username), Some(_)) = (&raw.username, &elsewhere) {
            self.refuse(username, "a user from two sources", "keep one of them");
        }
        let elsewhere = elsewhere.map(|username| username.reveal().to_owned());
        let username = raw.username.as_ref().map(|username| username.value.clone()).or(elsewhere);
        Some(Login { username, password: password? })
    }

    fn tls(&mut self, raw: &Spanned<RawTls>, topology: Option<&Topology>) -> TlsCertificates {
        let speaks_tls = |topology: &Topology| topology.addresses().iter().any(|at| at.is_tls);
        if topology.is_some_and(|topology| !speaks_tls(topology)) {
            self.refuse(raw, "no URL uses TLS", "write rediss:// in the URLs");
        }
        let root_cert = raw.ca_file.as_ref().and_then(|file| {
            let pem = self.file(file, MAX_PEM_BYTES)?;
            self.accept(file, check_authorities(&pem));
            Some(pem)
        });
        let files = self.certificate_and_key(&raw.certificate_file, &raw.key_file);
        let client_tls = files.and_then(|(certificate, key)| self.identity(certificate, key));
        TlsCertificates { client_tls, root_cert }
    }

    fn identity(
        &mut self,
        certificate: &Spanned<String>,
        key: &Spanned<String>,
    ) -> Option<ClientTlsConfig> {
        let client_cert = self.file(certificate, MAX_PEM_BYTES);
        let client_key = self.secret_file(key, MAX_PEM_BYTES);
        let identity = ClientTlsConfig { client_cert: client_cert?, client_key: client_key? };
        let checked = check_identity(&identity);
        let place = match checked {
            Err(BadPem::Key | BadPem::Pair(_)) => key,
            _ => certificate,
        };
        self.accept(place, checked);
        Some(identity)
    }

    fn accept(&mut self, place: &Spanned<String>, checked: Result<(), BadPem>) {
        if let Err(error) = checked {
            self.note(place, error.to_string(), "name a file in PEM form");
        }
    }
}

/// Why a file is of no use for TLS.
#[derive(Debug, thiserror::Error)]
enum BadPem {
    #[error("no certificate in the file")]
    NoCertificate,
    #[error("not a certificate in PEM form")]
    Certificate,
    #[error("not a private key in PEM form")]
    Key,
    #[error("the key is not that of the certificate")]
    Pair(#[source] rustls::Error),
}

/// Checks the certificates of authorities.
fn check_authorities(pem: &[u8]) -> Result<(), BadPem> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|_| BadPem::Certificate)?;
    }
    Ok(())
}

/// Checks a certificate of ours with its key.
fn check_identity(identity: &ClientTlsConfig) -> Result<(), BadPem> {
    let chain = certificates(&identity.client_cert)?;
    let key = PrivateKeyDer::from_pem_slice(&identity.client_key).map_err(|_| BadPem::Key)?;
    install_crypto();
    ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain, key)
        .map(|_| ())
        .map_err(BadPem::Pair)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadPem> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(certificates) if certificates.is_empty() => Err(BadPem::NoCertificate),
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(BadPem::Certificate),
    }
}
