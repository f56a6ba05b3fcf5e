//! Listeners that are files.

use std::{
    fs,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
};

use tollgate::server::Listener;
use tollgate_settings::{ListenerSettings, Settings};
use tollgate_yaml::Sources;

use crate::support::{Policy, Proxy, Upstream, last_request};

fn proxy(upstream: &Upstream, socket: &Path, fields: &str) -> Proxy {
    let listener = format!("[{{ address: \"unix:{}\", {fields} }}]", socket.display());
    Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(upstream).rate("9/hour")])
}

fn settings(socket: &Path) -> ListenerSettings {
    let socket = socket.display();
    let text = format!("version: 1\nlisteners: [{{ address: \"unix:{socket}\" }}]\n");
    let settings = Settings::parse(Path::new("tollgate.yaml"), &text, &Sources::system());
    settings.unwrap_or_else(|problems| panic!("{}", problems[0])).listeners[0].clone()
}

fn ask(socket: &Path, fields: &str) -> String {
    last_request(&mut UnixStream::connect(socket).unwrap(), "/", fields).unwrap()
}

#[test]
fn clients_of_a_socket_are_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let socket = folder.path().join("tollgate.sock");
    let proxy = proxy(&upstream, &socket, "mode: \"0600\"");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    for used in 1..=2 {
        let answer = ask(&socket, "x-forwarded-for: 203.0.113.7\r\n");
        assert!(answer.contains(&format!("x-ratelimit-used: {used}\r\n")), "{answer}");
        assert_eq!(upstream.last().fields.one("x-forwarded-for"), Some("127.0.0.1"));
    }
    drop(proxy);
    assert!(!socket.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn trusted_clients_of_a_socket_name_the_client_they_forward_for() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let socket = folder.path().join("tollgate.sock");
    let _proxy = proxy(&upstream, &socket, "peers: trusted");
    for used in 1..=2 {
        let answer = ask(&socket, "x-forwarded-for: 203.0.113.7\r\n");
        assert!(answer.contains(&format!("x-ratelimit-used: {used}\r\n")), "{answer}");
    }
    assert_eq!(upstream.last().fields.one("x-forwarded-for"), Some("203.0.113.7, 127.0.0.1"));
    assert!(ask(&socket, "").contains("x-ratelimit-used: 1\r\n"));
}

#[test]
fn socket_without_a_listener_is_replaced_and_other_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tollgate.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let listener = Listener::bind(&settings(&socket)).unwrap();
    let error = Listener::bind(&settings(&socket)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    UnixStream::connect(&socket).unwrap();
    // Somebody else's by now.
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    drop(listener);
    UnixStream::connect(&socket).unwrap();
    drop(other);

    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    Listener::bind(&settings(&file)).unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}
