//! The new process's side: asks the one that serves for its sockets, and relieves it.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use rustix::net::sockopt::socket_peercred;

use super::{
    HandoverError, Inherited,
    descriptors::{self, Greeting, SERVING},
    parse_address,
    process::{has_no_process, is_trusted},
};

/// The process that serves until this one does. If this is dropped, it goes on.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    pid: i32,
}

/// How long an answer may take: before it, counters are written.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

impl Predecessor {
    /// Requests the sockets of the process that serves at `path`; `None` if no process does.
    ///
    /// # Errors
    /// A process does, and does not hand them over.
    pub fn ask(path: &Path) -> Result<Option<(Predecessor, Inherited)>, HandoverError> {
        let mut stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) if has_no_process(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // What it hands over will get our clients' requests: it must be one of us.
        let credentials = socket_peercred(&stream).map_err(io::Error::from)?;
        let pid = credentials.pid.as_raw_pid();
        let uid = credentials.uid.as_raw();
        if !is_trusted(uid) {
            return Err(HandoverError::Stranger { pid, uid });
        }
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut greeting = [0; Greeting::BYTES];
        let count = match stream.read_exact(&mut greeting).map(|()| Greeting::from_bytes(greeting))
        {
            Ok(Some(Greeting::Sockets(count))) => count,
            Ok(Some(Greeting::Refused)) => return Err(HandoverError::Refused),
            Ok(None) => return Err(HandoverError::Unknown),
            // It was on its way out.
            Err(error) if has_no_process(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut inherited = Inherited::default();
        for _ in 0..count {
            let (length, socket) = descriptors::receive(&stream)?.ok_or(HandoverError::Unknown)?;
            let mut name = vec![0; length.into()];
            stream.read_exact(&mut name)?;
            let name = str::from_utf8(&name).ok().and_then(parse_address);
            if !inherited.add(name, socket) {
                return Err(HandoverError::Unknown);
            }
        }
        Ok(Some((Predecessor { stream, pid }, inherited)))
    }

    /// Notifies it that this process serves now.
    pub fn relieve(mut self) {
        match self.stream.write_all(&[SERVING]) {
            Ok(()) => tracing::info!(pid = self.pid, "took over"),
            // It is gone, and this process serves all the same.
            Err(error) => {
                tracing::warn!(pid = self.pid, %error, "took over, but could not notify the old process")
            }
        }
    }
}
