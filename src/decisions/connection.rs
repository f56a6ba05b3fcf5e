//! One connection: read, reply to every command that has come, write once, and again.
//!
//! A connection that waits holds no buffers: input is read into one that all share, and only what
//! is left of a command, or could not be sent, is kept. While replies are not taken nothing is
//! read, so a slow reader holds itself and nobody else.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    sync::watch,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tollgate_clock::Clock;
use tollgate_gate::Gate;
use tollgate_observe::metrics::CommandTotals;
use tollgate_wire::resp::Replies;

use super::{
    Engine, Served, Session,
    engine::MAX_REPLIES,
    named::{NamedCommand, Outcome},
    stream::{OpenClient, Shown, Stream, gone, try_write},
};

/// What the connections of a listener share, in one thread.
pub(super) struct Desk {
    pub(super) bench: RefCell<Bench>,
    /// Decides by the policies.
    pub(super) gate: Gate,
    pub(super) clock: Clock,
}

/// Where commands are replied to; borrowed for one turn, and never across a wait.
pub(super) struct Bench {
    pub(super) engine: Engine,
    input: Box<[u8]>,
    replies: Replies,
}

/// Bytes that are read at once.
const INPUT: usize = 64 * 1024;

/// How long a client may take for a command that it has begun.
const COMMAND_TIME: Duration = Duration::from_secs(10);

/// How long a connection may be silent between two commands.
const IDLE_TIME: Duration = Duration::from_secs(3600);

/// How long a client may take nothing of the replies that wait.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// How long, and how many bytes, a client may go on sending after the last reply. Without that the
/// system could discard that reply.
const LAST_TIME: Duration = Duration::from_secs(1);
const LAST_BYTES: u64 = 1 << 20;

const NOT_GOOD: &[u8] = b"-DENIED the client's certificate is no longer valid\r\n";

impl Desk {
    /// Adds what was counted since the last time to what all listeners have counted.
    pub(super) fn publish(&self, published: &mut CommandTotals) {
        let totals = self.bench.borrow().engine.totals();
        self.gate.shared().commands.add(totals, *published);
        *published = totals;
    }
}

impl Bench {
    pub(super) fn new(engine: Engine) -> Bench {
        let input = vec![0; INPUT].into_boxed_slice();
        Bench { engine, input, replies: Replies::default() }
    }
}

/// Serves a client until it goes, or has to.
pub(super) async fn serve(
    (OpenClient { stream, shown }, address): (OpenClient, IpAddr),
    id: i64,
    desk: Rc<Desk>,
    mut draining: watch::Receiver<bool>,
) {
    desk.bench.borrow_mut().engine.connections += 1;
    let _counted = ConnectionCount(Rc::clone(&desk));
    let session = Session::new(id);
    let mut client =
        Client { stream, shown, address, session, desk, waiting: Vec::new(), unsent: Vec::new() };
    let mut deadline = Instant::now() + client.patience(false);
    // No command of a stranger moves its deadline.
    let mut is_stranger = !client.is_known();
    let mut timer = pin!(sleep_until(deadline));
    let mut drained = pin!(draining.wait_for(|is_draining| *is_draining));
    let mut is_draining = false;
    let mut was_partial = false;
    loop {
        let turn = tokio::select! {
            biased;
            turn = poll_fn(|context| client.poll_turn(context)) => turn,
            _ = &mut drained, if !is_draining => {
                is_draining = true;
                continue;
            }
            // What has come was served, as this is looked at last.
            () = std::future::ready(()), if is_draining => return,
            () = &mut timer => {
                if Instant::now() >= deadline {
                    return;
                }
                timer.as_mut().reset(deadline);
                continue;
            }
        };
        let Ok(Some(served)) = turn else { return };
        let finished = match is_stranger {
            true => timeout_at(deadline, client.finish_turn(served)).await,
            false => Ok(client.finish_turn(served).await),
        };
        let Ok(Ok(served)) = finished else { return };
        if served.ends {
            return client.part().await;
        }
        let was_stranger = std::mem::replace(&mut is_stranger, !client.is_known());
        let is_same_command = was_partial && served.is_partial && served.taken == 0;
        if was_stranger && is_stranger {
            // It may send faster than the timer is looked at.
            if Instant::now() >= deadline {
                return;
            }
        } else if !is_same_command {
            deadline = Instant::now() + client.patience(served.is_partial);
            if deadline < timer.deadline() {
                timer.as_mut().reset(deadline);
            }
        }
        was_partial = served.is_partial;
    }
}

struct Client {
    stream: Stream,
    shown: Option<Box<Shown>>,
    /// Of the client.
    address: IpAddr,
    session: Session,
    desk: Rc<Desk>,
    /// Input that is not served yet.
    waiting: Vec<u8>,
    /// Replies that could not be sent yet.
    unsent: Vec<u8>,
}

impl Client {
    /// Reads once and serves what has come. None: the client has gone.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Served>>> {
        let desk = Rc::clone(&self.desk);
        let bench = &mut *desk.bench.borrow_mut();
        let mut read = ReadBuf::new(&mut bench.input);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        let length = read.filled().len();
        let Some(input) = bench.input.get(..length).filter(|input| !input.is_empty()) else {
            return Poll::Ready(Ok(None));
        };
        let Bench { engine, replies, .. } = bench;
        let now = desk.clock.now();
        if self.shown.as_ref().is_some_and(|shown| !shown.is_good(now)) {
            self.unsent.extend_from_slice(NOT_GOOD);
            return Poll::Ready(Ok(Some(Served { ends: true, ..Served::default() })));
        }
        let served = if self.waiting.is_empty() {
            let served = engine.serve(&mut self.session, input, replies, now);
            self.waiting = self.session.take_begun();
            self.waiting.extend_from_slice(input.get(served.taken..).unwrap_or_default());
            served
        } else {
            self.waiting.extend_from_slice(input);
            let served = engine.serve(&mut self.session, &self.waiting, replies, now);
            self.done_with(served.taken);
            served
        };
        Poll::Ready(self.send(replies).map(|()| Some(served)))
    }

    /// Sends what could not be sent at once, and serves what had to wait for that.
    async fn finish_turn(&mut self, first: Served) -> io::Result<Served> {
        let mut served = first;
        loop {
            self.send_rest().await?;
            if served.is_named {
                self.have_decided().await?;
                self.send_rest().await?;
            }
            if served.ends || served.is_partial || self.waiting.is_empty() {
                return Ok(served);
            }
            // Others come between two buffers full of replies.
            tokio::task::yield_now().await;
            let desk = Rc::clone(&self.desk);
            let Bench { engine, replies, .. } = &mut *desk.bench.borrow_mut();
            let now = desk.clock.now();
            served = engine.serve(&mut self.session, &self.waiting, replies, now);
            self.done_with(served.taken);
            self.send(replies)?;
        }
    }

    /// Has the policies decide about what came, and replies in its order. The client may go away
    /// meanwhile: then nobody waits for room any more.
    async fn have_decided(&mut self) -> io::Result<()> {
        let desk = Rc::clone(&self.desk);
        let (commands, taken) = desk.bench.borrow_mut().engine.named(&self.waiting);
        self.done_with(taken);
        let outcomes = tokio::select! {
            outcomes = decided(&commands, &desk.gate, self.address) => outcomes,
            error = gone(&self.stream) => return Err(error),
        };
        let Bench { replies, .. } = &mut *desk.bench.borrow_mut();
        replies.speak(self.session.protocol());
        for (command, outcome) in commands.iter().zip(&outcomes) {
            command.reply(outcome, replies);
        }
        self.send(replies)
    }

    fn done_with(&mut self, taken: usize) {
        let begun = self.session.take_begun();
        self.waiting.splice(..taken.min(self.waiting.len()), begun);
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
    }

    /// Sends what the system takes now, and keeps the rest.
    fn send(&mut self, replies: &mut Replies) -> io::Result<()> {
        let bytes = replies.as_bytes();
        let sent = match bytes {
            [] => Ok(0),
            bytes => try_write(&self.stream, bytes),
        };
        if let Ok(sent) = sent {
            self.unsent.extend_from_slice(bytes.get(sent..).unwrap_or_default());
        }
        replies.clear(2 * MAX_REPLIES);
        sent.map(drop)
    }

    async fn send_rest(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while let Some(rest) = self.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match timeout(WRITE_TIME, self.stream.write(rest)).await.map_err(io::Error::from)?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                more => sent += more,
            }
        }
        if sent > 0 {
            self.unsent = Vec::new();
            // TLS may have kept some of it.
            timeout(WRITE_TIME, self.stream.flush()).await.map_err(io::Error::from)??;
        }
        Ok(())
    }

    /// Whether it has said the password, if there is one.
    fn is_known(&self) -> bool {
        self.desk.bench.borrow().engine.may_ask(&self.session)
    }

    /// How long it may take from here on.
    fn patience(&self, is_partial: bool) -> Duration {
        match (self.is_known(), is_partial) {
            // As for the first request of a connection elsewhere.
            (false, _) => self.desk.gate.shared().timeouts.head,
            (true, true) => COMMAND_TIME,
            (true, false) => IDLE_TIME,
        }
    }

    /// Ends a connection whose client may still be sending.
    async fn part(mut self) {
        let rest = async {
            self.stream.shutdown().await?;
            tokio::io::copy(&mut (&mut self.stream).take(LAST_BYTES), &mut tokio::io::sink()).await
        };
        let _ = timeout(LAST_TIME, rest).await;
    }
}

/// A connection that there is.
struct ConnectionCount(Rc<Desk>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        if let Ok(mut bench) = self.0.bench.try_borrow_mut() {
            bench.engine.connections = bench.engine.connections.saturating_sub(1);
        }
    }
}

/// The outcomes of commands that came in one piece: together where their order makes no difference,
/// else one after another.
async fn decided(commands: &[NamedCommand], gate: &Gate, address: IpAddr) -> Vec<Outcome> {
    if NamedCommand::may_run_together(commands) {
        return join_all(commands.iter().map(|command| command.run(gate, address))).await;
    }
    let mut outcomes = Vec::with_capacity(commands.len());
    for command in commands {
        outcomes.push(command.run(gate, address).await);
    }
    outcomes
}
