//! Listening sockets, and what comes in by them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tollgate_settings::{ListenAddress, ListenerSettings};

/// A bound socket, and what is asked of clients there.
#[derive(Debug)]
pub struct Listener {
    /// The socket; it does not block.
    pub socket: ListenerSocket,
    /// What is asked of clients.
    pub settings: Arc<ListenerSettings>,
    /// Behind the socket, which is to be closed first.
    _file: Option<SocketFile>,
}

/// A bound socket.
#[derive(Debug)]
pub enum ListenerSocket {
    /// Of an address of this machine.
    Tcp(std::net::TcpListener),
    /// Of a file.
    Unix(std::os::unix::net::UnixListener),
}

/// The file of a Unix socket. When this is dropped the file is removed, unless there is another
/// file by then, or another process, which has taken the socket over, still listens there.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number: the same name may be another file's by now.
    id: (u64, u64),
}

/// A client that has come in, before anything is read.
pub(crate) struct Accepted {
    pub(crate) stream: AcceptedStream,
    /// What is asked of it.
    pub(super) listener: Arc<ListenerSettings>,
}

pub(crate) enum AcceptedStream {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// Connections that wait to be accepted. The system has a limit of its own.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Binds the socket that the settings name.
    ///
    /// # Errors
    /// The error of the system: the address is in use, or not this machine's; another process
    /// listens at the Unix socket, or the file there is not a socket.
    pub fn bind(settings: &ListenerSettings) -> io::Result<Listener> {
        let socket = match &settings.address {
            ListenAddress::Tcp(address) => ListenerSocket::Tcp(bind_tcp(*address)?),
            ListenAddress::Unix(path) => ListenerSocket::Unix(bind_unix(path, settings.mode)?),
        };
        Ok(Listener::new(socket, settings))
    }

    /// A socket that is bound already, where the settings say.
    pub fn new(socket: ListenerSocket, settings: &ListenerSettings) -> Listener {
        let file = match &settings.address {
            ListenAddress::Tcp(_) => None,
            ListenAddress::Unix(path) => SocketFile::of(path).ok(),
        };
        Listener { socket, settings: Arc::new(settings.clone()), _file: file }
    }

    /// Where it is, with the port that it got.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<ListenAddress> {
        match &self.socket {
            ListenerSocket::Tcp(socket) => Ok(ListenAddress::Tcp(socket.local_addr()?)),
            ListenerSocket::Unix(_) => Ok(self.settings.address.clone()),
        }
    }

    /// Its socket, for a server of other clients than those of requests.
    ///
    /// # Errors
    /// It is a Unix socket.
    pub fn into_tcp(self) -> io::Result<std::net::TcpListener> {
        match self.socket {
            ListenerSocket::Tcp(socket) => Ok(socket),
            ListenerSocket::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Makes it this runtime's own.
    pub(crate) fn adopt(self) -> io::Result<Acceptor> {
        let socket = match self.socket {
            ListenerSocket::Tcp(socket) => {
                AcceptorSocket::Tcp(tokio::net::TcpListener::from_std(socket)?)
            }
            ListenerSocket::Unix(socket) => {
                AcceptorSocket::Unix(tokio::net::UnixListener::from_std(socket)?)
            }
        };
        Ok(Acceptor { socket, settings: self.settings, _file: self._file })
    }
}

impl SocketFile {
    /// The file that is at `path` now.
    pub(super) fn of(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), id: file_id(path)? })
    }

    /// Leaves it to another process.
    pub(super) fn abandon(mut self) {
        self.path.clear();
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = file_id(&self.path).is_ok_and(|id| id == self.id);
        if is_ours && is_abandoned(&self.path).unwrap_or(false) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// A listening socket of a runtime.
pub(crate) struct Acceptor {
    socket: AcceptorSocket,
    settings: Arc<ListenerSettings>,
    /// Behind the socket, which is to be closed first.
    _file: Option<SocketFile>,
}

enum AcceptorSocket {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Acceptor {
    /// Waits for the next client.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        let stream = match &self.socket {
            AcceptorSocket::Tcp(socket) => {
                let (stream, address) = socket.accept().await?;
                AcceptedStream::Tcp(stream.into_std()?, address)
            }
            AcceptorSocket::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                AcceptedStream::Unix(stream.into_std()?)
            }
        };
        Ok(Accepted { stream, listener: Arc::clone(&self.settings) })
    }
}

impl Accepted {
    /// The client's address, if it has one and it is known already.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.address().filter(|_| self.listener.proxy_protocol.is_none())
    }

    /// The other end's address, if it has one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match &self.stream {
            AcceptedStream::Tcp(_, address) => Some(tollgate_identity::canonical(address.ip())),
            AcceptedStream::Unix(_) => None,
        }
    }
}

/// Binds a socket of this machine. It can be bound again at once after a restart.
pub(super) fn bind_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Binds a Unix socket in place of one at which no process listens any more.
///
/// It is made under another name and renamed when its mode is right: no client can connect before,
/// and one that connects meanwhile finds the old socket or the new one.
pub(super) fn bind_unix(path: &Path, mode: u32) -> io::Result<std::os::unix::net::UnixListener> {
    check_free(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let making = path.with_file_name(name);
    let _ = std::fs::remove_file(&making);
    let listener = (|| {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(&making)?)?;
        std::fs::set_permissions(&making, std::fs::Permissions::from_mode(mode))?;
        socket.listen(BACKLOG)?;
        std::fs::rename(&making, path)?;
        Ok(socket.into())
    })();
    if listener.is_err() {
        let _ = std::fs::remove_file(&making);
    }
    listener
}

/// Whether a socket may be made at `path`: nothing is there, or a socket at which no process
/// listens.
fn check_free(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    if !there.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file is there, and no socket"));
    }
    match is_abandoned(path)? {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

/// Whether no process listens at the Unix socket at `path`. Does not wait for an answer.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        // The queue of connections to accept is full, so a process listens.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        connected => connected.map(|()| false),
    }
}
