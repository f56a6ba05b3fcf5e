//! Settings of listeners: where clients connect, and what is required of them.
//!
//! What a listener is needs a restart to change; its certificates are replaced while traffic flows.

mod security;
#[cfg(test)]
mod tests;
mod tls;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_identity::{ForwardedField, TrustedProxies};
use tollgate_keyword::keywords;
use tollgate_yaml::{Check, Choice, Node, Spanned};

use self::security::{RawHsts, RedirectShape};
use super::{AskedHere, Checker, beside};

pub(super) use self::tls::RawTls;
pub use self::{
    security::Redirect,
    tls::{
        ALPN_HTTP2, CertificateChoice, CertificateValidity, CurrentTls, Epoch, HandshakeConfig,
        Renewed,
    },
};

/// A place where clients come in.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSettings {
    /// Where it is.
    pub address: ListenAddress,
    /// Who may connect to a Unix socket, as its file's mode.
    pub mode: u32,
    /// Whether clients of a Unix socket are trusted proxies.
    pub trusts_local_peers: bool,
    /// The versions of HTTP that clients may use.
    pub protocols: Protocols,
    /// The certificates, if clients use TLS here.
    pub tls: Option<Arc<CurrentTls>>,
    /// The networks whose PROXY header each connection begins with. None: there is no such header.
    pub proxy_protocol: Option<TrustedProxies>,
    /// Where every request is sent to instead of being served.
    pub redirect: Option<Redirect>,
    /// The value of `strict-transport-security` in every response.
    pub hsts: Option<HeaderValue>,
    /// Who asks for decisions here, and how. None: clients are served.
    pub asked: Option<AskedHere>,
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The versions of HTTP that clients of a listener may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 and HTTP/2.
    #[default]
    Both,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// A place where clients come in.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "listener")]
pub(super) struct RawListener {
    /// An IP address and a port: `127.0.0.1:8080`, or `[::]:8080` for all addresses; or a Unix
    /// socket: `unix:/run/tollgate.sock`, from this file's folder.
    #[schemars(extend("examples" = ["127.0.0.1:8080"]))]
    address: Spanned<String>,
    /// The versions of HTTP that clients may use: `[http1, h2]`. Default: both.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["h2"]]))]
    protocols: Option<Spanned<Vec<Spanned<Choice<Protocol>>>>>,
    /// Certificates. Left out: clients use plain HTTP here.
    #[schemars(extend("examples" = [{ "certificates": [{ "certificate_file": "server.pem", "key_file": "server.key" }] }]))]
    tls: Option<RawTls>,
    /// Has each connection begin with a PROXY header, version 1 or 2, that says who the client is.
    /// Left out: none does.
    #[schemars(extend("examples" = [{ "trusted": ["10.0.0.0/8"] }]))]
    proxy_protocol: Option<RawProxyProtocol>,
    /// Where requests are sent to instead of being served: `https`, or a port and a status. Left
    /// out: they are served.
    #[schemars(with = "Option<RedirectShape>")]
    redirect: Option<Node>,
    /// Has browsers come back by TLS only (`strict-transport-security`). Needs `tls`.
    #[schemars(extend("examples" = [{ "max_age": "1y" }]))]
    hsts: Option<Spanned<RawHsts>>,
    /// Who may connect to a Unix socket, as an octal file mode. Default: "0660".
    #[schemars(regex(pattern = "^0?[0-7]{3}$"))]
    #[schemars(extend("examples" = ["0660"]))]
    mode: Option<Spanned<String>>,
    /// Whether clients of a Unix socket are trusted proxies: `trusted` or `untrusted`.
    /// Their own address counts as 127.0.0.1, whatever `trusted_proxies` says of that. Default:
    /// untrusted.
    peers: Option<Spanned<Choice<LocalPeers>>>,
}

/// A version of HTTP that clients may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

keywords! { Protocol { Http1 = "http1", Http2 = "h2" } }

/// Whether a process that connects to a Unix socket is a trusted proxy.
#[derive(Clone, Copy)]
enum LocalPeers {
    Trusted,
    Untrusted,
}

keywords! { LocalPeers { Trusted = "trusted", Untrusted = "untrusted" } }

/// The networks whose PROXY header is trusted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "proxy_protocol section")]
struct RawProxyProtocol {
    /// Addresses and networks that connections may come from, such as `10.0.0.0/8`: all others are
    /// closed. A client of a Unix socket has the address 127.0.0.1.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    trusted: Spanned<Vec<Spanned<String>>>,
}

const DEFAULT_MODE: u32 = 0o660;

/// The longest path that fits a socket's address on every system.
pub(super) const MAX_SOCKET_PATH: usize = 100;

const UNIX: &str = "unix:";

impl ListenerSettings {
    /// A listener for plain HTTP, without further requirements.
    pub fn plain(address: ListenAddress) -> ListenerSettings {
        ListenerSettings {
            address,
            mode: DEFAULT_MODE,
            trusts_local_peers: false,
            protocols: Protocols::default(),
            tls: None,
            proxy_protocol: None,
            redirect: None,
            hsts: None,
            asked: None,
        }
    }
}

impl ListenAddress {
    /// The address, unless it is a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        }
    }

    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().to_canonical().is_loopback())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// An address as a settings file has it; paths in it start from the folder of `file`.
pub(super) fn parse_address(text: &str, file: &Path) -> Option<ListenAddress> {
    match text.strip_prefix(UNIX) {
        Some(path) => Some(ListenAddress::Unix(beside(file, path))),
        None => text.parse().ok().map(ListenAddress::Tcp),
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        ListenAddress::Tcp(address)
    }
}

impl Protocols {
    /// Whether HTTP/1.1 is among them.
    pub fn has_http1(self) -> bool {
        self != Protocols::Http2
    }

    /// Whether HTTP/2 is among them.
    pub fn has_http2(self) -> bool {
        self != Protocols::Http1
    }
}

impl Checker<'_> {
    pub(super) fn listeners(&mut self, raw: &Spanned<Vec<RawListener>>) -> Vec<ListenerSettings> {
        if raw.value.is_empty() {
            self.refuse(raw, "no listener", "add one: `- { address: 127.0.0.1:8080 }`");
        }
        let mut listeners: Vec<ListenerSettings> = Vec::new();
        for raw in &raw.value {
            let Some(listener) = self.listener(raw) else { continue };
            let is_any_port = listener.address.tcp().is_some_and(|address| address.port() == 0);
            let is_taken = listeners.iter().any(|earlier| earlier.address == listener.address);
            if is_taken && !is_any_port {
                let message = format!("a second listener at `{}`", raw.address.value);
                self.refuse(&raw.address, message, "keep one");
            }
            listeners.push(listener);
        }
        listeners
    }

    fn listener(&mut self, raw: &RawListener) -> Option<ListenerSettings> {
        let address = self.listen_address(&raw.address);
        let protocols = self.protocols(raw.protocols.as_ref());
        let tls = raw.tls.as_ref().map(|tls| self.listener_tls(tls, protocols));
        let proxy_protocol = raw.proxy_protocol.as_ref().map(|raw| self.proxy_protocol(raw));
        let redirect = raw.redirect.as_ref().and_then(|node| self.redirect(node));
        if let (Some(_), Some(node)) = (&raw.tls, &raw.redirect) {
            self.refuse(
                node,
                "a listener with `tls` does not need `redirect`",
                "remove this or `tls`",
            );
        }
        let hsts = raw.hsts.as_ref().and_then(|raw| self.hsts(raw));
        if let (None, Some(place)) = (&raw.tls, &raw.hsts) {
            let message = "browsers ignore `hsts` without TLS";
            self.refuse(place, message, "move it to the listener that has `tls`");
        }
        let is_unix = matches!(address, Some(ListenAddress::Unix(_)));
        let mode_place = raw.mode.as_ref().map(|mode| mode.span);
        let peers_place = raw.peers.as_ref().map(|peers| peers.span);
        for span in mode_place.into_iter().chain(peers_place) {
            if address.is_some() && !is_unix {
                self.refuse(span, "only a Unix socket has this", "remove it");
            }
        }
        let mode = raw.mode.as_ref().map_or(DEFAULT_MODE, |raw| self.mode(raw));
        let local_peers = raw.peers.as_ref().and_then(|raw| self.keyword(raw));
        let trusts_local_peers = matches!(local_peers, Some(LocalPeers::Trusted));
        Some(ListenerSettings {
            address: address?,
            mode,
            trusts_local_peers,
            protocols,
            tls: match tls {
                Some(tls) => Some(tls?),
                None => None,
            },
            proxy_protocol,
            redirect,
            hsts,
            asked: None,
        })
    }

    pub(super) fn listen_address(&mut self, raw: &Spanned<String>) -> Option<ListenAddress> {
        if let Some(path) = raw.value.strip_prefix(UNIX) {
            let help = "write one such as unix:/run/tollgate.sock";
            return self.socket_path(raw, path, help).map(ListenAddress::Unix);
        }
        self.address(raw).map(ListenAddress::Tcp)
    }

    pub(super) fn socket_path(
        &mut self,
        raw: &Spanned<String>,
        path: &str,
        help: &str,
    ) -> Option<PathBuf> {
        if path.ends_with('/') || Path::new(path).file_name().is_none() {
            self.refuse(raw, "not the path of a socket", help);
            return None;
        }
        let path = beside(self.file, path);
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            self.refuse(raw, format!("a path longer than {MAX_SOCKET_PATH} bytes"), help);
            return None;
        }
        Some(path)
    }

    fn protocols(&mut self, raw: Option<&Spanned<Vec<Spanned<Choice<Protocol>>>>>) -> Protocols {
        let Some(raw) = raw else { return Protocols::default() };
        if raw.value.is_empty() {
            self.refuse(raw, "no protocol", "write [http1, h2], or one of them");
        }
        let named: Vec<Protocol> = raw.value.iter().filter_map(|raw| self.keyword(raw)).collect();
        match (named.contains(&Protocol::Http1), named.contains(&Protocol::Http2)) {
            (true, false) => Protocols::Http1,
            (false, true) => Protocols::Http2,
            _ => Protocols::Both,
        }
    }

    fn proxy_protocol(&mut self, raw: &RawProxyProtocol) -> TrustedProxies {
        if raw.trusted.value.is_empty() {
            self.refuse(
                &raw.trusted,
                "an empty list: no connection would be accepted",
                "write the addresses of the proxies: [10.0.0.0/8]",
            );
        }
        let networks = self.trusted_networks(&raw.trusted.value);
        TrustedProxies::new(networks, ForwardedField::default())
    }

    pub(super) fn mode(&mut self, raw: &Spanned<String>) -> u32 {
        let mode = u32::from_str_radix(&raw.value, 8).ok().filter(|mode| *mode <= 0o777);
        if mode.is_none() {
            let message = format!("`{}` is not a file mode", raw.value);
            self.note(raw, message, "write three octal digits in quotes: \"0660\"");
        }
        mode.unwrap_or(DEFAULT_MODE)
    }
}
