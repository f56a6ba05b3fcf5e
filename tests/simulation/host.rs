//! A machine with a Redis server: it accepts connections, and answers when it is not stopped. The
//! server itself is a model (`model`).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep},
};

use crate::{
    machine::MachineClock,
    model::{Address, Reply, Role, Server, Session},
    network::{Cable, Network, PATIENCE},
    serving::{Service, accept},
};

/// The machine of a server.
pub(crate) struct Machine {
    pub(crate) number: usize,
    /// Decides what the server makes up.
    pub(crate) seed: u64,
    pub(crate) clock: MachineClock,
}

/// A server on its machine.
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) server: RefCell<Server>,
    pub(crate) clock: MachineClock,
    network: Network,
    /// The process, while there is one.
    running: RefCell<Option<JoinHandle<()>>>,
    is_stopped: Cell<bool>,
    /// The server that it is a replica of.
    pub(crate) follows: Cell<Option<usize>>,
    /// Whether it has all that its primary had when it began to follow it.
    pub(crate) is_linked: Cell<bool>,
    /// Whether nothing of its primary comes.
    pub(crate) lags: Cell<bool>,
    /// Notified when it goes on.
    resumed: Notify,
    /// How long each command takes.
    pub(crate) slowness: Cell<Duration>,
    /// Notified when something may have to be replicated.
    written: Rc<Notify>,
}

impl Host {
    /// A server without data.
    pub(crate) fn new(machine: Machine, network: &Network, written: &Rc<Notify>) -> Rc<Host> {
        let Machine { number, seed, clock } = machine;
        Rc::new(Host {
            number,
            server: RefCell::new(Server::new(address_of(number), seed)),
            clock,
            network: network.clone(),
            running: RefCell::default(),
            is_stopped: Cell::new(false),
            follows: Cell::new(None),
            is_linked: Cell::new(false),
            lags: Cell::new(false),
            resumed: Notify::new(),
            slowness: Cell::default(),
            written: Rc::clone(written),
        })
    }

    /// Starts the process: from now on it accepts connections.
    pub(crate) fn start(self: &Rc<Self>) {
        let accepted = self.network.listen(self.number);
        let running = spawn_local(accept(Rc::clone(self), accepted));
        self.running.replace(Some(running));
    }

    /// Ends the process at once.
    pub(crate) fn kill(&self) {
        self.network.unplug(self.number);
        if let Some(running) = self.running.take() {
            running.abort();
        }
        self.resume();
    }

    /// Starts the process again, with all data or none.
    pub(crate) fn restart(self: &Rc<Self>, keeps_data: bool) {
        let mut server = self.server.borrow_mut();
        match keeps_data {
            true => server.sync_log(),
            false => server.lose_disk(),
        }
        server.restart(match self.follows.get() {
            None => Role::Primary,
            Some(primary) => Role::Replica { primary: address_of(primary), is_linked: false },
        });
        drop(server);
        self.is_linked.set(false);
        self.start();
        self.written.notify_one();
    }

    /// Makes it a primary.
    pub(crate) fn promote(&self) {
        self.follows.set(None);
        self.server.borrow_mut().promote();
    }

    /// Makes it a replica of another one.
    pub(crate) fn follow(&self, primary: usize) {
        self.follows.set(Some(primary));
        self.is_linked.set(false);
        self.server.borrow_mut().follow(address_of(primary));
        self.written.notify_one();
    }

    /// Whether it answers.
    pub(crate) fn is_awake(&self) -> bool {
        self.is_running() && !self.is_stopped.get()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.borrow().is_some()
    }

    /// Stops it (SIGSTOP): it answers nothing until it goes on.
    pub(crate) fn stop(&self) {
        self.is_stopped.set(true);
    }

    pub(crate) fn resume(&self) {
        self.is_stopped.set(false);
        self.resumed.notify_waiters();
        self.written.notify_one();
    }

    async fn until_free(&self, cable: &Cable) {
        let begun = Instant::now();
        if !self.slowness.get().is_zero() {
            sleep(self.slowness.get()).await;
        }
        while self.is_stopped.get() {
            self.resumed.notified().await;
        }
        if begun.elapsed() > PATIENCE {
            self.network.note_doubt(cable.proxy(), false);
        }
    }
}

/// The address of a server.
pub(crate) fn address_of(number: usize) -> Address {
    Address::new(&format!("redis-{number}"), 7000 + number as u16)
}

impl Service for Host {
    fn connect(&self) -> Session {
        self.server.borrow_mut().connect()
    }

    async fn answer(&self, session: &mut Session, cable: &Cable, command: &[Vec<u8>]) -> Reply {
        self.until_free(cable).await;
        let reply = self.server.borrow_mut().handle(self.clock.now(), session, command);
        self.written.notify_one();
        reply
    }
}
