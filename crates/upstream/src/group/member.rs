//! One address of one server: what it has to do, how it is, and what it has failed.

use std::{
    hash::Hasher,
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use siphasher::sip::SipHasher13;
use tollgate_policy::{Ejection, Server};

use super::Group;
use crate::{
    AnswerCounts,
    client_shares::{ClientShares, Share},
    ejection::{Eligibility, Record},
    health::Health,
    slots::Slots,
};

/// One address of one server, for as long as it is known to be one.
#[derive(Debug)]
pub struct Member {
    /// Where it is.
    pub address: SocketAddr,
    /// The server that it is an address of. Its weight is as it was at first: a change of that is
    /// the group's affair.
    pub server: Server,
    /// What callers are hashed with: the same at every proxy.
    pub(crate) name: u64,
    pub(crate) record: Record,
    pub(crate) health: Health,
    group: Weak<Group>,
    /// Connections that it has, of all workers.
    pub(crate) slots: Arc<Slots>,
    /// What clients use of it.
    pub(crate) shares: Arc<ClientShares>,
    /// Requests that it ever got, and those that are over: in flight is what is between. So both
    /// are known for the price of one.
    begun: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    ejected: AtomicU64,
    /// What it has answered.
    pub(crate) answers: AnswerCounts,
    has_left: AtomicBool,
}

/// One request among those that a member has, until this is dropped.
#[derive(Debug)]
pub struct Load {
    member: Arc<Member>,
    /// What its client uses of the member; none: it waits for that.
    share: Option<Share>,
}

impl Member {
    pub(crate) fn new(address: SocketAddr, server: &Server, group: &Arc<Group>) -> Arc<Member> {
        Arc::new(Member {
            address,
            server: server.clone(),
            name: hash(&address.to_string()),
            record: Record::new(Instant::now()),
            health: Health::default(),
            group: Arc::downgrade(group),
            slots: Arc::default(),
            shares: Arc::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            ejected: AtomicU64::new(0),
            answers: AnswerCounts::default(),
            has_left: AtomicBool::new(false),
        })
    }

    /// Counts a request until it is over.
    pub fn load(self: &Arc<Self>) -> Load {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Load { member: Arc::clone(self), share: None }
    }

    /// It has answered.
    pub fn succeed(&self) {
        if self.record.succeed(Instant::now)
            && let Some(group) = self.group.upgrade()
        {
            tracing::info!(upstream = %group.label(), server = %self.server, address = %self.address, "a server is back");
        }
    }

    /// It has failed a request: no connection, no response in time, a broken or unsound response,
    /// or one whose status counts as a failure.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(group) = self.group.upgrade() {
            group.judge(self, Instant::now());
        }
    }

    /// It is no address of its server any more, or its server belongs to the upstream no more.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Whether only requests from before that still need it: nothing is to be kept for others.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Requests that it has, of all workers.
    pub fn in_flight(&self) -> usize {
        // Read first: what ends in between has begun before.
        let ended = self.ended.load(Ordering::Relaxed);
        let in_flight = self.begun.load(Ordering::Relaxed).saturating_sub(ended);
        usize::try_from(in_flight).unwrap_or(usize::MAX)
    }

    /// Requests that it ever got.
    pub fn requests(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Requests that it ever failed.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// It is left out because it has failed requests.
    pub(crate) fn count_ejection(&self) {
        self.ejected.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was left out because it had failed requests.
    pub(crate) fn ejections(&self) -> u64 {
        self.ejected.load(Ordering::Relaxed)
    }

    /// Whether it is as a server should be, without a look at a clock.
    pub(crate) fn is_clean(&self) -> bool {
        self.health.is_good() && self.record.is_clean()
    }

    /// Whether it is left out, or to be tried, because it has failed requests.
    pub(crate) fn is_ejected(&self) -> bool {
        !self.record.is_clean()
    }

    /// Whether it may get a request: it is well, and not left out, but perhaps to be tried.
    pub(crate) fn is_usable(&self, now: Instant) -> bool {
        self.health.is_good() && self.record.eligibility(now) != Eligibility::Ejected
    }

    /// Has it get a request for which it was chosen. False if it was to be tried, and another
    /// request does that.
    pub(crate) fn admit(&self, now: Instant, ejection: Option<&Ejection>) -> bool {
        ejection.is_none_or(|rules| self.record.try_out(now, rules))
    }
}

impl Load {
    /// Who has the request.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// The request has got what it waited for.
    pub(crate) fn hold(&mut self, share: Share) {
        self.share = Some(share);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.member.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same in every process, and in every version: callers stay where they are.
fn hash(name: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(name.as_bytes());
    hasher.finish()
}
