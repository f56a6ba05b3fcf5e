//! The network between proxies and servers. Bytes of one connection arrive in order, each piece
//! after a delay of its own, so that connections overtake each other. Each direction between a
//! proxy and a server can be blocked: what is sent waits there, and arrives when it is unblocked,
//! unless the systems at both ends have given up before. Connections can be cut, also so that a
//! reply is lost that was on its way.

mod cable;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};
use tollgate_store::{OpeningStream, Stream};

pub(crate) use self::cable::{Accepted, Cable};
use crate::{chance::Chance, story::Story};

/// How long a system leaves what it has sent unacknowledged, as the settings of production do.
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);

/// What takes longer may come after the time that a proxy waits for the reply to an adjustment.
pub(crate) const PATIENCE: Duration = Duration::from_millis(400);

/// Bytes that a system takes before its peer has read any.
const BUFFER: usize = 1 << 16;

/// How long a piece takes, in microseconds.
const DELAY: Range<u64> = 50..600;

/// A proxy and a server.
pub(crate) type Link = (usize, usize);

/// The direction of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    ToServer,
    ToProxy,
}

#[derive(Clone)]
pub(crate) struct Network(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when a direction is unblocked.
    unblocked: Notify,
    story: Story,
    begun: Instant,
}

struct State {
    chance: Chance,
    /// How long each piece takes between these two beyond the usual delay.
    slow: BTreeMap<Link, Duration>,
    blocked: BTreeSet<(Link, Direction)>,
    /// Where servers accept connections. One that is not here refuses them.
    listeners: BTreeMap<usize, mpsc::UnboundedSender<Accepted>>,
    cables: Vec<Arc<Cable>>,
    doubts: Vec<Doubt>,
}

/// A moment in which a proxy cannot know what has become of what it has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub(crate) proxy: usize,
    /// When, since the simulation began.
    pub(crate) at: Duration,
    /// Whether the reply never comes.
    pub(crate) is_lost: bool,
}

impl Network {
    pub(crate) fn new(chance: Chance, story: Story) -> Network {
        let state = State {
            chance,
            slow: BTreeMap::new(),
            blocked: BTreeSet::new(),
            listeners: BTreeMap::new(),
            cables: Vec::new(),
            doubts: Vec::new(),
        };
        let (state, unblocked, begun) = (Mutex::new(state), Notify::new(), Instant::now());
        Network(Arc::new(Shared { state, unblocked, story, begun }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Lets a server accept connections.
    pub(crate) fn listen(&self, server: usize) -> mpsc::UnboundedReceiver<Accepted> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().listeners.insert(server, sender);
        receiver
    }

    /// Ends a server: its connections break, and it refuses new ones.
    pub(crate) fn unplug(&self, server: usize) {
        self.state().listeners.remove(&server);
        self.cut(|link| link.1 == server);
    }

    /// Cuts the connections that `is_meant`; returns how many there were.
    pub(crate) fn cut(&self, is_meant: impl Fn(Link) -> bool) -> usize {
        let state = self.state();
        let meant = state.cables.iter().filter(|cable| is_meant(cable.link()));
        meant.map(|cable| cable.cut()).count()
    }

    /// Lets the next reply on these connections be lost.
    pub(crate) fn lose_replies(&self, link: Link) {
        let state = self.state();
        state.cables.iter().filter(|cable| cable.link() == link).for_each(|it| it.lose_reply());
    }

    pub(crate) fn block(&self, link: Link, direction: Direction) {
        self.state().blocked.insert((link, direction));
    }

    pub(crate) fn unblock(&self, link: Link, direction: Direction) {
        self.state().blocked.remove(&(link, direction));
        self.0.unblocked.notify_waiters();
    }

    /// Makes what is sent between the two take longer by so much.
    pub(crate) fn slow_down(&self, link: Link, by: Duration) {
        self.state().slow.insert(link, by);
    }

    /// Unblocks all directions, and lets no link be slow.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.blocked.clear();
        state.slow.clear();
        drop(state);
        self.0.unblocked.notify_waiters();
    }

    /// Something that a proxy has sent is lost, or was answered late.
    pub(crate) fn note_doubt(&self, proxy: usize, is_lost: bool) {
        let at = self.0.begun.elapsed();
        self.state().doubts.push(Doubt { proxy, at, is_lost });
    }

    /// All that proxies cannot know.
    pub(crate) fn doubts(&self) -> Vec<Doubt> {
        self.state().doubts.clone()
    }

    /// How many connections a proxy has.
    pub(crate) fn connections_of(&self, proxy: usize) -> usize {
        self.state().cables.iter().filter(|cable| cable.proxy() == proxy).count()
    }

    fn delay(&self, link: Link) -> Duration {
        let mut state = self.state();
        let usual = Duration::from_micros(state.chance.within(DELAY));
        usual + state.slow.get(&link).copied().unwrap_or_default()
    }

    /// Waits while a direction is blocked; not for longer than a system waits for an answer.
    async fn passes(&self, link: Link, direction: Direction) -> bool {
        let until_unblocked = async {
            loop {
                let unblocked = self.0.unblocked.notified();
                if !self.state().blocked.contains(&(link, direction)) {
                    return;
                }
                unblocked.await;
            }
        };
        timeout(UNACKNOWLEDGED, until_unblocked).await.is_ok()
    }

    /// Opens a connection, as the transport of a store.
    pub(crate) fn open(&self, link: Link) -> OpeningStream {
        let network = self.clone();
        Box::pin(async move {
            sleep(network.delay(link)).await;
            for direction in [Direction::ToServer, Direction::ToProxy] {
                if !network.passes(link, direction).await {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            let (near, proxy_end) = duplex(BUFFER);
            let (far, server_end) = duplex(BUFFER);
            let cable = Arc::new(Cable::new(link));
            let accepted = Accepted { stream: server_end, cable: Arc::clone(&cable) };
            let mut state = network.state();
            let listener = state.listeners.get(&link.1);
            if listener.is_none_or(|listener| listener.send(accepted).is_err()) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            state.cables.push(Arc::clone(&cable));
            drop(state);
            tokio::spawn(network.clone().carry(cable, near, far));
            Ok(Box::new(proxy_end) as Box<dyn Stream>)
        })
    }

    /// Carries what is sent on a connection until one end closes it or it is cut.
    async fn carry(self, cable: Arc<Cable>, near: DuplexStream, far: DuplexStream) {
        let (from_proxy, to_proxy) = split(near);
        let (from_server, to_server) = split(far);
        let was_cut = tokio::select! {
            biased;
            () = cable.until_cut() => true,
            () = self.pump(&cable, Direction::ToServer, from_proxy, to_server) => false,
            () = self.pump(&cable, Direction::ToProxy, from_server, to_proxy) => false,
        };
        if cable.has_open_calls() {
            self.0.story.count("calls without a reply");
        }
        // A proxy may just be writing to a connection that is cut.
        if was_cut || cable.has_open_calls() {
            self.note_doubt(cable.proxy(), true);
        }
        self.state().cables.retain(|other| !Arc::ptr_eq(other, &cable));
    }

    async fn pump(
        &self,
        cable: &Cable,
        direction: Direction,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
    ) {
        let mut bytes = vec![0; BUFFER];
        loop {
            let Ok(length @ 1..) = from.read(&mut bytes).await else { return };
            let read = Instant::now();
            match direction {
                Direction::ToServer => cable.note_sent(length),
                Direction::ToProxy if cable.loses_reply() => {
                    self.0.story.count("replies lost");
                    return;
                }
                Direction::ToProxy => {}
            }
            sleep_until(read + self.delay(cable.link())).await;
            if !self.passes(cable.link(), direction).await {
                self.0.story.count("connections given up");
                return;
            }
            if read.elapsed() > PATIENCE {
                self.note_doubt(cable.proxy(), false);
            }
            if to.write_all(&bytes[..length]).await.is_err() {
                return;
            }
            if direction == Direction::ToProxy {
                cable.note_delivered(length);
            }
        }
    }
}
