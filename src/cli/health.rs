//! `tollgate health`: whether a proxy answers. The health check of an image without a shell, so it
//! needs nothing but this binary and the settings that the proxy runs with.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::Method;
use tollgate_settings::{ListenAddress, ListenerSettings, Settings, read_text};
use tollgate_yaml::Sources;

use super::{
    Failure,
    call::{Target, reachable, resolve},
    settings_file::SettingsFile,
};
use crate::admin::Readiness;

/// Ask a running proxy whether it answers
///
/// Asks the admin listener of the settings, or else their first listener. Exits with 0 if it
/// answers within two seconds, with 1 if not. Meant for the health check of a container.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: SettingsFile,
    /// Ask here instead, and do not read the settings
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
}

/// How long the answer may take, all in all.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A status line is shorter.
const MAX_STATUS_LINE: usize = 1024;

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let addresses = match Probe::by(arguments)? {
        Probe::Listener(addresses) => addresses,
        Probe::Admin(address) => {
            ask_admin(&address)?;
            writeln!(output, "{address} is healthy")?;
            return Ok(());
        }
    };
    let until = Instant::now() + TIMEOUT;
    let mut result = Err(anyhow!("no address"));
    for address in addresses {
        result = ask(address, until).with_context(|| format!("{address} is not healthy"));
        if result.is_ok() {
            writeln!(output, "{address} is healthy")?;
            break;
        }
    }
    Ok(result?)
}

/// Which question to ask, and where.
enum Probe {
    /// A listener, whether it answers.
    Listener(Vec<SocketAddr>),
    /// The admin listener, whether the proxy takes requests.
    Admin(ListenAddress),
}

impl Probe {
    fn by(arguments: &Arguments) -> Result<Probe, Failure> {
        if let Some(address) = &arguments.address {
            return Ok(Probe::Listener(resolve(address)?));
        }
        let file = arguments.settings.find()?;
        let sources = Sources::system();
        let settings = Settings::parse(&file, &read_text(&file, &sources)?, &sources)?;
        if let Some(admin) = settings.admin {
            return Ok(Probe::Admin(match admin.address {
                ListenAddress::Tcp(address) => reachable(address).into(),
                unix @ ListenAddress::Unix(_) => unix,
            }));
        }
        let is_askable = |listener: &&ListenerSettings| {
            listener.tls.is_none()
                && listener.proxy_protocol.is_none()
                && listener.protocols.has_http1()
        };
        let mut askable = settings.listeners.iter().filter(is_askable);
        let address = askable.find_map(|listener| listener.address.tcp());
        let address = address.context(
            "the settings name no listener for plain HTTP: add `admin`, which can be asked instead",
        )?;
        Ok(Probe::Listener(vec![reachable(address)]))
    }
}

/// Who drains takes no new requests, and is to get none.
fn ask_admin(address: &ListenAddress) -> anyhow::Result<()> {
    let target = Target::without_token(address.clone());
    let (status, body) = target.call(&Method::GET, "/readyz", Bytes::new(), TIMEOUT)?;
    if !status.is_success() {
        // Another program may answer there.
        let readiness: Option<Readiness> = serde_json::from_slice(&body).ok();
        let reasons = readiness.map(|body| body.reasons).unwrap_or_default();
        let why: String = reasons.iter().map(|reason| format!("; {reason}")).collect();
        bail!("{address} is not healthy: the answer is {}{why}", status.as_u16());
    }
    Ok(())
}

/// `OPTIONS *` is about the server itself: no route, no limit and no upstream has a say.
fn ask(address: SocketAddr, until: Instant) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, left(until)?)?;
    stream.set_write_timeout(Some(left(until)?))?;
    let request = format!("OPTIONS * HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let line = status_line(&mut stream, until)?;
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    match status {
        Some(status) if status.starts_with('2') => Ok(()),
        Some(status) => bail!("the answer is {status}"),
        None => bail!("what answers is no HTTP server"),
    }
}

fn status_line(stream: &mut TcpStream, until: Instant) -> anyhow::Result<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 256];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let length = stream.read(&mut chunk).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        head.extend_from_slice(chunk.get(..length).unwrap_or_default());
        let end = head.iter().position(|byte| *byte == b'\n');
        if end.is_some() || length == 0 || head.len() > MAX_STATUS_LINE {
            let line = head.get(..end.unwrap_or(head.len())).unwrap_or_default();
            return Ok(String::from_utf8_lossy(line).into_owned());
        }
    }
}

/// The time that is left, as a socket takes it: never zero.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
