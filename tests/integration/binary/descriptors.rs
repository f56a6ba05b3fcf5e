//! A process that has run out of descriptors.

use std::{fs, net::TcpStream};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::{Folder, Running, send};
use crate::support::{Upstream, eventually, get};

#[test]
fn exhausted_descriptors_are_survived() {
    let upstream = Upstream::start();
    let folder = Folder::before(&upstream);
    let token = folder.token(&["--sub", "42"]);
    let (mut running, address) = Running::serve(&folder);
    let ask = || send(address, get("/").token(&token));
    ask().assert_status(200);

    let process = running.id();
    let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let few = Some(open as u64 + 5);
    let id = Pid::from_raw(process.try_into().unwrap());
    prlimit(id, Resource::Nofile, Rlimit { current: few, maximum: few }).unwrap();
    let clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    running.wait_for_event("connections could not be accepted");

    drop(clients);
    ask().assert_status(200);
    eventually("descriptors are free again", || {
        let now = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        (now <= open + 1).then_some(())
    });
}
