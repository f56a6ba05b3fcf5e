//! The program, running, and what it prints as it comes.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use super::Folder;
use crate::support::{PATIENCE, send_signal};

pub(super) struct Running {
    child: Killed,
    pub(super) stdout: Lines,
    stderr: Lines,
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a command in a folder.
    pub(super) fn start(folder: &Folder, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(arguments);
        Running::start_by(folder, command)
    }

    /// Starts any command in a folder.
    pub(super) fn start_by(folder: &Folder, mut command: Command) -> Running {
        let mut child = command
            .current_dir(folder.path())
            .env_remove("TOLLGATE_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Running { child: Killed(child), stdout, stderr }
    }

    /// Starts serving what a folder configures, and waits until it listens.
    pub(super) fn serve(folder: &Folder) -> (Running, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["run", "--config", "tollgate.yaml"]);
        Running::serve_by(folder, command)
    }

    /// Starts it by another command, and waits until it listens.
    pub(super) fn serve_by(folder: &Folder, command: Command) -> (Running, SocketAddr) {
        let mut running = Running::start_by(folder, command);
        let line = running.stderr.wait_for("listening");
        let address = match serde_json::from_str::<serde_json::Value>(&line) {
            Ok(event) => event["fields"]["address"].as_str().unwrap().to_owned(),
            Err(_) => line.split("address=").nth(1).unwrap().trim().to_owned(),
        };
        (running, address.parse().unwrap())
    }

    /// Waits for a line on standard error that contains `text`.
    pub(super) fn wait_for_event(&mut self, text: &str) -> String {
        self.stderr.wait_for(text)
    }

    /// The same, unless such a line came before others that were waited for.
    pub(super) fn wait_for_event_or_seen(&mut self, text: &str) {
        if !self.stderr.seen().contains(text) {
            self.wait_for_event(text);
        }
    }

    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends a signal by its name: `TERM`, `INT`.
    pub(super) fn signal(&self, name: &str) {
        send_signal(&self.child.0, name);
    }

    /// Waits for the end; the output is that of the whole run.
    pub(super) fn finish(mut self) -> Output {
        let (ended, end) = mpsc::channel();
        let stdout = self.stdout;
        let stderr = self.stderr;
        let readers = thread::spawn(move || {
            let output = (stdout.into_text(), stderr.into_text());
            let _ = ended.send(());
            output
        });
        // Both outputs end with the program.
        if end.recv_timeout(PATIENCE).is_err() {
            drop(self.child);
            panic!("it did not end: {:?}", readers.join().unwrap());
        }
        let (stdout, stderr) = readers.join().unwrap();
        let status = self.child.0.wait().unwrap();
        Output { status, stdout: stdout.into(), stderr: stderr.into() }
    }
}

/// The lines that a program prints.
pub(super) struct Lines {
    lines: mpsc::Receiver<String>,
    /// Those that were taken.
    seen: String,
    reader: JoinHandle<()>,
}

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Lines {
        let (sender, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let _ = sender.send(line.unwrap());
            }
        });
        Lines { lines, seen: String::new(), reader }
    }

    /// Waits for a line that contains `text`.
    pub(super) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| {
                panic!("no line contains {text:?}; there was\n{}", self.seen);
            });
            self.seen += &format!("{line}\n");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// What was printed up to the line that was waited for.
    pub(super) fn seen(&self) -> &str {
        &self.seen
    }

    /// All lines, once the program has ended.
    fn into_text(self) -> String {
        self.reader.join().unwrap();
        self.lines.iter().fold(self.seen, |text, line| text + &line + "\n")
    }
}
