//! What clients and upstreams cause again and again is never a line each time.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{
    Client, ClosedPort, PATIENCE, Signer, Upstream,
    frames::{ACK, Frames, PING, frame},
    free_address, get,
};

/// Whatever happens how often, and to however many workers: a start and an end, and some lines of a
/// few kinds.
const FEW: usize = 40;

/// What a proxy with these settings logs while it is `flooded`.
fn logged(settings: &str, flooded: impl FnOnce(SocketAddr)) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["run", "--config", "tollgate.yaml"]);
    logged_by(command, settings, flooded)
}

/// The same of a proxy that is started by another command.
fn logged_by(command: Command, settings: &str, flooded: impl FnOnce(SocketAddr)) -> String {
    let closed = ClosedPort::take();
    let folder = Folder::before(&Upstream::start());
    folder.write("tollgate.yaml", &format!("version: 1\nworkers: 16\n{settings}\n"));
    folder.write("policies/api.yaml", &POLICY.replace("NOWHERE", &closed.address().to_string()));
    let (running, address) = Running::serve_by(&folder, command);
    flooded(address);
    running.signal("TERM");
    let output = running.finish();
    assert_exit(&output, 0);
    let log = text(&output.stderr).to_owned();
    assert!(log.lines().count() < FEW, "{} lines:\n{log}", log.lines().count());
    log
}

/// An upstream without a listener.
const POLICY: &str = "\
version: 1
hosts: [api.example.com]
upstreams: { api: { servers: [\"http://NOWHERE\"], retries: { attempts: 1 } } }
identity: { callers: [{ name: anonymous, key: client.ip }] }
limits: { core: { per: caller, rate: 1000000/hour } }
routes: [{ match: { path: /** }, limits: [core] }]
";

const PLAIN: &str = "listeners: [{ address: 127.0.0.1:0 }]";

/// Sends bytes that are no good on so many connections, and waits until each is closed.
fn send_rubbish(address: SocketAddr, times: usize, rubbish: &[u8]) {
    for _ in 0..times {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.write_all(rubbish);
        let _ = socket.read_to_end(&mut Vec::new());
    }
}

#[test]
fn pongs_without_a_ping() {
    let log = logged(PLAIN, send_pongs);
    assert!(!log.contains(" h2::"), "{log}");
}

fn send_pongs(address: SocketAddr) {
    let pongs: Vec<u8> = (0..400).flat_map(|_| frame(PING, ACK, 0, [0; 8])).collect();
    for _ in 0..20 {
        let mut frames = Frames::open(address);
        frames.write(&pongs);
        // It was read to its end once this is answered; or the connection has ended.
        if frames.write(frame(PING, 0, 0, [7; 8])) {
            frames.read_until(|frame| frame.kind == PING);
        }
    }
}

#[test]
fn libraries_are_heard_if_somebody_asks_and_are_bounded_then_too() {
    let mut command = Command::new("env");
    command.args(["TOLLGATE_LOG=info", env!("CARGO_BIN_EXE_tollgate")]);
    command.args(["run", "--config", "tollgate.yaml"]);
    let log = logged_by(command, PLAIN, send_pongs);
    let lines = log.lines().filter(|line| line.contains(" h2::")).count();
    assert!((1..FEW / 2).contains(&lines), "{log}");
}

#[test]
fn upstream_that_fails_each_time() {
    let log = logged(PLAIN, |address| {
        let mut client = Client::connect(address);
        for _ in 0..300 {
            client.send(&get("/").host("api.example.com")).assert_status(502);
        }
    });
    let written = log.lines().filter(|line| line.contains("upstream failed upstream=")).count();
    let dropped: usize = log
        .lines()
        .filter(|line| line.contains("more lines like this were dropped"))
        .filter(|line| line.contains("like=\"upstream failed\""))
        .map(|line| line.split("lines=").nth(1).unwrap().split(' ').next().unwrap())
        .map(|lines| lines.parse::<usize>().unwrap())
        .sum();
    assert_eq!(written + dropped, 300, "{log}");
    assert!(dropped > 200, "{log}");
}

#[test]
fn handshakes_that_fail() {
    let signer = Signer::new();
    let pair = signer.sign("api", &["api.example.com"]);
    let tls = format!("listeners: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{pair}] }} }}]");
    let log = logged(&tls, |address| send_rubbish(address, 200, &[0; 64]));
    assert!(log.contains("connections closed: no TLS handshake times="), "{log}");
}

#[test]
fn proxy_headers_that_are_none() {
    let settings =
        "listeners: [{ address: 127.0.0.1:0, proxy_protocol: { trusted: [127.0.0.1] } }]";
    let log = logged(settings, |address| send_rubbish(address, 200, &[b'x'; 300]));
    assert!(log.contains("no good PROXY header, see proxy_protocol times="), "{log}");
}

#[test]
fn requests_that_are_malformed_or_for_an_unknown_host() {
    let log = logged(PLAIN, |address| {
        send_rubbish(address, 200, b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
        for number in 0..200 {
            send(address, get("/").host(&format!("host-{number}"))).assert_status(404);
        }
        for name in ["x-forwarded-for", "forwarded"] {
            for _ in 0..100 {
                send(address, get("/").field(name, "for=192.0.2.1"));
            }
        }
    });
    assert!(!log.contains("host-1"), "{log}");
}

/// Each worker has connections of its own, and finds out by itself.
#[test]
fn redis_that_is_away() {
    let closed = ClosedPort::take();
    let nowhere = closed.address();
    let log =
        logged(&format!("{PLAIN}\nstore: {{ redis: {{ url: redis://{nowhere} }} }}"), |address| {
            let mut clients: Vec<Client> = (0..32).map(|_| Client::connect(address)).collect();
            for _ in 0..10 {
                for client in &mut clients {
                    client.send(&get("/").host("api.example.com")).assert_status(502);
                }
            }
        });
    assert!(log.contains("redis is away server="), "{log}");
}

#[test]
fn what_was_dropped_is_a_metric() {
    let admin = free_address();
    logged(&format!("{PLAIN}\nadmin: {{ address: \"{admin}\" }}"), |address| {
        let mut client = Client::connect(address);
        for _ in 0..100 {
            client.send(&get("/").host("api.example.com")).assert_status(502);
        }
        let metrics = send(admin, get("/metrics").host(&admin.to_string())).text();
        let name = "tollgate_events_dropped_total{reason=\"repeated\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert!(line.parse::<u64>().unwrap() > 50, "{metrics}");
    });
}
