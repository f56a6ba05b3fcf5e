//! Sentinels: what they name as the primary, and how proxies hear of it. That a failover takes
//! place is decided by a fault; most of the Sentinels know it at once, as a quorum must.

use std::{cell::RefCell, rc::Rc, time::Duration};

use tokio::{task::spawn_local, time::sleep};

use crate::{
    chance::Chance,
    host::address_of,
    layout::{Layout, SERVICE},
    model::{Reply, Sentinel, Session, Watched},
    network::{Cable, Network},
    serving::{Service, accept},
    world::World,
};

/// A Sentinel on a machine of its own.
pub(crate) struct Watcher {
    sentinel: RefCell<Sentinel>,
}

impl Watcher {
    /// One that names the first server, and answers from now on.
    pub(crate) fn start(number: usize, seed: u64, network: &Network) -> Rc<Watcher> {
        let mut sentinel = Sentinel::new(address_of(number), seed);
        let first = Watched { primary: address_of(0), epoch: 0 };
        sentinel.services.insert(SERVICE.to_owned(), first);
        let watcher = Rc::new(Watcher { sentinel: RefCell::new(sentinel) });
        let accepted = network.listen(number);
        spawn_local(accept(Rc::clone(&watcher), accepted));
        watcher
    }

    /// Hears which server is primary since which epoch.
    fn hear(&self, (primary, epoch): (usize, u64)) {
        let mut sentinel = self.sentinel.borrow_mut();
        let known = sentinel.services.get_mut(SERVICE).expect("it watches this");
        if known.epoch < epoch {
            *known = Watched { primary: address_of(primary), epoch };
        }
    }
}

impl World {
    /// The Sentinels make a server primary. One of them may hear of it later, or when all is
    /// healed.
    pub(crate) fn name_primary(self: &Rc<Self>, number: usize, chance: &mut Chance) {
        if self.layout != Layout::Sentinels {
            return;
        }
        self.story.count("primaries named by sentinels");
        self.epoch.set(self.epoch.get() + 1);
        self.named.set(number);
        // What else is running follows it.
        let others = self.hosts.iter().filter(|host| host.number != number);
        others.filter(|host| host.follows.get().is_some()).for_each(|host| host.follow(number));
        let named = (number, self.epoch.get());
        let late = chance.is_one_in(2).then(|| chance.below(self.watchers.len()));
        for (at, watcher) in self.watchers.iter().enumerate() {
            if late != Some(at) {
                watcher.hear(named);
                continue;
            }
            self.story.count("sentinels that hear late");
            let later = chance.millis(1..5000);
            if chance.is_one_in(2) {
                spawn_local(hear_later(Rc::clone(watcher), named, later));
            }
        }
    }

    /// All Sentinels agree.
    pub(crate) fn heal_sentinels(&self) {
        let named = (self.named.get(), self.epoch.get());
        self.watchers.iter().for_each(|watcher| watcher.hear(named));
    }
}

async fn hear_later(watcher: Rc<Watcher>, named: (usize, u64), later: Duration) {
    sleep(later).await;
    watcher.hear(named);
}

impl Service for Watcher {
    fn connect(&self) -> Session {
        self.sentinel.borrow_mut().connect()
    }

    async fn answer(&self, session: &mut Session, _cable: &Cable, command: &[Vec<u8>]) -> Reply {
        self.sentinel.borrow().handle(session, command)
    }
}
