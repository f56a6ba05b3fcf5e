//! Listeners at which other programs ask, in the program as it runs.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{PATIENCE, Upstream, get};

const VECTORS: &str = include_str!("../../decisions/vectors.txt");

/// A client of the Redis protocol.
struct Talk(TcpStream);

impl Talk {
    fn with(address: SocketAddr) -> Talk {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Talk(stream)
    }

    /// Sends bytes and reads a reply of this length.
    fn expect(&mut self, bytes: &[u8], reply: &str) {
        self.0.write_all(bytes).unwrap();
        let mut got = vec![0; reply.len()];
        self.0.read_exact(&mut got).unwrap();
        let (got, sent) = (String::from_utf8_lossy(&got), bytes.escape_ascii());
        assert_eq!(got, reply, "{sent}");
    }

    /// Reads until the connection is closed.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

fn encoded(command: &str) -> Vec<u8> {
    let words: Vec<&str> = command.split(' ').collect();
    let arguments = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), arguments.collect::<String>()).into_bytes()
}

/// The program with a listener of the Redis protocol with these fields, and where that is.
fn serve(fields: &str) -> (Folder, Running, SocketAddr) {
    let fields = format!("address: 127.0.0.1:0, protocol: redis{fields}");
    let folder = Folder::with_settings(
        &Upstream::start(),
        &format!("decisions: [{{ {fields} }}]\ndrain: 10s"),
    );
    let (mut running, _) = Running::serve(&folder);
    let address = asked_at(&mut running);
    (folder, running, address)
}

fn asked_at(running: &mut Running) -> SocketAddr {
    let line = running.wait_for_event("decisions listener is open");
    let address = line.split("address=").nth(1).unwrap();
    address.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn replies_over_a_socket_are_those_of_the_originals() {
    let (_folder, _running, address) = serve("");
    let vectors: Vec<(Vec<u8>, String)> = VECTORS
        .lines()
        .filter_map(|line| line.split_once(" => "))
        .map(|(command, reply)| (encoded(command), reply.replace(r"\r\n", "\r\n") + "\r\n"))
        .collect();
    let mut talk = Talk::with(address);
    for (command, reply) in &vectors {
        talk.expect(command, reply);
    }
    // All at once: replies keep the order of the commands.
    let pipeline: Vec<u8> = (0..1000).flat_map(|_| encoded("rl.reduce p 1000 60 at 5")).collect();
    let expected: String = (1..=1000).rev().map(|held| format!(":{held}\r\n")).collect();
    talk.expect(&pipeline, &expected);
}

#[test]
fn bytes_that_are_no_command_harm_their_own_connection_only() {
    let (_folder, _running, address) = serve("");
    let mut good = Talk::with(address);
    good.expect(&encoded("rl.reduce a 5 60"), ":5\r\n");
    for (bytes, told) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "-Protocol Error: Invalid Array length\r\n"),
        (b"*1000000000\r\n", "-Protocol Error: Invalid Array length\r\n"),
        (
            b"*2\r\n$6\r\nrl.get\r\n$999999999\r\n",
            "-Protocol Error: Invalid Bulk String length\r\n",
        ),
        (b"*1\r\n$4\r\nPINGPONG", "-Protocol Error: Expect '\\r\\n'\r\n"),
    ] {
        let mut bad = Talk::with(address);
        bad.0.write_all(bytes).unwrap();
        assert_eq!(bad.rest(), told, "{}", bytes.escape_ascii());
    }
    // Half a command waits for the rest, and is nothing if that never comes.
    let mut half = Talk::with(address);
    let command = encoded("rl.reduce a 5 60");
    half.0.write_all(&command[..command.len() / 2]).unwrap();
    good.expect(&encoded("rl.get a 5 60"), ":4\r\n");
    half.expect(&command[command.len() / 2..], ":4\r\n");
    let cut = Talk::with(address);
    (&cut.0).write_all(&command[..9]).unwrap();
    cut.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(cut.rest(), "");
    good.expect(&encoded("rl.get a 5 60"), ":3\r\n");
}

#[test]
fn slow_reader_holds_itself_and_nobody_else() {
    let (_folder, _running, address) = serve("");
    let slow = Talk::with(address);
    slow.0.set_nonblocking(true).unwrap();
    let command = encoded("COMMAND DOCS").repeat(100);
    // Until the system takes no more: replies pile up, and then the commands do.
    let mut sent = 0;
    while sent < 50_000_000 {
        match (&slow.0).write(&command) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        let mut good = Talk::with(address);
        good.expect(&encoded("PING"), "+PONG\r\n");
    }
    assert!(sent < 50_000_000, "it is still read after {sent} bytes");
}

#[test]
fn who_may_not_ask_is_told() {
    let (_folder, _running, address) = serve(", askers: [10.0.0.0/8]");
    let told = Talk::with(address).rest();
    assert!(told.starts_with("-DENIED this address may not ask"), "{told}");

    let folder = Folder::with_settings(
        &Upstream::start(),
        "decisions: [{ address: 127.0.0.1:0, protocol: redis, password_file: password }]",
    );
    folder.write("password", "open sesame\n");
    let (mut running, _) = Running::serve(&folder);
    let address = asked_at(&mut running);
    let mut talk = Talk::with(address);
    talk.expect(&encoded("rl.get a 1 1"), "-NOAUTH Authentication required.\r\n");
    let password = b"*2\r\n$4\r\nAUTH\r\n$11\r\nopen sesame\r\n";
    talk.expect(password, "+OK\r\n");
    talk.expect(&encoded("rl.get a 1 1"), ":1\r\n");
}

#[test]
fn what_has_come_is_served_at_the_end() {
    let (_folder, running, address) = serve("");
    let mut talk = Talk::with(address);
    talk.expect(&encoded("rl.reduce a 5 60"), ":5\r\n");
    running.signal("TERM");
    assert_eq!(talk.rest(), "", "an idle connection is closed at once");
    let output = running.finish();
    assert_exit(&output, 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn listeners_of_both_protocols_are_handed_over() {
    let upstream = Upstream::start();
    let settings = "handover: next.sock\ndrain: 10s\ndecisions: [{ address: 127.0.0.1:HTTP, protocol: \
                    http }, { address: 127.0.0.1:REDIS, protocol: redis }]";
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (http, redis) = (free(), free());
    let settings = settings
        .replace("HTTP", &http.port().to_string())
        .replace("REDIS", &redis.port().to_string());
    let folder = Folder::with_settings(&upstream, &settings);
    let (mut first, _) = Running::serve(&folder);
    first.wait_for_event("decisions listener is open");
    let ask = || {
        let question = get("/decide/forward")
            .field("x-forwarded-method", "GET")
            .field("x-forwarded-host", "a")
            .field("x-forwarded-uri", "/")
            .by("42");
        send(http, question).assert_status(200).assert_field("x-tollgate-subject", "42");
        Talk::with(redis).expect(&encoded("PING"), "+PONG\r\n");
    };
    ask();
    let (second, _) = Running::serve(&folder);
    assert_exit(&first.finish(), 0);
    ask();
    second.signal("TERM");
    let output = second.finish();
    assert_exit(&output, 0);
    assert!(!text(&output.stderr).contains("not listened at any more"), "{output:?}");
}
