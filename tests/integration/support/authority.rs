//! A fake identity server: publishes keys that the test changes, its metadata, and what it knows of
//! opaque tokens; and fails as the test says.

mod key;
mod tls;
mod wire;

use std::{
    collections::HashMap,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
};

use serde_json::{Value, json};

pub(crate) use self::{key::IssuerKey, wire::Asked};
use self::{
    tls::Certificate,
    wire::{Line, respond},
};
use super::{PATIENCE, Signal, upstream::pass_on};

/// Where its keys are.
pub(crate) const JWKS: &str = "/jwks";
/// Where its metadata is.
pub(crate) const METADATA: &str = "/.well-known/openid-configuration";
/// Where it is asked about tokens.
pub(crate) const INTROSPECTION: &str = "/introspect";

/// A server on a port of its own, with TLS or without.
pub(crate) struct Authority {
    address: SocketAddr,
    certificate: Option<Arc<Certificate>>,
    known: Arc<Known>,
    acceptor: Option<JoinHandle<()>>,
}

/// What it does instead of answering as usual.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Answers with this status and nothing else.
    Status(u16),
    /// Answers 200 with this body, whatever it is.
    Body(Vec<u8>),
    /// Answers 302 with this location.
    Redirect(String),
    /// Answers nothing until it is given up.
    Hang,
    /// Closes the connection.
    Close,
    /// Answers as usual once this is open.
    Held(Signal),
    /// The same for requests with this in their body; answers others as usual.
    HeldFor(&'static str, Signal),
}

#[derive(Default)]
struct Known {
    state: Mutex<State>,
    /// Notified of each request.
    asked: Condvar,
}

#[derive(Default)]
struct State {
    issuer: String,
    jwks: String,
    tokens: HashMap<String, Value>,
    answers: HashMap<String, Answer>,
    requests: Vec<Asked>,
    sockets: Vec<TcpStream>,
    is_stopping: bool,
}

impl Authority {
    /// Speaks plain HTTP, has no keys and knows no tokens.
    pub(crate) fn start() -> Authority {
        Authority::start_with(None)
    }

    /// The same over TLS, with a certificate of an authority that no system trusts.
    pub(crate) fn start_tls() -> Authority {
        Authority::start_with(Some(Arc::new(Certificate::new())))
    }

    fn start_with(certificate: Option<Arc<Certificate>>) -> Authority {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let known = Arc::<Known>::default();
        let theirs = Arc::clone(&known);
        let shown = certificate.clone();
        let acceptor = thread::spawn(move || accept(&listener, &theirs, shown.as_ref()));
        let authority = Authority { address, certificate, known, acceptor: Some(acceptor) };
        authority.state().issuer = authority.url("");
        authority.publish(&[]);
        authority
    }

    /// The URL of a path on it.
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// What its metadata says that it is: its URL without a path.
    pub(crate) fn issuer(&self) -> String {
        self.url("")
    }

    /// A PEM file with the certificate of that authority.
    pub(crate) fn ca_file(&self) -> String {
        self.certificate.as_ref().expect("it speaks TLS").ca_file()
    }

    /// Publishes these keys in place of all others.
    pub(crate) fn publish(&self, keys: &[&IssuerKey]) {
        let keys: Vec<&Value> = keys.iter().map(|key| key.jwk()).collect();
        self.state().jwks = json!({ "keys": keys }).to_string();
    }

    /// Knows this opaque token as good, and says this of it.
    pub(crate) fn know_token(&self, token: &str, claims: Value) {
        self.state().tokens.insert(token.to_owned(), claims);
    }

    /// Knows it no more.
    pub(crate) fn forget_token(&self, token: &str) {
        self.state().tokens.remove(token);
    }

    /// Does this from now on when it is asked for this path.
    pub(crate) fn answer(&self, path: &str, answer: Answer) {
        self.state().answers.insert(path.to_owned(), answer);
    }

    /// Answers as usual again.
    pub(crate) fn answer_as_usual(&self, path: &str) {
        self.state().answers.remove(path);
    }

    /// How often it was asked for this path.
    pub(crate) fn count(&self, path: &str) -> usize {
        count(&self.state(), path)
    }

    /// Waits until it was asked so often for this path.
    pub(crate) fn wait_for(&self, path: &str, times: usize) {
        let is_missing = |state: &mut State| count(state, path) < times;
        let waited =
            self.known.asked.wait_timeout_while(self.state(), PATIENCE, is_missing).unwrap();
        assert!(!waited.1.timed_out(), "{path} was not asked for {times} times");
    }

    /// What it was asked last.
    pub(crate) fn last(&self) -> Asked {
        self.state().requests.last().expect("it was asked for something").clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.known.state.lock().unwrap()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        if let Ok(mut state) = self.known.state.lock() {
            state.is_stopping = true;
        }
        drop(TcpStream::connect(self.address));
        pass_on(acceptor.join());
    }
}

fn count(state: &State, path: &str) -> usize {
    state.requests.iter().filter(|asked| asked.path == path).count()
}

fn accept(listener: &TcpListener, known: &Arc<Known>, certificate: Option<&Arc<Certificate>>) {
    let mut connections = Vec::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        let mut state = known.state.lock().unwrap();
        if state.is_stopping {
            break;
        }
        state.sockets.push(stream.try_clone().unwrap());
        drop(state);
        let known = Arc::clone(known);
        let certificate = certificate.cloned();
        connections.push(thread::spawn(move || {
            let line = match &certificate {
                None => Line::plain(stream),
                Some(certificate) => certificate.accept(stream),
            };
            serve(line, &known);
        }));
    }
    for socket in &known.state.lock().unwrap().sockets {
        let _ = socket.shutdown(Shutdown::Both);
    }
    connections.into_iter().for_each(|connection| pass_on(connection.join()));
}

fn serve(mut line: Line, known: &Known) {
    while let Some(asked) = line.read() {
        let mut state = known.state.lock().unwrap();
        let answer = state.answers.get(&asked.path).cloned();
        state.requests.push(asked.clone());
        known.asked.notify_all();
        drop(state);
        match answer {
            Some(Answer::Close) => return line.close(),
            Some(Answer::Hang) => return line.wait_for_close(),
            Some(Answer::Status(status)) => line.write(respond(status, "", b"")),
            Some(Answer::Body(body)) => line.write(respond(200, "", &body)),
            Some(Answer::Redirect(to)) => {
                line.write(respond(302, &format!("location: {to}\r\n"), b""));
            }
            Some(Answer::Held(signal)) => {
                signal.wait();
                line.write(usual(&asked, known));
            }
            Some(Answer::HeldFor(text, signal)) => {
                if asked.body.contains(text) {
                    signal.wait();
                }
                line.write(usual(&asked, known));
            }
            None => line.write(usual(&asked, known)),
        }
    }
}

fn usual(asked: &Asked, known: &Known) -> Vec<u8> {
    let state = known.state.lock().unwrap();
    let document = match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", JWKS) => state.jwks.clone(),
        ("GET", METADATA) => {
            let issuer = &state.issuer;
            json!({ "issuer": issuer, "jwks_uri": format!("{issuer}{JWKS}") }).to_string()
        }
        ("POST", INTROSPECTION) => introspect(asked, &state.tokens).to_string(),
        _ => return respond(404, "", b""),
    };
    respond(200, "content-type: application/json\r\n", document.as_bytes())
}

/// What is known of the token in a form; tokens of tests need no decoding.
fn introspect(asked: &Asked, tokens: &HashMap<String, Value>) -> Value {
    let token = asked.body.split('&').find_map(|field| field.strip_prefix("token="));
    let Some(claims) = token.and_then(|token| tokens.get(token)) else {
        return json!({ "active": false });
    };
    let mut answer = json!({ "active": true });
    answer.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
    answer
}
