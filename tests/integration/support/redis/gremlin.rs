//! A bad network: it stands between a client and a server, and breaks what a test wants broken.

use std::{
    io::{Read, Write},
    mem,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::super::upstream::pass_on;

/// Passes on all bytes in both directions, until its mood is changed.
pub(crate) struct Gremlin {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    server: SocketAddr,
    mood: Mutex<Mood>,
    /// Notified of each change of mood.
    changed: Condvar,
}

#[derive(Default)]
struct Mood {
    is_stalled: bool,
    /// Whether a request came since then.
    has_kept: bool,
    /// Whether what the server answers stays here.
    keeps_answers: bool,
    is_stopping: bool,
    refuses: bool,
    /// How long each piece of an answer takes.
    delay: Duration,
    /// So many bytes of answers still pass; the next one breaks its connection.
    left: Option<usize>,
    /// How many connections there were.
    connections: usize,
    /// Both ends of the connections that are open, or were since the last cut.
    sockets: Vec<TcpStream>,
}

impl Gremlin {
    /// Stands before the server on this port.
    pub(crate) fn before(port: u16) -> Gremlin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let shared = Arc::new(Shared { server, mood: Mutex::default(), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let acceptor = Some(thread::spawn(move || accept(&listener, &theirs)));
        Gremlin { address, shared, acceptor }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.mood.lock().unwrap().connections
    }

    /// Cuts all connections that there are.
    pub(crate) fn cut(&self) {
        self.shared.change(Mood::cut);
    }

    /// Cuts the connection that has the next answer when so many bytes of it have passed. After
    /// no byte: the server has run the command, and the client gets no reply.
    pub(crate) fn cut_answer_after(&self, bytes: usize) {
        self.shared.change(|mood| mood.left = Some(bytes));
    }

    /// Keeps everything to itself from now on; connections stay open, and new ones are taken.
    pub(crate) fn stall(&self) {
        self.shared.change(|mood| (mood.is_stalled, mood.has_kept) = (true, false));
    }

    /// Holds back answers from now on: the server runs the commands, and the client gets no reply.
    pub(crate) fn keep_answers(&self) {
        self.shared.change(|mood| mood.keeps_answers = true);
    }

    /// Whether it keeps something that the client has sent.
    pub(crate) fn has_kept(&self) -> bool {
        self.shared.mood.lock().unwrap().has_kept
    }

    /// Cuts all connections, and each new one at once.
    pub(crate) fn refuse(&self) {
        self.shared.change(|mood| {
            mood.refuses = true;
            mood.cut();
        });
    }

    /// Lets each answer wait for so long.
    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.change(|mood| mood.delay = delay);
    }

    /// Passes everything on again, first of all what it has kept.
    pub(crate) fn behave(&self) {
        self.shared.change(|mood| {
            (mood.is_stalled, mood.keeps_answers, mood.refuses) = (false, false, false);
            (mood.delay, mood.left) = (Duration::ZERO, None);
        });
    }
}

impl Drop for Gremlin {
    fn drop(&mut self) {
        self.shared.change(|mood| {
            mood.is_stopping = true;
            mood.cut();
        });
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            pass_on(acceptor.join());
        }
    }
}

impl Mood {
    fn cut(&mut self) {
        for socket in mem::take(&mut self.sockets) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Mood)) {
        change(&mut self.mood.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits while no request may pass.
    fn wait(&self) {
        let is_stalled = |mood: &mut Mood| mood.is_stalled && !mood.is_stopping;
        drop(self.changed.wait_while(self.mood.lock().unwrap(), is_stalled).unwrap());
    }

    /// Waits while no answer may pass.
    fn wait_to_answer(&self) {
        let is_kept =
            |mood: &mut Mood| (mood.is_stalled || mood.keeps_answers) && !mood.is_stopping;
        drop(self.changed.wait_while(self.mood.lock().unwrap(), is_kept).unwrap());
    }

    /// Waits as long as an answer takes.
    fn linger(&self) {
        let mood = self.mood.lock().unwrap();
        let delay = mood.delay;
        let is_slow = |mood: &mut Mood| !mood.delay.is_zero() && !mood.is_stopping;
        drop(self.changed.wait_timeout_while(mood, delay, is_slow).unwrap());
    }

    /// How many of these bytes of an answer pass; its connection breaks if not all do.
    fn allowed(&self, bytes: usize) -> usize {
        let left = &mut self.mood.lock().unwrap().left;
        match *left {
            Some(few) if few < bytes => left.take().unwrap_or_default(),
            Some(enough) => {
                *left = Some(enough - bytes);
                bytes
            }
            None => bytes,
        }
    }

    /// Takes a connection on, unless it is not to be.
    fn admit(&self, client: &TcpStream, server: &TcpStream) -> bool {
        let mut mood = self.mood.lock().unwrap();
        mood.connections += 1;
        if mood.refuses || mood.is_stopping {
            return false;
        }
        mood.sockets.extend([client, server].map(|socket| socket.try_clone().unwrap()));
        true
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut pipes = Vec::new();
    loop {
        let (client, _) = listener.accept().unwrap();
        if shared.mood.lock().unwrap().is_stopping {
            break;
        }
        // No server is there: the client's connection is closed again.
        let Ok(server) = TcpStream::connect(shared.server) else { continue };
        for socket in [&client, &server] {
            socket.set_nodelay(true).unwrap();
        }
        if shared.admit(&client, &server) {
            let ends = [&client, &server].map(|socket| socket.try_clone().unwrap());
            let requests = Arc::clone(shared);
            let answers = Arc::clone(shared);
            pipes.push(thread::spawn(move || pass_requests(client, server, &requests)));
            pipes.push(thread::spawn(move || pass_answers(ends, &answers)));
        }
    }
    pipes.into_iter().for_each(|pipe| pass_on(pipe.join()));
}

fn pass_requests(mut client: TcpStream, mut server: TcpStream, shared: &Shared) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        shared.change(|mood| mood.has_kept = mood.is_stalled);
        shared.wait();
        if server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

fn pass_answers([mut client, mut server]: [TcpStream; 2], shared: &Shared) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        shared.linger();
        shared.wait_to_answer();
        let allowed = shared.allowed(count);
        if client.write_all(&bytes[..allowed]).is_err() || allowed < count {
            break;
        }
    }
    for socket in [client, server] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
