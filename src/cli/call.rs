//! A request to a running proxy's admin listener: one connection, one answer, in bounded time and
//! space.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::Failure;
use crate::{settings::admin_address, yaml::Sources};

/// How long a call that needs little work may take in all.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Where to ask.
#[derive(clap::Args)]
pub(super) struct Where {
    /// The settings that the proxy runs with: its admin listener is asked
    #[arg(long, value_name = "FILE", default_value = "config/tollgate.yaml")]
    config: PathBuf,
    /// Ask here instead, and do not read the settings
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
}

impl Where {
    /// Addresses to try, in this order.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        match &self.admin {
            Some(address) => Ok(resolve(address)?),
            None => Ok(vec![admin_of(&self.config)?]),
        }
    }
}

fn admin_of(file: &Path) -> Result<SocketAddr, Failure> {
    let address = admin_address(file, &Sources::system())?;
    let missing =
        || anyhow!("{} names no admin listener: add `admin: {{ address: … }}`", file.display());
    Ok(reachable(address.ok_or_else(missing)?))
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

/// Sends a request to the first of `addresses` that answers, each within `time_limit`.
pub(super) fn call(
    addresses: &[SocketAddr],
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
    time_limit: Duration,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let body = Full::new(body.into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut result = Err(anyhow!("no address"));
    for address in addresses {
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::HOST, address.to_string())
            .body(body.clone())?;
        let asking = ask(*address, request);
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

/// Why the listener did not do what it was asked for, in its own words.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> anyhow::Error {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    match answer.get("message").and_then(serde_json::Value::as_str) {
        Some(message) => anyhow!("{message}"),
        None => anyhow!("the answer is {status}"),
    }
}

/// A text as one segment of a path, or as a value in a query.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(byte);
    let encode = |byte: u8| match is_plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

async fn ask(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect(address).await?;
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
