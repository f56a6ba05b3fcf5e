//! Restarting without a lost request: one process takes the sockets of another over.

use std::{
    fs::{self, Permissions},
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Client, Signal, Upstream, eventually, get};

const HANDOVER: &str = "handover: next.sock\ndrain: 10s";

/// Clients that go on until they are stopped, and fail with the first request that does.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// One that keeps its connection as long as it may, and one that opens one for each request.
    fn on(address: SocketAddr) -> Load {
        let load = Load { stop: Arc::default(), answered: Arc::default(), clients: Vec::new() };
        let client = |keeps: bool| {
            let stop = Arc::clone(&load.stop);
            let answered = Arc::clone(&load.answered);
            thread::spawn(move || {
                let mut client = Client::connect(address);
                while !stop.load(Ordering::Relaxed) {
                    let response = client.send(&get("/"));
                    response.assert_status(200);
                    if !keeps || response.field("connection") == Some("close") {
                        client = Client::connect(address);
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let clients = vec![client(true), client(false)];
        Load { clients, ..load }
    }

    /// Waits until so many more requests were answered.
    fn wait_for(&self, more: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + more;
        eventually("the clients go on", || {
            (self.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
    }
}

fn folder(settings: &str) -> (Upstream, Folder) {
    let upstream = Upstream::start();
    let folder = before(&upstream, settings);
    (upstream, folder)
}

/// Before an upstream, with a limit by address and no tokens.
fn before(upstream: &Upstream, settings: &str) -> Folder {
    let folder = Folder::with_settings(upstream, settings);
    folder.write(
        "policies/api.yaml",
        &format!(
            "version: 1\nupstreams: {{ api: {{ servers: [\"{}\"] }} }}\n\
             limits: {{ core: {{ per: client.ip, rate: 1_000_000/hour }} }}\n\
             routes: [{{ match: {{ path: /** }}, auth: none, limits: [core] }}]\n",
            upstream.url()
        ),
    );
    folder
}

#[test]
fn five_handovers_under_load_lose_no_request() {
    let (_upstream, folder) = folder(HANDOVER);
    let (mut old, address) = Running::serve(&folder);
    let load = Load::on(address);
    for _ in 0..5 {
        load.wait_for(50);
        let (mut new, same) = Running::serve(&folder);
        assert_eq!(same, address);
        new.wait_for_event("took over");
        load.wait_for(50);
        let output = old.finish();
        assert_exit(&output, 0);
        let logged = text(&output.stderr);
        assert!(
            logged.contains("another process has taken over") && logged.contains("cut=0"),
            "{logged}"
        );
        old = new;
    }
    load.wait_for(50);
    load.finish();
    old.signal("TERM");
    assert_exit(&old.finish(), 0);
    assert!(!folder.path().join("next.sock").exists(), "the socket's file was left behind");
}

#[test]
fn process_that_fails_to_start_leaves_the_other_serving() {
    let (upstream, folder) = folder(HANDOVER);
    let (mut old, address) = Running::serve(&folder);
    let load = Load::on(address);
    let taken = upstream.url().replace("http://", "");
    let settings = fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
    let more = format!("[{{ address: 127.0.0.1:0 }}, {{ address: \"{taken}\" }}]");
    folder.write("second.yaml", &settings.replace("[{ address: 127.0.0.1:0 }]", &more));
    let output = folder.run(&["run", "--config", "second.yaml"]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("cannot listen on"), "{output:#?}");
    old.wait_for_event("no process took over");
    load.wait_for(50);

    let (mut new, _) = Running::serve(&folder);
    new.wait_for_event("took over");
    assert_exit(&old.finish(), 0);
    load.wait_for(50);
    load.finish();
}

#[test]
fn counters_and_the_admin_listener_go_along() {
    let settings = format!(
        "{HANDOVER}\nadmin: {{ address: 127.0.0.1:0 }}\n\
         store: {{ memory: {{ snapshot: {{ file: counters.snapshot, every: 1h }} }} }}"
    );
    let (_upstream, folder) = folder(&settings);
    let (mut old, address) = Running::serve(&folder);
    let admin = old.wait_for_event("admin listener is open");
    for used in ["1", "2", "3"] {
        send(address, get("/")).assert_field("x-ratelimit-used", used);
    }
    let (mut new, _) = Running::serve(&folder);
    let port = |line: &str| line.rsplit(':').next().unwrap().to_owned();
    assert_eq!(port(&new.wait_for_event("admin listener is open")), port(&admin));
    new.wait_for_event("took over");
    assert_exit(&old.finish(), 0);
    send(address, get("/")).assert_field("x-ratelimit-used", "4");
    new.signal("TERM");
    assert_exit(&new.finish(), 0);
    // The old process has left the file alone: the next one goes on from where the new one was.
    let (_running, address) = Running::serve(&folder);
    send(address, get("/")).assert_field("x-ratelimit-used", "5");
}

#[test]
fn admin_socket_stays_while_the_old_process_ends() {
    let settings = format!("{HANDOVER}\nadmin: {{ address: \"unix:admin.sock\" }}");
    let (_upstream, folder) = folder(&settings);
    let (old, _) = Running::serve(&folder);
    let (mut new, _) = Running::serve(&folder);
    new.wait_for_event("took over");
    assert_exit(&old.finish(), 0);
    assert_exit(&folder.run(&["status", "--admin", "unix:admin.sock"]), 0);
    new.signal("TERM");
    assert_exit(&new.finish(), 0);
    assert!(!folder.path().join("admin.sock").exists());
}

#[test]
fn readiness_is_answered_by_the_new_process_only() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let settings = format!("{HANDOVER}\nadmin: {{ address: 127.0.0.1:0 }}");
    let folder = before(&upstream, &settings);
    let (mut old, address) = Running::serve(&folder);
    let admin = old.wait_for_event("admin listener is open");
    let admin: SocketAddr = admin.split("address=").nth(1).unwrap().trim().parse().unwrap();
    let mut busy = Client::connect(address);
    busy.write(get("/").to_bytes());
    asked.wait();
    let (mut new, _) = Running::serve(&folder);
    new.wait_for_event("took over");
    old.wait_for_event("draining");
    for _ in 0..20 {
        send(admin, get("/readyz").host("localhost")).assert_status(200);
    }
    go.open();
    busy.read().assert_status(200).assert_field("connection", "close");
    assert_exit(&old.finish(), 0);
}

#[test]
fn socket_of_a_process_that_was_killed_does_not_stop_the_next_one() {
    let (_upstream, folder) = folder(HANDOVER);
    let (old, _) = Running::serve(&folder);
    old.signal("KILL");
    drop(old);
    assert!(folder.path().join("next.sock").exists());
    let (_running, address) = Running::serve(&folder);
    send(address, get("/")).assert_status(200);
}

#[test]
fn file_in_place_of_the_socket_is_left_alone() {
    let (_upstream, folder) = folder(HANDOVER);
    folder.write("next.sock", "a file of the operator");
    let output = folder.run(&["run", "--config", "tollgate.yaml"]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("is not a socket"), "{output:#?}");
    assert!(folder.path().join("next.sock").exists());
}

#[test]
fn socket_is_closed_to_others_and_strangers_are_refused() {
    const STRANGER: &str = "
import os, socket, sys
os.setuid(65534)
stranger = socket.socket(socket.AF_UNIX)
stranger.connect(sys.argv[1])
print(stranger.recv(4)[2:3].decode())
";
    let (_upstream, folder) = folder(HANDOVER);
    let (mut running, address) = Running::serve(&folder);
    let socket = folder.path().join("next.sock");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Only root can become somebody else to try.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    fs::set_permissions(&socket, Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("python3").args(["-c", STRANGER]).arg(&socket).output().unwrap();
    assert_eq!(text(&output.stdout), "R\n", "{output:#?}");
    running.wait_for_event("runs as another user, 65534");
    send(address, get("/")).assert_status(200);
}

#[test]
fn sockets_of_a_service_manager_are_used_and_it_is_notified() {
    const MANAGER: &str = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
port = listener.getsockname()[1]
settings = open('tollgate.yaml').read().replace('127.0.0.1:0', f'127.0.0.1:{port}')
open('tollgate.yaml', 'w').write(settings)
os.dup2(listener.fileno(), 3, inheritable=True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), NOTIFY_SOCKET='notify')
os.execv(sys.argv[1], ['tollgate', 'run', '--config', 'tollgate.yaml'])
";
    let (_upstream, folder) = folder("");
    let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", MANAGER, env!("CARGO_BIN_EXE_tollgate")]);
    let (running, address) = Running::serve_by(&folder, command);
    let notification = || {
        let mut datagram = [0; 64];
        let length = manager.recv(&mut datagram).unwrap();
        text(&datagram[..length]).to_owned()
    };
    assert_eq!(notification(), format!("READY=1\nMAINPID={}", running.id()));
    send(address, get("/")).assert_status(200);
    running.signal("TERM");
    assert_eq!(notification(), "STOPPING=1");
    assert_exit(&running.finish(), 0);
}
