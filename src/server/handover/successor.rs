//! The serving process's side: waits for the one that is to replace it.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::FileTypeExt, net::UnixStream as StdStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{Mode, fchmod},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
    process::geteuid,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixListener, UnixStream},
    time::timeout,
};

use super::{
    HandoverError, Inherited, SharedSocket,
    descriptors::{self, Greeting, SERVING},
    predecessor::is_nobody,
};
use crate::settings::ListenAddress;

/// A Unix socket at which the next process asks for the sockets of this one.
#[derive(Debug)]
pub struct Handover {
    socket: OwnedFd,
    /// Of the socket's file, which ends with this unless somebody else has the socket now.
    path: Option<PathBuf>,
}

/// The process that serves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Its number.
    pub pid: i32,
}

/// Only this user may connect; who else may, by being root, is looked at.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

const BACKLOG: i32 = 16;

/// How long accepting pauses when it fails: there may be descriptors again then.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How long a process may take to receive the sockets.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

impl Handover {
    /// Opens the socket at `path`, or takes over the one that is open there.
    ///
    /// # Errors
    /// What the system says, or what is in the way.
    pub fn open(path: &Path, inherited: &mut Inherited) -> Result<Handover, HandoverError> {
        let socket = match inherited.take(&ListenAddress::Unix(path.to_owned()))? {
            Some(socket) => socket,
            None => open(path)?,
        };
        Ok(Handover { socket, path: Some(path.to_owned()) })
    }

    /// Hands `sockets` over to whoever asks, until one of those serves; `save` is called before, and
    /// what it keeps is what the next process may begin with. To be called inside of a runtime.
    ///
    /// # Errors
    /// It cannot be begun. A process that asks and then does not serve is no error.
    pub async fn wait(
        mut self,
        sockets: Vec<SharedSocket>,
        save: impl AsyncFn(),
    ) -> Result<Successor, HandoverError> {
        let listener = UnixListener::from_std(self.socket.try_clone()?.into())?;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a process that would take over");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match self.hand_over(stream, &sockets, &save).await {
                Ok(successor) => {
                    // The socket and its file are the successor's.
                    self.path = None;
                    return Ok(successor);
                }
                Err(error) => {
                    tracing::warn!(%error, "nobody took over: this process goes on");
                }
            }
        }
    }

    async fn hand_over(
        &self,
        mut stream: UnixStream,
        sockets: &[SharedSocket],
        save: &impl AsyncFn(),
    ) -> Result<Successor, HandoverError> {
        let credentials = stream.peer_cred()?;
        let (pid, uid) = (credentials.pid().unwrap_or_default(), credentials.uid());
        if !is_trusted(uid) {
            let refusal = Greeting::Refused.to_bytes();
            let _ = timeout(SEND_TIMEOUT, stream.write_all(&refusal)).await;
            return Err(HandoverError::Stranger { pid, uid });
        }
        tracing::info!(pid, "a process is about to take over");
        save().await;
        timeout(SEND_TIMEOUT, self.send(&mut stream, sockets)).await.map_err(io::Error::from)??;
        match stream.read_u8().await {
            Ok(SERVING) => Ok(Successor { pid }),
            Ok(_) => Err(HandoverError::Unknown),
            Err(error) if is_nobody(&error) => Err(HandoverError::GaveUp { pid }),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(
        &self,
        stream: &mut UnixStream,
        sockets: &[SharedSocket],
    ) -> Result<(), HandoverError> {
        let own = self.path.as_deref().map(|path| ListenAddress::Unix(path.to_owned()));
        let all = sockets.iter().map(|(address, socket)| (address, socket));
        let all = all.chain(own.as_ref().map(|address| (address, &self.socket)));
        let count = u8::try_from(all.clone().count()).map_err(|_| HandoverError::TooMany)?;
        stream.write_all(&Greeting::Sockets(count).to_bytes()).await?;
        for (address, socket) in all {
            let name = address.to_string();
            let length = u8::try_from(name.len()).map_err(|_| HandoverError::TooMany)?;
            let send = || descriptors::send(&*stream, length, socket.as_fd());
            stream.async_io(Interest::WRITABLE, send).await?;
            stream.write_all(name.as_bytes()).await?;
        }
        Ok(())
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a process of this user may have our sockets, and we its: root may do all that anyway.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == geteuid().as_raw() || uid == 0
}

fn open(path: &Path) -> Result<OwnedFd, HandoverError> {
    remove_stale(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(io::Error::from)?;
    // Before there is a file: it is never open to others, not even for a moment.
    fchmod(&socket, MODE).map_err(io::Error::from)?;
    bind(&socket, &SocketAddrUnix::new(path).map_err(io::Error::from)?).map_err(io::Error::from)?;
    listen(&socket, BACKLOG).map_err(io::Error::from)?;
    Ok(socket)
}

/// Removes the file of a socket whose process was killed.
fn remove_stale(path: &Path) -> Result<(), HandoverError> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            Err(HandoverError::NotASocket(path.to_owned()))
        }
        Ok(_) if StdStream::connect(path).is_err_and(|error| is_nobody(&error)) => {
            Ok(fs::remove_file(path)?)
        }
        _ => Ok(()),
    }
}
