//! A fake upstream: answers what it is told to, and remembers what it was asked.

use std::{
    any::Any,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    panic::resume_unwind,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{
    ClosedPort, PATIENCE, Signal,
    wire::{Fields, Length, Wire},
};

/// What it answers unless told otherwise.
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";

/// A server on a port of its own.
pub(crate) struct Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
    acceptor: Option<JoinHandle<()>>,
    /// Its port, where nobody listens.
    _closed: Option<ClosedPort>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Received>>,
    /// Told of each request.
    asked: Condvar,
    sockets: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    is_stopping: AtomicBool,
}

/// A request as it came from the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
}

/// One request on its connection, for a script to answer.
pub(crate) struct Exchange<'c> {
    pub(crate) request: Received,
    /// How many requests came on this connection, with this one.
    pub(crate) number: usize,
    /// Its place among all requests.
    index: usize,
    seen: &'c Seen,
    wire: &'c mut Wire,
    is_closing: bool,
}

type Script = dyn Fn(&mut Exchange<'_>) + Send + Sync;

impl Upstream {
    /// Answers everything with 200 and `ok`.
    pub(crate) fn start() -> Upstream {
        Upstream::answering(OK)
    }

    /// Answers everything with these bytes.
    pub(crate) fn answering(response: impl Into<String>) -> Upstream {
        let response = response.into();
        Upstream::scripted(move |exchange| exchange.write(&response))
    }

    /// Has `script` answer, once a request was read whole. A proxy that gives a request up closes
    /// the connection inside its body: then there is nothing to answer.
    pub(crate) fn scripted(script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Upstream {
        Upstream::scripted_at_head(move |exchange| {
            if exchange.read_body_unless_closed() {
                script(exchange);
            } else {
                exchange.is_closing = true;
            }
        })
    }

    /// Has `script` answer as soon as a head was read.
    pub(crate) fn scripted_at_head(
        script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let theirs = Arc::clone(&seen);
        let acceptor = thread::spawn(move || accept(&listener, &theirs, &Arc::new(script)));
        Upstream { address, seen, acceptor: Some(acceptor), _closed: None }
    }

    /// Opens `asked` when `/held` was asked for, and answers that with 304 when `go` is open;
    /// answers everything else with 200 at once.
    pub(crate) fn holding_unchanged(asked: &Signal, go: &Signal) -> Upstream {
        let asked = asked.clone();
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            if exchange.request.target == "/held" {
                asked.open();
                go.wait();
                exchange.write("HTTP/1.1 304 Not Modified\r\n\r\n");
            } else {
                exchange.answer_ok();
            }
        })
    }

    /// Opens `asked` when a request has come, and answers when `go` is open.
    pub(crate) fn held(asked: &Signal, go: &Signal) -> Upstream {
        let asked = asked.clone();
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            asked.open();
            go.wait();
            exchange.answer_ok();
        })
    }

    /// Answers as a request asks it to: with the status of its `x-want-status`, and with its
    /// `x-want-cost` as `x-cost`.
    pub(crate) fn as_asked() -> Upstream {
        Upstream::scripted(|exchange| {
            let fields = &exchange.request.fields;
            let status = fields.one("x-want-status").unwrap_or("200");
            let length = if status == "304" { "" } else { "content-length: 0\r\n" };
            let costs = fields.all("x-want-cost").into_iter();
            let costs: String = costs.map(|cost| format!("X-Cost: {cost}\r\n")).collect();
            let response = format!("HTTP/1.1 {status} As asked\r\n{costs}{length}\r\n");
            exchange.write(response);
        })
    }

    /// Begins a body for each request, opens `begun`, and ends all bodies when `go` is open.
    pub(crate) fn streaming(begun: &Signal, go: &Signal) -> Upstream {
        let begun = begun.clone();
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n");
            begun.open();
            go.wait();
            exchange.write("3\r\nllo\r\n0\r\n\r\n");
        })
    }

    /// Agrees to switch to whatever protocol it is asked for, and sends back what it gets until
    /// that ends. Answers everything else with 200.
    pub(crate) fn echoing() -> Upstream {
        Upstream::scripted(|exchange| match exchange.request.fields.one("upgrade") {
            Some(protocol) => {
                exchange.write(format!(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                     upgrade: {protocol}\r\n\r\n"
                ));
                exchange.echo();
            }
            None => exchange.answer_ok(),
        })
    }

    /// Never answers, and waits until it is given up.
    pub(crate) fn silent() -> Upstream {
        Upstream::scripted(|exchange| exchange.wait_for_close())
    }

    /// Nobody listens there.
    pub(crate) fn refusing() -> Upstream {
        let port = ClosedPort::take();
        let address = port.address();
        Upstream { address, seen: Arc::default(), acceptor: None, _closed: Some(port) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, each from its head on.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.requests.lock().unwrap().len()
    }

    /// Waits until it was asked for so many.
    pub(crate) fn wait_for(&self, requests: usize) {
        let guard = self.seen.requests.lock().unwrap();
        let is_missing = |seen: &mut Vec<Received>| seen.len() < requests;
        let waited = self.seen.asked.wait_timeout_while(guard, PATIENCE, is_missing).unwrap();
        assert!(!waited.1.timed_out(), "{requests} requests did not come");
    }

    /// The latest request.
    pub(crate) fn last(&self) -> Received {
        self.requests().pop().expect("the upstream was asked for something")
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.seen.is_stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        pass_on(acceptor.join());
    }
}

/// Fails the test that a fake's thread has failed for.
pub(super) fn pass_on<T>(joined: Result<T, Box<dyn Any + Send>>) {
    if let Err(panic) = joined
        && !thread::panicking()
    {
        resume_unwind(panic);
    }
}

fn accept<S>(listener: &TcpListener, seen: &Arc<Seen>, script: &Arc<S>)
where
    S: Fn(&mut Exchange<'_>) + Send + Sync + 'static,
{
    let mut connections = Vec::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        if seen.is_stopping.load(Ordering::SeqCst) {
            break;
        }
        seen.connections.fetch_add(1, Ordering::SeqCst);
        seen.sockets.lock().unwrap().push(stream.try_clone().unwrap());
        let seen = Arc::clone(seen);
        let script = Arc::clone(script);
        connections.push(thread::spawn(move || serve(Wire::new(stream), &seen, &*script)));
    }
    for socket in seen.sockets.lock().unwrap().iter() {
        let _ = socket.shutdown(Shutdown::Both);
    }
    connections.into_iter().for_each(|connection| pass_on(connection.join()));
}

fn serve(mut wire: Wire, seen: &Seen, script: &Script) {
    let mut number = 0;
    while wire.wait_for_more() {
        let Some((start, fields)) = wire.read_head() else { return };
        let words: Vec<&str> = start.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else { panic!("not a request: {start}") };
        let request = Received {
            method: method.to_owned(),
            target: target.to_owned(),
            fields,
            body: Vec::new(),
            trailers: Fields::default(),
        };
        let index = seen.note(request.clone());
        number += 1;
        let mut exchange =
            Exchange { request, number, index, seen, wire: &mut wire, is_closing: false };
        script(&mut exchange);
        if exchange.is_closing {
            return;
        }
    }
}

impl Seen {
    fn note(&self, request: Received) -> usize {
        let mut requests = self.requests.lock().unwrap();
        requests.push(request);
        self.asked.notify_all();
        requests.len() - 1
    }
}

impl Exchange<'_> {
    /// Reads the rest of the request, and remembers it with its body.
    pub(crate) fn read_body(&mut self) {
        assert!(self.read_body_unless_closed(), "the connection was closed inside a body");
    }

    /// Reads the rest of the request, and remembers it with its body; false if the connection was
    /// closed before its end.
    fn read_body_unless_closed(&mut self) -> bool {
        let fields = &self.request.fields;
        let length = match (fields.one("content-length"), fields.one("transfer-encoding")) {
            (None, None) => Length::Nothing,
            (Some(bytes), None) => Length::Bytes(bytes.parse().unwrap()),
            (None, Some("chunked")) => Length::Chunked,
            _ => panic!("a request of ambiguous length was forwarded:\n{fields:?}"),
        };
        if !matches!(length, Length::Nothing) {
            let Some((body, trailers)) = self.wire.read_body_unless_closed(length) else {
                return false;
            };
            self.request.body = body;
            self.request.trailers = trailers;
        }
        self.seen.requests.lock().unwrap()[self.index] = self.request.clone();
        true
    }

    /// The next chunk of the request's body; none at its end.
    pub(crate) fn read_chunk(&mut self) -> Option<Vec<u8>> {
        self.wire.read_chunk()
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.write(bytes.as_ref());
    }

    /// Answers 200 and `ok`.
    pub(crate) fn answer_ok(&mut self) {
        self.write(OK);
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        let _ = self.wire.stream().shutdown(Shutdown::Both);
        self.is_closing = true;
    }

    /// Sends back what comes until nothing more does, and closes the connection.
    pub(crate) fn echo(&mut self) {
        while self.wire.wait_for_more() {
            let some = self.wire.read_some();
            self.wire.write(&some);
        }
        self.close();
    }

    /// So many bytes of what is no HTTP any more.
    pub(crate) fn read_bytes(&mut self, bytes: usize) -> Vec<u8> {
        self.wire.read_exact(bytes)
    }

    /// All of them until the proxy closes the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        self.wire.read_to_end()
    }

    /// Waits until the proxy has closed the connection.
    pub(crate) fn wait_for_close(&mut self) {
        self.wire.read_to_end();
    }
}
