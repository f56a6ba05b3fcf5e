//! Restarting without a lost request: the listening sockets go from one process to the next.
//!
//! The one thing to know: a listening socket and the connections that wait in it belong to all who
//! hold it. A process that is to replace another gets its sockets over a Unix socket, begins to
//! accept, and only then notifies it. At every moment at least one process accepts, and until that
//! notice nothing has changed for the old process. A service manager can hand over sockets too, at
//! start.

mod descriptors;
mod predecessor;
mod process;
mod successor;

use std::{
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use listenfd::ListenFd;
use rustix::net::{SocketAddrAny, getsockname, sockopt::socket_acceptconn};

pub use self::{
    predecessor::Predecessor,
    successor::{Handover, Successor},
};
use tollgate_settings::{ListenAddress, ListenerSettings};

use super::listener::{Listener, ListenerSocket};

/// Listening sockets that another process has opened, until they are taken.
#[derive(Debug, Default)]
pub struct Inherited(Vec<InheritedSocket>);

#[derive(Debug)]
struct InheritedSocket {
    /// Where the settings of the process that had it say that it is. That may name no port, and the
    /// system may know a Unix socket by the name that it was made under.
    named: Option<ListenAddress>,
    /// Where the system says that it is.
    found: Option<ListenAddress>,
    socket: OwnedFd,
}

/// A socket of this process, for another one, with where the settings say that it is.
pub type SharedSocket = (ListenAddress, OwnedFd);

/// Why sockets do not go from one process to the next.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other process runs as another user.
    #[error("process {pid} runs as another user, {uid}")]
    Stranger {
        /// Its process id, if the system reports it.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// The process that serves does not hand over to this one.
    #[error(
        "the process that serves there runs as another user: run this one as the same, or stop it"
    )]
    Refused,
    /// The other side speaks otherwise.
    #[error("the process that serves there is not tollgate, or another version: stop it first")]
    Unknown,
    /// It was gone before it could serve.
    #[error("process {pid} ended before it served")]
    GaveUp {
        /// Its process id, if the system reports it.
        pid: i32,
    },
    /// There is something else.
    #[error("{} exists and is not a socket: name another path", .0.display())]
    NotASocket(PathBuf),
    /// More than one message can count.
    #[error("more than {} sockets cannot be handed over, or one with so long a name", u8::MAX)]
    TooMany,
    /// What the system says.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Inherited {
    /// What the service manager has opened for this process (`LISTEN_FDS`). To be called before
    /// anything else is opened, for the sockets are only numbers until then.
    pub fn from_service_manager() -> Inherited {
        let mut given = ListenFd::from_env();
        let mut inherited = Inherited::default();
        for number in 0..given.len() {
            let socket = match given.take_tcp_listener(number) {
                Ok(socket) => Ok(socket.map(OwnedFd::from)),
                Err(_) => given.take_unix_listener(number).map(|it| it.map(OwnedFd::from)),
            };
            match socket.map(|socket| socket.is_none_or(|socket| inherited.add(None, socket))) {
                Ok(true) => {}
                _ => tracing::warn!(number, "a socket of the service manager cannot be used"),
            }
        }
        inherited
    }

    /// The socket that listens at `address`, if there is one. It does not block.
    ///
    /// # Errors
    /// What the system says.
    pub fn take(&mut self, address: &ListenAddress) -> io::Result<Option<OwnedFd>> {
        let is_wanted = |it: &InheritedSocket| {
            [&it.named, &it.found].into_iter().flatten().any(|there| there == address)
        };
        let Some(at) = self.0.iter().position(is_wanted) else { return Ok(None) };
        // Of two that listen at whatever port they got, the first is the first's.
        let InheritedSocket { socket, .. } = self.0.remove(at);
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Some(socket))
    }

    /// A listener with these settings: at the socket that was inherited, or at one of its own.
    ///
    /// # Errors
    /// What [`Listener::bind`] says.
    pub fn listener(&mut self, settings: &ListenerSettings) -> io::Result<Listener> {
        let Some(socket) = self.take(&settings.address)? else { return Listener::bind(settings) };
        let socket = match settings.address {
            ListenAddress::Tcp(_) => ListenerSocket::Tcp(socket.into()),
            ListenAddress::Unix(_) => ListenerSocket::Unix(socket.into()),
        };
        Ok(Listener::new(socket, settings))
    }

    /// Adds the sockets of `others`.
    pub fn extend(&mut self, others: Inherited) {
        self.0.extend(others.0);
    }

    /// The addresses of sockets that were not taken.
    pub fn addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        self.0.iter().filter_map(|it| it.found.as_ref().or(it.named.as_ref()))
    }

    /// Whether it is a listening socket of a kind that is known here.
    fn add(&mut self, named: Option<ListenAddress>, socket: OwnedFd) -> bool {
        let found = address_of(&socket);
        let is_listening = socket_acceptconn(&socket).unwrap_or(false);
        let is_known = is_listening && (named.is_some() || found.is_some());
        if is_known {
            self.0.push(InheritedSocket { named, found, socket });
        }
        is_known
    }
}

impl Listener {
    /// The same socket, for another process.
    ///
    /// # Errors
    /// What the system says.
    pub fn share(&self) -> io::Result<SharedSocket> {
        let socket = match &self.socket {
            ListenerSocket::Tcp(socket) => socket.as_fd().try_clone_to_owned()?,
            ListenerSocket::Unix(socket) => socket.as_fd().try_clone_to_owned()?,
        };
        Ok((self.settings.address.clone(), socket))
    }
}

/// An address as it is written: `unix:/run/a.sock`, `127.0.0.1:80`.
fn parse_address(text: &str) -> Option<ListenAddress> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(ListenAddress::Unix(path.into())),
        None => text.parse().ok().map(ListenAddress::Tcp),
    }
}

fn address_of(socket: impl AsFd) -> Option<ListenAddress> {
    let address: SocketAddrAny = getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Some(ListenAddress::Tcp(address));
    }
    let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = address.path()?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    Some(ListenAddress::Unix(path.to_owned()))
}
