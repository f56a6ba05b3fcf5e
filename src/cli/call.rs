//! A request to a running proxy's admin listener: one connection, one answer, in bounded time and
//! space.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tollgate_settings::{
    AdminPlace, ListenAddress, MAX_TOKEN_FILE_BYTES, Permission, Secret, admin_place, token_in,
};
use tollgate_yaml::Sources;

use super::{Failure, settings_file::SettingsFile};
use crate::admin::Message;

/// How long a call that needs little work may take in all.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Where to ask.
#[derive(clap::Args)]
pub(super) struct Where {
    #[command(flatten)]
    pub(super) settings: SettingsFile,
    /// Ask here, or at unix:PATH, instead of the settings' admin listener: they are read only if
    /// --config names them, for the token
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    #[command(flatten)]
    token: TokenFile,
}

/// Which token to send.
#[derive(clap::Args)]
pub(super) struct TokenFile {
    /// A file with the token of the admin listener. Left out: the file that the variable
    /// TOLLGATE_ADMIN_TOKEN_FILE names
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// An admin listener to ask.
pub(super) struct Target {
    /// To be tried in this order.
    addresses: Vec<ListenAddress>,
    token: Option<Secret>,
}

/// What names the file with the token, where no option does.
const TOKEN_FILE_VARIABLE: &str = "TOLLGATE_ADMIN_TOKEN_FILE";

impl Where {
    /// Whether the admin listener is named, so that the settings are not read.
    pub(super) fn names_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// The listener, with a token that allows `permission`, if there is one.
    pub(super) fn target(&self, permission: Permission) -> Result<Target, Failure> {
        if let Some(address) = &self.admin {
            return Target::at(address, &self.token, &self.settings, permission);
        }
        let place = admin_of(&self.settings.find()?)?;
        let token = match self.token.read()? {
            Some(token) => Some(token),
            None => token_of(&place, permission)?,
        };
        let address = match place.address {
            ListenAddress::Tcp(address) => reachable(address).into(),
            unix @ ListenAddress::Unix(_) => unix,
        };
        Ok(Target { addresses: vec![address], token })
    }
}

impl TokenFile {
    /// Whether an option names it.
    pub(super) fn is_named(&self) -> bool {
        self.token_file.is_some()
    }

    fn read(&self) -> anyhow::Result<Option<Secret>> {
        let variable = || Sources::system().variable(TOKEN_FILE_VARIABLE).map(PathBuf::from);
        let file = self.token_file.clone().or_else(variable);
        file.map(|file| read_token(&file)).transpose()
    }
}

impl Target {
    /// The listener at `HOST:PORT` or `unix:PATH`, with the token that `token` names, or else the
    /// settings if they are given.
    pub(super) fn at(
        address: &str,
        token: &TokenFile,
        settings: &SettingsFile,
        permission: Permission,
    ) -> Result<Target, Failure> {
        let addresses = match address.strip_prefix("unix:") {
            Some(path) => vec![ListenAddress::Unix(path.into())],
            None => resolve(address)?.into_iter().map(ListenAddress::from).collect(),
        };
        let mut token = token.read()?;
        if let (None, Some(file)) = (&token, settings.given())
            && let Some(place) = admin_place(file, &Sources::system())?
        {
            token = token_of(&place, permission)?;
        }
        Ok(Target { addresses, token })
    }

    /// One that is asked what anybody may ask.
    pub(super) fn without_token(address: ListenAddress) -> Target {
        Target { addresses: vec![address], token: None }
    }

    /// Sends a request to the first address that answers, each within `time_limit`. `body` is JSON,
    /// or empty.
    pub(super) fn call(
        &self,
        method: &Method,
        path: &str,
        body: impl Into<Bytes>,
        time_limit: Duration,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let body = Full::new(body.into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut result = Err(anyhow!("no address"));
        for address in &self.addresses {
            let host = address.tcp().map_or("localhost".to_owned(), |address| address.to_string());
            let mut request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header(header::HOST, host)
                // Without it a request to act counts as one of a form.
                .header(header::CONTENT_TYPE, "application/json");
            if let Some(token) = &self.token {
                request = request.header(header::AUTHORIZATION, bearer(token));
            }
            let request = request.body(body.clone())?;
            let asking = ask(address, request);
            let asked = runtime.block_on(async { timeout(time_limit, asking).await });
            result = asked
                .unwrap_or_else(|_| Err(anyhow!("it did not answer in time")))
                .with_context(|| format!("cannot ask {address}"));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Calls, and returns what a good answer has.
    pub(super) fn report<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: impl Into<Bytes>,
        time_limit: Duration,
    ) -> anyhow::Result<T> {
        read(&self.good_answer(method, path, body, time_limit)?)
    }

    fn good_answer(
        &self,
        method: &Method,
        path: &str,
        body: impl Into<Bytes>,
        time_limit: Duration,
    ) -> anyhow::Result<Bytes> {
        match self.call(method, path, body, time_limit)? {
            (StatusCode::OK, body) => Ok(body),
            (status, body) => Err(refusal(status, &body)),
        }
    }

    /// Shows the report at a path: as JSON, or as `write` shows it to people.
    pub(super) fn show<T: DeserializeOwned>(
        &self,
        path: &str,
        is_json: bool,
        output: &mut dyn Write,
        write: fn(&mut dyn Write, &T) -> io::Result<()>,
    ) -> anyhow::Result<T> {
        let body = self.good_answer(&Method::GET, path, Bytes::new(), CALL_TIMEOUT)?;
        let report = read(&body)?;
        if is_json {
            output.write_all(&body)?
        } else {
            write(output, &report)?
        }
        Ok(report)
    }
}

/// What the body of an answer says.
pub(super) fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> anyhow::Result<T> {
    if body.is_empty() {
        bail!("the answer is empty");
    }
    serde_json::from_slice(body).context("what answers is no admin listener")
}

/// Why an answer is not the one that was asked for, in the listener's words.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> anyhow::Error {
    let message: Option<Message> = serde_json::from_slice(body).ok();
    let why = message.map(|body| format!(": {}", body.message)).unwrap_or_default();
    let help = match status {
        StatusCode::UNAUTHORIZED => {
            format!("; name a file with it by --token-file or {TOKEN_FILE_VARIABLE}")
        }
        _ => String::new(),
    };
    anyhow!("the answer is {}{why}{help}", status.as_u16())
}

fn bearer(token: &Secret) -> String {
    format!("Bearer {}", token.reveal())
}

fn admin_of(file: &Path) -> Result<AdminPlace, Failure> {
    let place = admin_place(file, &Sources::system())?;
    let missing =
        || anyhow!("{} names no admin listener: add `admin: {{ address: … }}`", file.display());
    Ok(place.ok_or_else(missing)?)
}

/// The token of the files that settings name: that to act only if it is needed, or the only one.
fn token_of(place: &AdminPlace, permission: Permission) -> anyhow::Result<Option<Secret>> {
    let AdminPlace { read_token_file: read, write_token_file: write, .. } = place;
    let file = match permission {
        Permission::Read => read.as_ref().or(write.as_ref()),
        Permission::Write => write.as_ref().or(read.as_ref()),
    };
    file.map(|file| read_token(file)).transpose()
}

fn read_token(file: &Path) -> anyhow::Result<Secret> {
    let content = Sources::system()
        .read(file, MAX_TOKEN_FILE_BYTES)
        .with_context(|| format!("cannot read the token in {}", file.display()))?;
    let token = token_in(&content).map_err(|why| anyhow!("{} {why}", file.display()))?;
    Ok(Secret::new(token))
}

pub(super) fn resolve(address: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let addresses = address.to_socket_addrs().with_context(|| format!("cannot ask {address}"))?;
    Ok(addresses.collect())
}

/// Where to connect to reach a listener on all addresses.
pub(super) fn reachable(listener: SocketAddr) -> SocketAddr {
    let mut address = listener;
    match listener {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            address.set_ip(Ipv4Addr::LOCALHOST.into())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            address.set_ip(Ipv6Addr::LOCALHOST.into())
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => {}
    }
    address
}

/// A text as one segment of a path, or as a value in a query.
pub(super) fn encoded(text: &str) -> String {
    percent_encoded(text, b"-._~:")
}

/// A text as a URI has it (RFC 3986 section 2.1): letters, digits and `plain` stay as they are.
pub(super) fn percent_encoded(text: &str, plain: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || plain.contains(byte);
    let encode = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

async fn ask(
    address: &ListenAddress,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    match address {
        ListenAddress::Tcp(address) => exchange(TcpStream::connect(address).await?, request).await,
        ListenAddress::Unix(path) => exchange(UnixStream::connect(path).await?, request).await,
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow!(error).context("its answer cannot be read"))?;
        anyhow::Ok((parts.status, body.to_bytes()))
    };
    // The connection has to be driven for as long as the answer comes.
    let drive = async move {
        let _ = connection.await;
    };
    let (answer, ()) = tokio::join!(answer, drive);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_one_segment() {
        for (name, expected) in [
            ("user:42", "user:42"),
            ("main/user:a b", "main%2Fuser:a%20b"),
            ("user:é?&=%", "user:%C3%A9%3F%26%3D%25"),
        ] {
            assert_eq!(encoded(name), expected);
        }
    }

    #[test]
    fn listener_on_all_addresses_is_asked_by_loopback() {
        for (listener, expected) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            assert_eq!(reachable(listener.parse().unwrap()), expected.parse().unwrap());
        }
    }
}
