//! A real Redis server of a test's own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tollgate_clock::Timestamp;

/// How long something that a server does by itself may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server, killed when it is dropped.
pub(super) struct RealServer {
    pub(super) port: u16,
    stream: TcpStream,
    /// Another connection, on which a command takes long.
    elsewhere: Option<TcpStream>,
    process: Child,
    directory: TempDir,
}

impl RealServer {
    /// Starts one on a free port.
    pub(super) fn start(arguments: &[&str]) -> RealServer {
        // Another process may take a port between when it is found to be free and when it is used.
        let start = |_| {
            let port = free_port();
            let directory = tempfile::tempdir().unwrap();
            let (process, stream) = run(port, server(port, &directory, arguments))?;
            Some(RealServer { port, stream, elsewhere: None, process, directory })
        };
        (0..10).find_map(start).expect("redis-server starts")
    }

    /// Starts a Sentinel that watches the server at this port under the name `main`.
    pub(super) fn start_sentinel(watched: u16) -> RealServer {
        let start = |_| {
            let port = free_port();
            let directory = tempfile::tempdir().unwrap();
            let settings = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {watched} 1\n"
            );
            std::fs::write(directory.path().join("sentinel.conf"), settings).unwrap();
            let mut command = Command::new("redis-server");
            command.args(["sentinel.conf", "--sentinel"]).current_dir(&directory);
            let (process, stream) = run(port, command)?;
            Some(RealServer { port, stream, elsewhere: None, process, directory })
        };
        (0..10).find_map(start).expect("redis-server starts as a Sentinel")
    }

    /// Kills it, and starts it again where it was.
    pub(super) fn restart(&mut self, arguments: &[&str]) {
        self.kill();
        let started = run(self.port, server(self.port, &self.directory, arguments));
        (self.process, self.stream) = started.expect("redis-server starts again");
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Another connection takes the place of the one before.
    pub(super) fn reconnect(&mut self) {
        self.stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
    }

    /// The bytes of the replies to commands that are sent at once.
    pub(super) fn execute_all(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
        let sent: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let mut sending = self.stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || sending.write_all(&sent).unwrap());
        let (mut unread, mut replies) = (Vec::new(), Vec::new());
        let mut piece = vec![0; 1 << 16];
        while replies.len() < commands.len() {
            let length = self.stream.read(&mut piece).unwrap();
            assert!(length > 0, "redis-server has closed the connection");
            unread.extend_from_slice(&piece[..length]);
            let mut rest = unread.as_slice();
            while let Some(length) = length_of_reply(rest) {
                let (reply, after) = rest.split_at(length);
                replies.push(reply.to_vec());
                rest = after;
            }
            unread = rest.to_vec();
        }
        sender.join().unwrap();
        replies
    }

    /// Sends a command on a connection of its own, and does not wait for the reply.
    pub(super) fn send_elsewhere(&mut self, words: &[&str]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(&encode(&command(words))).unwrap();
        self.elsewhere = Some(stream);
    }

    /// It has no place to save its data in any more.
    pub(super) fn lose_directory(&self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }

    /// What its clock says.
    pub(super) fn now(&mut self) -> Timestamp {
        let time = self.execute(&["TIME"]);
        let time = String::from_utf8(time).unwrap();
        let numbers: Vec<u64> = time.lines().filter_map(|line| line.parse().ok()).collect();
        Timestamp::from_micros(numbers[0] * 1_000_000 + numbers[1])
    }

    /// Waits until the reply to a command has a text in it.
    pub(super) fn until(&mut self, words: &[&str], text: &str) {
        let begun = Instant::now();
        while !self.execute(words).windows(text.len()).any(|part| part == text.as_bytes()) {
            assert!(begun.elapsed() < PATIENCE, "no {text} in {words:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// A field in a section of `INFO`.
    pub(super) fn field(&mut self, section: &str, name: &str) -> String {
        field(&self.execute(&["INFO", section]), name)
    }

    /// The bytes of the reply to one command.
    pub(super) fn execute(&mut self, words: &[&str]) -> Vec<u8> {
        self.execute_all(&[command(words)]).remove(0)
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn server(port: u16, directory: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new("redis-server");
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .args(arguments)
        .current_dir(directory);
    command
}

/// Runs a server, and connects to it; none if the port is not free.
fn run(port: u16, mut command: Command) -> Option<(Child, TcpStream)> {
    let process = command.stdout(Stdio::piped()).spawn();
    let mut process = process.expect("redis-server is installed");
    let log = BufReader::new(process.stdout.take().unwrap());
    let is_ready =
        |line: String| ["Ready to accept", "+monitor"].iter().any(|it| line.contains(it));
    let is_ready = log.lines().map_while(Result::ok).any(is_ready);
    match TcpStream::connect(("127.0.0.1", port)) {
        Ok(stream) if is_ready => Some((process, stream)),
        _ => {
            let _ = process.kill();
            let _ = process.wait();
            None
        }
    }
}

/// A command of these words.
pub(super) fn command(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The number that a reply is.
pub(super) fn integer(reply: &[u8]) -> i64 {
    let digits = std::str::from_utf8(&reply[1..]).unwrap();
    digits.trim_end().parse().unwrap()
}

/// A field in the reply to `INFO`.
pub(super) fn field(info: &[u8], name: &str) -> String {
    let info = String::from_utf8_lossy(info);
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {info}")).to_owned()
}

/// How many bytes the first reply has; none if it is not whole yet.
fn length_of_reply(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let count: i64 = std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse().unwrap_or_default();
    let count = usize::try_from(count).ok();
    let items = match (bytes[0], count) {
        (b'$' | b'=', Some(length)) => {
            let whole = line + length + 2;
            return (bytes.len() >= whole).then_some(whole);
        }
        (b'*' | b'~' | b'>', Some(count)) => count,
        (b'%', Some(count)) => 2 * count,
        _ => 0,
    };
    (0..items).try_fold(line, |end, _| Some(end + length_of_reply(&bytes[end..])?))
}
