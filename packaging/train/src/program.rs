//! The Tollgate that is trained, and what it needs: its files, tokens that it takes, a Redis.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{CertifiedKey, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::workload::{Protocol, Workload};

/// The name in the certificate, and in `Host`.
pub(crate) const HOST: &str = "train.test";

const ISSUER: &str = "https://issuer.train.test";
/// What tokens of HS256 are signed with.
const SECRET: [u8; 64] = [b's'; 64];

/// Users, each with a token. Many: in the benchmark, too, no cache of the processor holds them all.
const USERS: usize = 2_000;

/// How long a program may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Tollgate that runs.
pub(crate) struct Program {
    child: Child,
    pub(crate) port: u16,
    /// Of each user; none: the workload has no tokens.
    pub(crate) tokens: Vec<String>,
    /// With TLS, its certificate.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    _folder: TempDir,
}

/// A Redis on a port of its own, without persistence.
pub(crate) struct Redis {
    child: Child,
    port: u16,
}

impl Program {
    /// Starts a Tollgate that is set up for a workload, before a server. It leaves its profile in
    /// the folder of profiles.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        tollgate: &Path,
        profiles: &Path,
        workload: &Workload,
        server: SocketAddr,
        redis: Option<&Redis>,
    ) -> anyhow::Result<Program> {
        let folder = tempfile::tempdir()?;
        let port = free_port()?;
        let mut listener = json!({ "address": format!("127.0.0.1:{port}") });
        let mut certificate = None;
        if workload.protocol != Protocol::Http1 {
            let CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed([HOST.to_owned()])?;
            fs::write(folder.path().join("certificate.pem"), cert.pem())?;
            fs::write(folder.path().join("key.pem"), signing_key.serialize_pem())?;
            let files = json!({ "certificate_file": "certificate.pem", "key_file": "key.pem" });
            listener["tls"] = json!({ "certificates": [files] });
            certificate = Some(cert.der().clone());
        }
        let mut settings = json!({
            "version": 1,
            "listeners": [listener],
            "policies": "policy.json",
            "workers": 1,
            "access_log": { "format": "off" },
        });
        if let Some(redis) = redis {
            let url = format!("redis://127.0.0.1:{}", redis.port);
            settings["store"] = json!({ "redis": { "url": url } });
        }
        let mut policy = json!({
            "version": 1,
            "upstreams": { "api": { "servers": [format!("http://{server}")] } },
            "routes": [{ "match": { "path": "/**" }, "auth": "none", "limits": [] }],
        });
        let mut tokens = Vec::new();
        if let Some(algorithm) = workload.signature {
            let (issuer, key) = issuer(algorithm, folder.path())?;
            policy["identity"] =
                json!({ "jwt": [issuer], "callers": [{ "name": "user", "key": "jwt.sub" }] });
            policy["limits"] =
                json!({ "core": { "per": "caller", "rate": format!("{}/hour", workload.limit) } });
            policy["routes"] =
                json!([{ "match": { "path": "/**" }, "auth": "required", "limits": ["core"] }]);
            let token = |user| token(algorithm, &key, user);
            tokens = (0..USERS).map(token).collect::<Result<_, _>>()?;
        }
        fs::write(folder.path().join("policy.json"), policy.to_string())?;
        fs::write(folder.path().join("settings.json"), settings.to_string())?;
        let mut child = Command::new(tollgate)
            .args(["run", "--config", "settings.json"])
            .current_dir(folder.path())
            .env("LLVM_PROFILE_FILE", profiles.join("%p.profraw"))
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| tollgate.display().to_string())?;
        wait_until_open(port, &mut child)?;
        Ok(Program { child, port, tokens, certificate, _folder: folder })
    }

    /// Ends it, which has it write its profile.
    ///
    /// # Errors
    /// It does not end, or says that something was wrong.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        end(&mut self.child)
    }
}

impl Redis {
    /// Starts one; none if there is no `redis-server`.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start() -> anyhow::Result<Option<Redis>> {
        let port = free_port()?;
        let started = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let mut child = match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            started => started?,
        };
        wait_until_open(port, &mut child)?;
        Ok(Some(Redis { child, port }))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(end(&mut self.child));
    }
}

impl Drop for Program {
    /// It has ended already, unless something went wrong.
    fn drop(&mut self) {
        drop(self.child.kill());
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn wait_until_open(port: u16, child: &mut Child) -> anyhow::Result<()> {
    until("it does not listen", || {
        if let Some(status) = child.try_wait()? {
            bail!("it has ended: {status}");
        }
        Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
    })
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    kill_process(Pid::from_child(child), Signal::TERM)?;
    until("it does not end", || match child.try_wait()? {
        Some(status) if status.success() => Ok(true),
        Some(status) => bail!("it has ended: {status}"),
        None => Ok(false),
    })
}

fn until(otherwise: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "{otherwise} after {PATIENCE:?}");
        #[expect(clippy::disallowed_methods, reason = "other programs send no notice")]
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The entry of an issuer, whose key is in the folder, and the key that it signs with.
fn issuer(algorithm: Algorithm, folder: &Path) -> anyhow::Result<(Value, EncodingKey)> {
    let mut issuer = json!({
        "name": "main",
        "issuer": ISSUER,
        "audience": ["train"],
        "algorithms": [algorithm],
    });
    let kind = match algorithm {
        Algorithm::RS256 => &PKCS_RSA_SHA256,
        Algorithm::ES256 => &PKCS_ECDSA_P256_SHA256,
        _ => {
            fs::write(folder.join("secret"), SECRET)?;
            issuer["secret_file"] = json!("secret");
            return Ok((issuer, EncodingKey::from_secret(&SECRET)));
        }
    };
    let pair = KeyPair::generate_for(kind)?;
    fs::write(folder.join("public.pem"), pair.public_key_pem())?;
    issuer["public_key_file"] = json!("public.pem");
    let private = pair.serialize_pem();
    let key = match algorithm {
        Algorithm::RS256 => EncodingKey::from_rsa_pem(private.as_bytes())?,
        _ => EncodingKey::from_ec_pem(private.as_bytes())?,
    };
    Ok((issuer, key))
}

/// A token until 2096.
fn token(algorithm: Algorithm, key: &EncodingKey, user: usize) -> anyhow::Result<String> {
    let header = Header { kid: Some("train".to_owned()), ..Header::new(algorithm) };
    let claims = json!({
        "iss": ISSUER,
        "aud": "train",
        "sub": format!("user-{user:05}"),
        "iat": 1_700_000_000,
        "exp": 4_000_000_000_u64,
        "scope": "read write",
    });
    Ok(jsonwebtoken::encode(&header, &claims, key)?)
}
