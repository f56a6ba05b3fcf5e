//! A server's process: its port, its folder, its log, and its end.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::eventually;
use crate::support::send_signal;

/// A running server, or what is left of one. Its log is in its folder.
pub(super) struct Process {
    child: Child,
    guard: Child,
    is_paused: bool,
}

impl Process {
    /// Starts `redis-server` with these arguments, in a folder.
    pub(super) fn start(folder: &Path, arguments: &[String]) -> Process {
        let log = File::create(folder.join(LOG)).unwrap();
        let child = Command::new("redis-server")
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("the tests need redis-server: {error}"));
        let guard = guard(&child, folder);
        Process { child, guard, is_paused: false }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(super) fn is_up(&mut self) -> bool {
        !self.is_paused && !self.has_ended()
    }

    /// Suspends it: its connections stay open, and it does not answer.
    pub(super) fn pause(&mut self) {
        self.signal("STOP");
        self.is_paused = true;
        // The signal is on its way only.
        let status = format!("/proc/{}/status", self.id());
        let is_stopped = || fs::read_to_string(&status).unwrap().contains("State:\tT");
        eventually("the server stops", || is_stopped().then_some(()));
    }

    pub(super) fn resume(&mut self) {
        self.signal("CONT");
        self.is_paused = false;
    }

    fn signal(&self, name: &str) {
        send_signal(&self.child, name);
    }

    /// Ends it without a chance to do anything more.
    pub(super) fn kill(&mut self) {
        // First, lest it kills who gets the same number.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

const LOG: &str = "log";

/// What the latest server in this folder has said.
pub(super) fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join(LOG)).unwrap_or_default()
}

/// Clears up after a server whose handle is never dropped: a test's process that is killed, or one
/// that ends while several tests share the server. Its input ends with the process.
fn guard(server: &Child, folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", r#"read -r _; kill -KILL "$1"; rm -rf "$2""#, "guard"])
        .arg(server.id().to_string())
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}
