//! Signals to other processes, without a program that sends them: a bare Debian has no `kill`.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal by its name, such as `TERM`, to a child that has not been waited for.
pub(crate) fn send_signal(child: &Child, name: &str) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        _ => panic!("no test has sent {name} yet: add it here"),
    };
    kill_process(Pid::from_child(child), signal).expect("the process runs");
}
