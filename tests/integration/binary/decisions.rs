//! Listeners at which other programs ask, in the program as it runs.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Instant,
};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{PATIENCE, Upstream, free_address, get, post};

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

    /// Sends a command, and reads the reply.
    fn say(&mut self, command: &[u8]) -> Vec<String> {
        self.0.write_all(command).unwrap();
        self.read_reply()
    }

    /// The parts of a reply; an error is one part.
    fn read_reply(&mut self) -> Vec<String> {
        let line = self.read_line();
        match line.split_at(1) {
            ("*", count) => {
                let count: usize = count.parse().unwrap();
                (0..count).flat_map(|_| self.read_reply()).collect()
            }
            ("$", "-1") => vec!["nothing".to_owned()],
            ("$", length) => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                vec![String::from_utf8_lossy(&bytes).trim_end().to_owned()]
            }
            ("-", _) => vec![line],
            (_, rest) => vec![rest.to_owned()],
        }
    }

    /// Whether there is a reply of a line; the connection may be closed in its place.
    fn answers(&mut self) -> bool {
        let mut byte = [0];
        while let Ok(1) = self.0.read(&mut byte) {
            if byte == *b"\n" {
                return true;
            }
        }
        false
    }

    fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
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

/// The program with limits that programs charge, and where that is: HTTP and Redis.
fn serve_named() -> (Folder, Running, SocketAddr, SocketAddr) {
    let http = free_address();
    let folder = named(&format!(
        "decisions: [{{ address: \"{http}\", protocol: http }}, {{ address: 127.0.0.1:0, protocol: \
         redis }}]"
    ));
    let (mut running, _) = Running::serve(&folder);
    let redis = asked_at(&mut running);
    (folder, running, http, redis)
}

/// A configuration with these settings, and limits that are charged by name.
fn named(settings: &str) -> Folder {
    let folder = Folder::with_settings(&Upstream::start(), settings);
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let limits =
        "limits:\n  mail: { per: key, rate: 3/hour }\n  slots: { per: key, concurrent: 1 }\n";
    fs::write(&file, policy.replace("limits:\n", limits)).unwrap();
    folder
}

#[test]
fn limits_of_the_policy_are_charged_by_name() {
    let (_folder, running, http, redis) = serve_named();
    let mut talk = Talk::with(redis);
    let mut say = |command: &str| talk.say(&encoded(command));
    let first = say("TG.CHARGE mail eu");
    assert_eq!(first[..3], ["1", "2", "-1"], "{first:?}");
    let receipt = first[4].clone();
    assert_eq!(say("tg.charge mail eu cost 2")[..2], ["1", "0"]);
    let denied = say("TG.CHARGE mail eu");
    assert_eq!((&*denied[0], &*denied[1], denied.len()), ("0", "0", 5), "{denied:?}");
    let wait: u64 = denied[2].parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&wait), "{denied:?}");
    assert_eq!(say("TG.STANDING mail eu")[..3], ["3", "3", "0"]);
    // The same counters, whatever the protocol.
    let standing = send(http, get("/v1/standing?limit=mail&key=eu").by_program()).json();
    assert_eq!(standing["standings"][0]["used"], 3);
    assert_eq!(say(&format!("TG.GIVEBACK {receipt}")), ["OK"]);
    assert_eq!(say(&format!("TG.GIVEBACK {receipt}")), ["-ERR the receipt was used before"]);
    assert_eq!(say("TG.STANDING mail eu")[..3], ["3", "2", "1"]);
    assert_eq!(say("TG.RESET mail eu"), ["OK"]);
    assert_eq!(say("TG.STANDING mail eu")[..3], ["3", "0", "3"]);
    // Counters of times that clients give are others.
    let past = say("TG.CHARGE mail eu COST 2 AT 1000000000");
    assert_eq!(past[..4], ["1", "1", "-1", "1000003600"]);
    let denied = say("TG.CHARGE mail eu AT 2001-09-09T01:46:50.5Z COST 2");
    assert_eq!(denied[..4], ["0", "1", "3589500", "1000003600"]);
    assert_eq!(say("TG.STANDING mail eu AT 1000000000")[..3], ["3", "2", "1"]);
    assert_eq!(say("TG.STANDING mail eu")[..3], ["3", "0", "3"]);
    assert_eq!(say(&format!("TG.GIVEBACK {}", past[4])), ["OK"]);
    assert_eq!(say("TG.STANDING mail eu at 1000000000")[..3], ["3", "0", "3"]);
    let slot = say("TG.CHARGE slots eu");
    assert_eq!(say(&format!("TG.GIVEBACK {}", slot[4])), ["OK"]);
    // Slots are given back though the units were settled before.
    let charges = r#"[{"limit":"mail","key":"both"},{"limit":"slots","key":"both"}]"#;
    let charge = post("/v1/charge", format!("{{\"charges\":{charges}}}")).by_program();
    let both = send(http, charge).json()["receipt"].as_str().unwrap().to_owned();
    let settle = format!("{{\"receipt\":\"{both}\",\"cost\":2}}");
    send(http, post("/v1/settle", settle).by_program()).assert_status(200);
    assert_eq!(say(&format!("TG.GIVEBACK {both}")), ["OK"]);
    assert_eq!(say("TG.STANDING slots both")[..3], ["1", "0", "1"]);
    assert_eq!(say("TG.STANDING mail both")[..3], ["3", "2", "1"]);
    assert_eq!(say(&format!("TG.GIVEBACK {both}")), ["-ERR the receipt was used before"]);
    let ahead = say("TG.CHARGE mail eu AT 9999999999");
    assert!(ahead[0].starts_with("-ERR `at` is 2286-11-20T17:46:39.000Z, more than"), "{ahead:?}");
    for (command, told) in [
        (
            "TG.CHARGE core a",
            "-ERR limit `core` counts by something else: write its key as `user:a`",
        ),
        ("TG.CHARGE mail", "-ERR wrong number of arguments for 'tg.charge' command"),
        (
            "TG.CHARGE mail a COST -1",
            "-ERR COST is not an integer or out of range: 0 to 2147483647",
        ),
        (
            "TG.CHARGE mail a WAIT 300001",
            "-ERR WAIT is not an integer or out of range: 0 to 300000 milliseconds",
        ),
        (
            "TG.CHARGE mail a NOW",
            "-ERR syntax error: write COST and a number, TIER and a name, WAIT and milliseconds, or AT and an instant",
        ),
        (
            "TG.CHARGE mail a AT yesterday",
            "-ERR AT is not an instant: write seconds since 1970, or RFC 3339",
        ),
        ("TG.CHARGE mail a AT 1 WAIT 1", "-ERR syntax error: write either WAIT or AT"),
        (
            "TG.CHARGE slots a AT 1",
            "-ERR limit `slots` has `concurrent`, whose slots are held now: leave out `at`",
        ),
        (
            "TG.GIVEBACK abc",
            "-ERR this is no receipt of this proxy, or of one that shares its counters",
        ),
        ("TG.STANDING mail", "-ERR wrong number of arguments for 'tg.standing' command"),
        ("TG.NOTHING", "-ERR unknown command 'TG.NOTHING'"),
    ] {
        assert_eq!(say(command), [told], "{command}");
    }
    // A pipeline of both kinds of commands keeps its order.
    let pipeline = [
        "PING",
        "TG.CHARGE mail p",
        "rl.reduce p 5 60",
        "TG.CHARGE mail p COST 2",
        "TG.CHARGE mail p",
        "ECHO end",
    ];
    let bytes: Vec<u8> = pipeline.iter().flat_map(|command| encoded(command)).collect();
    talk.0.write_all(&bytes).unwrap();
    let replies: Vec<String> = pipeline.iter().map(|_| talk.read_reply()[0].clone()).collect();
    assert_eq!(replies, ["PONG", "1", "5", "1", "0", "end"]);
    running.signal("TERM");
    let output = running.finish();
    let log = text(&output.stdout);
    assert!(
        log.contains(" POST /v1/charge route=- 429 mail=3/3 key=key:eu asked_by=redis "),
        "{log}"
    );
    // Each command has one line, with what was answered.
    let statuses = |path: &str| {
        let lines = log.lines().filter(|line| line.contains(" asked_by=redis "));
        let words = lines.filter_map(|line| line.split_once(&format!(" {path} route=- ")));
        words.map(|(_, rest)| rest[..3].parse().unwrap()).collect::<Vec<u16>>()
    };
    assert_eq!(statuses("/v1/settle"), [200, 409, 200, 200, 200, 409, 400], "{log}");
    assert!(statuses("/v1/release").is_empty(), "{log}");
    assert_eq!(statuses("/v1/reset"), [200], "{log}");
    assert_eq!(statuses("/v1/standing"), [200, 200, 200, 200, 200, 200, 200, 200, 400], "{log}");
    let charges = [[200, 200, 429, 200, 429, 200].as_slice(), &[400; 9], &[200, 200, 429]];
    assert_eq!(statuses("/v1/charge"), charges.concat(), "{log}");
}

#[test]
fn who_waits_for_a_slot_gets_it_when_it_is_given_back() {
    let (_folder, _running, _, redis) = serve_named();
    let mut holder = Talk::with(redis);
    let held = holder.say(&encoded("TG.CHARGE slots a"));
    let mut waiting = Talk::with(redis);
    waiting.0.write_all(&encoded("TG.CHARGE slots a WAIT 60000")).unwrap();
    // One that goes away while it waits takes no slot.
    let mut gone = Talk::with(redis);
    gone.0.write_all(&encoded("TG.CHARGE slots a WAIT 60000")).unwrap();
    drop(gone);
    assert_eq!(holder.say(&encoded("TG.CHARGE slots a WAIT 1"))[0], "0");
    assert_eq!(holder.say(&encoded(&format!("TG.GIVEBACK {}", held[4]))), ["OK"]);
    assert_eq!(waiting.read_reply()[0], "1");
    assert_eq!(holder.say(&encoded("TG.STANDING slots a"))[..3], ["1", "1", "0"]);
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

/// The program with a listener of the Redis protocol that wants a password.
fn serve_with_password(more: &str) -> (Folder, Running, SocketAddr) {
    let settings = format!(
        "decisions: [{{ address: 127.0.0.1:0, protocol: redis, password_file: password }}]\n{more}"
    );
    let folder = Folder::with_settings(&Upstream::start(), &settings);
    folder.write("password", "open sesame\n");
    let (mut running, _) = Running::serve(&folder);
    let address = asked_at(&mut running);
    (folder, running, address)
}

#[test]
fn tries_of_passwords_are_counted_whatever_comes_between() {
    let (_folder, _running, address) = serve_with_password("");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for between in ["RESET", "HELLO 3", "PING"] {
        let mut talk = Talk::with(address);
        for _ in 0..2 {
            talk.expect(&encoded("AUTH guess"), wrong);
            talk.say(&encoded(between));
        }
        let last = [encoded("HELLO 3 AUTH default guess"), encoded("PING")].concat();
        talk.0.write_all(&last).unwrap();
        assert_eq!(talk.rest(), wrong, "{between}");
    }
    // A client that knows it may begin anew as often as it likes.
    let mut talk = Talk::with(address);
    let password = b"*2\r\n$4\r\nAUTH\r\n$11\r\nopen sesame\r\n";
    for _ in 0..5 {
        talk.expect(password, "+OK\r\n");
        talk.expect(&encoded("RESET"), "+RESET\r\n");
        talk.expect(&encoded("AUTH guess"), wrong);
    }
}

#[test]
fn who_says_no_password_in_time_is_cut_whatever_it_sends() {
    let (_folder, _running, address) = serve_with_password("timeouts: { head: 1s }");
    let mut known = Talk::with(address);
    let password = b"*2\r\n$4\r\nAUTH\r\n$11\r\nopen sesame\r\n";
    known.expect(password, "+OK\r\n");
    for command in ["PING", "RESET", "HELLO 3"] {
        let mut stranger = Talk::with(address);
        let begun = Instant::now();
        let is_open =
            |talk: &mut Talk| talk.0.write_all(&encoded(command)).is_ok() && talk.answers();
        while is_open(&mut stranger) {
            assert!(begun.elapsed() < PATIENCE, "{command} keeps the connection open");
        }
    }
    known.expect(&encoded("PING"), "+PONG\r\n");
    // Who forgets the password again is a stranger from then on.
    known.expect(&encoded("RESET"), "+RESET\r\n");
    let begun = Instant::now();
    while known.0.write_all(&encoded("PING")).is_ok() && known.answers() {
        assert!(begun.elapsed() < PATIENCE);
    }
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
    let (http, redis) = (free_address(), free_address());
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

#[test]
fn resets_of_programs_are_logged_with_who_asked_and_why() {
    let (_folder, mut running, http, redis) = serve_named();
    let mut talk = Talk::with(redis);
    assert_eq!(talk.say(&encoded("TG.RESET mail eu WHY ticket-7")), ["OK"]);
    let line = running.wait_for_event("counters of a key were reset");
    for part in
        ["by=\"127.0.0.1\"", "asked_by=\"redis\"", "limit=\"mail\"", "why=\"ticket-7\"", "key=\""]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("eu"), "the key is hashed: {line}");
    let body = r#"{"limit": "mail", "key": "eu", "why": "a double run"}"#;
    send(http, post("/v1/reset", body).by_program()).assert_status(200);
    let line = running.wait_for_event("a double run");
    assert!(line.contains("asked_by=\"http\"") && line.contains("limit=\"mail\""), "{line}");
    let body = r#"{"limit": "mail", "key": "eu", "why": "two\nlines"}"#;
    send(http, post("/v1/reset", body).by_program()).assert_status(400);
    let told = talk.say(&encoded("TG.RESET mail eu WHEN now"));
    assert!(told[0].starts_with("-ERR syntax error: write WHY"), "{told:?}");
    assert_eq!(talk.say(&encoded("TG.RESET mail eu")), ["OK"]);
}

/// As 429 over HTTP: others are served, and trying again at once is of no use.
#[test]
fn program_with_too_many_keys_gets_limited_and_not_unavailable() {
    let folder = named(
        "decisions: [{ address: 127.0.0.1:0, protocol: redis }]\n\
         store: { unverified_keys: { per_address: 1 } }",
    );
    let (mut running, _) = Running::serve(&folder);
    let mut talk = Talk::with(asked_at(&mut running));
    assert_eq!(talk.say(&encoded("TG.CHARGE mail a"))[0], "1");
    let told = talk.say(&encoded("TG.CHARGE mail b"));
    assert!(told[0].starts_with("-LIMITED no room for another counter: the client"), "{told:?}");
    assert_eq!(talk.say(&encoded("TG.CHARGE mail a"))[0], "1");
}
