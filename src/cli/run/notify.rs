//! Reports the state of this process to the service manager (`NOTIFY_SOCKET`).

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

use tollgate_yaml::Sources;

/// Requests are taken. Names this process as the one to watch: it may have taken over from another.
pub(super) fn ready() {
    let pid = std::process::id();
    notify(&format!("READY=1\nMAINPID={pid}"));
}

/// Requests in flight are finished, and then it ends.
pub(super) fn stopping() {
    notify("STOPPING=1");
}

fn notify(state: &str) {
    let Some(name) = Sources::system().variable("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&name, state) {
        tracing::warn!(%error, "the service manager cannot be notified");
    }
}

fn send(name: &str, state: &str) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that is stuck must not block the proxy.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_arrives_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@{}", path.display());
        let by_name = SocketAddr::from_abstract_name(name.trim_start_matches('@')).unwrap();
        for (name, manager) in [
            (path.display().to_string(), UnixDatagram::bind(&path).unwrap()),
            (name, UnixDatagram::bind_addr(&by_name).unwrap()),
        ] {
            send(&name, "READY=1").unwrap();
            let mut message = [0; 16];
            let length = manager.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1", "{name}");
        }
    }
}
