//! The serving process's side: waits for the one that is to replace it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixListener, UnixStream},
    time::timeout,
};
use tollgate_settings::ListenAddress;

use super::{
    HandoverError, Inherited, SharedSocket,
    descriptors::{self, Greeting, SERVING},
    process::{has_no_process, is_trusted},
};
use crate::server::listener::{SocketFile, bind_unix};

/// A Unix socket at which the next process asks for the sockets of this one.
#[derive(Debug)]
pub struct Handover {
    path: PathBuf,
    socket: OwnedFd,
    /// Behind the socket, which is to be closed first. None while it is another process's.
    file: Option<SocketFile>,
}

/// The process that serves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Its number.
    pub pid: i32,
}

/// Only this user may connect; who else may, by being root, is looked at.
const MODE: u32 = 0o600;

/// How long accepting pauses when it fails: there may be descriptors again then.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How long a process may take to receive the sockets.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it may take from then until it serves: before that, it reads what counters there are.
const START_TIMEOUT: Duration = Duration::from_secs(60);

impl Handover {
    /// Opens the socket at `path`, or takes over the one that is open there.
    ///
    /// # Errors
    /// What the system says, or what is in the way.
    pub fn open(path: &Path, inherited: &mut Inherited) -> Result<Handover, HandoverError> {
        let path = path.to_owned();
        if let Some(socket) = inherited.take(&ListenAddress::Unix(path.clone()))? {
            return Ok(Handover { path, socket, file: None });
        }
        let socket = bind_unix(&path, MODE).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => HandoverError::NotASocket(path.clone()),
            _ => error.into(),
        })?;
        let file = Some(SocketFile::of(&path)?);
        Ok(Handover { path, socket: socket.into(), file })
    }

    /// Hands `sockets` over to each process that requests them, until one serves; `save` is called
    /// before, and what it keeps is what the next process may begin with; `resume` is called if
    /// that process does not serve, and this one goes on. To be called inside of a runtime.
    ///
    /// # Errors
    /// It cannot be begun. A process that asks and then does not serve is no error.
    pub async fn wait(
        mut self,
        sockets: Vec<SharedSocket>,
        save: impl AsyncFn(),
        resume: impl AsyncFn(),
    ) -> Result<Successor, HandoverError> {
        // The process that handed it over has been relieved by now: the file is this process's.
        if self.file.is_none() {
            self.file = Some(SocketFile::of(&self.path)?);
        }
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
                    self.file.take().into_iter().for_each(SocketFile::abandon);
                    return Ok(successor);
                }
                Err(error) => {
                    tracing::warn!(%error, "no process took over: this process goes on");
                    resume().await;
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
        let pid = credentials.pid().unwrap_or_default();
        let uid = credentials.uid();
        if !is_trusted(uid) {
            let refusal = Greeting::Refused.to_bytes();
            let _ = timeout(SEND_TIMEOUT, stream.write_all(&refusal)).await;
            return Err(HandoverError::Stranger { pid, uid });
        }
        tracing::info!(pid, "a process is about to take over");
        save().await;
        timeout(SEND_TIMEOUT, self.send(&mut stream, sockets)).await.map_err(io::Error::from)??;
        match timeout(START_TIMEOUT, stream.read_u8()).await.map_err(io::Error::from)? {
            Ok(SERVING) => Ok(Successor { pid }),
            Ok(_) => Err(HandoverError::Unknown),
            Err(error) if has_no_process(&error) => Err(HandoverError::GaveUp { pid }),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(
        &self,
        stream: &mut UnixStream,
        sockets: &[SharedSocket],
    ) -> Result<(), HandoverError> {
        let own = ListenAddress::Unix(self.path.clone());
        let all = sockets.iter().map(|(address, socket)| (address, socket));
        let all = all.chain([(&own, &self.socket)]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_left_to_the_process_that_still_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("next.sock");
        let serving = Handover::open(&path, &mut Inherited::default()).unwrap();
        let mut inherited = Inherited::default();
        let socket = serving.socket.try_clone().unwrap();
        assert!(inherited.add(Some(ListenAddress::Unix(path.clone())), socket));
        // One that fails before it serves.
        drop(Handover::open(&path, &mut inherited).unwrap());
        assert!(path.exists());
        drop(serving);
        assert!(!path.exists());
    }
}
