//! All that is in a simulation: proxies, servers, the network between them, and what is known of
//! what has happened.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    gate::PolicyFile,
    host::Host,
    layout::Layout,
    ledger::Ledger,
    limits::Limit,
    network::Network,
    proxy::{Proxy, Recipe},
    sentinels::Watcher,
    story::Story,
};

pub(crate) struct World {
    pub(crate) begun: Instant,
    pub(crate) story: Story,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<Rc<Host>>,
    pub(crate) watchers: Vec<Rc<Watcher>>,
    /// The server that the Sentinels have made primary.
    pub(crate) named: Cell<usize>,
    /// Notified when something may have to be replicated.
    pub(crate) written: Rc<Notify>,
    pub(crate) layout: Layout,
    pub(crate) recipes: Vec<Recipe>,
    pub(crate) proxies: RefCell<Vec<Proxy>>,
    /// How often each proxy was started.
    pub(crate) lives: RefCell<Vec<u32>>,
    pub(crate) limits: Vec<[Limit; 2]>,
    /// The policy by which gates count the hourly limit, if callers ask them.
    pub(crate) policy: Option<PolicyFile>,
    pub(crate) ledger: RefCell<Ledger>,
    /// How long a decision may take.
    pub(crate) deadline: Duration,
    /// Charges of which proxies that have ended did not know whether they were taken.
    pub(crate) unknown: Cell<u64>,
    /// How often the slots of a cluster, or the primary of Sentinels, were announced.
    pub(crate) epoch: Cell<u64>,
    /// Slots that were moved to another pair of servers.
    pub(crate) moved_slots: RefCell<BTreeMap<usize, usize>>,
    /// Whether a server has lost what was written to it.
    pub(crate) has_lost_data: Cell<bool>,
    /// Whether a server was started again or replaced.
    pub(crate) was_replaced: Cell<bool>,
    /// Whether the clock of a server was set.
    pub(crate) has_set_clock: Cell<bool>,
    /// Whether a proxy was ended with charges that were not written yet.
    pub(crate) has_lost_pending: Cell<bool>,
}

impl World {
    /// How long the simulation has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Machines that proxies connect to.
    pub(crate) fn machines(&self) -> usize {
        self.hosts.len() + self.watchers.len()
    }

    /// Ends the process of a proxy at once.
    pub(crate) fn end_proxy(&self, number: usize) {
        let proxies = self.proxies.borrow();
        proxies[number].kill();
        // What it was about to give back, it does not.
        self.network.note_doubt(number, true);
        self.unknown.set(self.unknown.get() + proxies[number].unknown_charges());
        if proxies[number].stores().pending() > 0 {
            self.has_lost_pending.set(true);
        }
    }

    /// Starts a server again.
    pub(crate) fn restart_host(&self, number: usize, keeps_data: bool) {
        let host = &self.hosts[number];
        if host.is_running() {
            return;
        }
        let who = format!("server {number}");
        self.story.tell(&who, format_args!("starts again"));
        self.was_replaced.set(true);
        if !keeps_data {
            self.has_lost_data.set(true);
        }
        host.restart(keeps_data);
    }

    /// Starts a proxy in place of one that has ended.
    pub(crate) fn restart_proxy(&self, number: usize) {
        self.proxies.borrow_mut()[number] = self.recipes[number].start();
        self.lives.borrow_mut()[number] += 1;
    }
}
