//! The servers of an upstream, as all workers see them: where they are, how they are, how much they
//! have to do. Kept for as long as a policy names them, whatever else of it changes.

mod member;
mod member_set;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::timeout};

pub use self::member::{Load, Member};
use tollgate_observe::metrics::Shards;
use tollgate_policy::{Server, Upstream};

use self::member_set::MemberSet;
use super::{
    answers::{UpstreamCounters, UpstreamTotal},
    health::{Probe, ProbeError},
    report::{MemberReport, ServerReport},
    resolve::Lookups,
    unread::Unread,
};

/// The servers of an upstream.
#[derive(Debug)]
pub struct Group {
    /// What logs call it.
    label: Box<str>,
    /// What requests read.
    member_set: ArcSwap<MemberSet>,
    /// Requests that were given out, where they are given out in turns.
    turn: AtomicUsize,
    /// What reloads and lookups change.
    book: Mutex<Book>,
    /// Whether each name was looked up at least once, whatever came of it.
    is_settled: watch::Sender<bool>,
    /// No policy in force has it.
    is_retired: AtomicBool,
    /// Held by who leaves a server out: no two may be the last one's end at once.
    judging: Mutex<()>,
    /// What workers count.
    counters: Shards<UpstreamCounters>,
    /// What is held of its responses for clients that do not read them.
    unread: Arc<Unread>,
}

/// What a server is chosen by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'r> {
    /// Affinity hash of the caller.
    pub caller: u128,
    /// Those that have failed this request already: another one is better.
    pub tried: &'r [Arc<Member>],
}

#[derive(Debug)]
struct Book {
    upstream: Upstream,
    listings: Vec<Listing>,
}

/// A server, and what is known of it.
#[derive(Debug)]
struct Listing {
    server: Server,
    members: Vec<Arc<Member>>,
    /// None: the server is an address.
    lookups: Option<Lookups>,
    /// Of members that are no more: what is counted of a server never goes down.
    requests: u64,
    failures: u64,
    ejections: u64,
    answers: [u64; 6],
}

impl Group {
    /// The servers of `upstream`. Their names are not known yet: see [`Keeper`](super::Keeper).
    pub fn new(upstream: &Upstream) -> Arc<Group> {
        Group::labelled(&upstream.name, upstream)
    }

    pub(super) fn labelled(label: &str, upstream: &Upstream) -> Arc<Group> {
        let book = Book { upstream: upstream.clone(), listings: Vec::new() };
        let group = Arc::new(Group {
            label: label.into(),
            member_set: ArcSwap::default(),
            turn: AtomicUsize::new(0),
            book: Mutex::new(book),
            is_settled: watch::Sender::default(),
            is_retired: AtomicBool::new(false),
            judging: Mutex::default(),
            counters: Shards::default(),
            unread: Arc::default(),
        });
        group.update(upstream);
        group
    }

    /// What is held of its responses for clients.
    pub(super) fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    /// Chooses the member of a request; none if no address of any server is known.
    ///
    /// To wait for an address, see [`Group::resolved`]. The caller reports the result with
    /// [`Member::succeed`] or [`Member::fail`], unless it says nothing about the server: a
    /// client that goes away is not the server's fault.
    pub fn choose(&self, choice: Choice<'_>) -> Option<Arc<Member>> {
        self.choose_at(choice, Instant::now)
    }

    pub(super) fn choose_at(
        &self,
        choice: Choice<'_>,
        now: impl FnOnce() -> Instant,
    ) -> Option<Arc<Member>> {
        let member_set = self.member_set.load();
        match &*member_set.members {
            [] => None,
            // The usual case needs no clock: there is no other member to choose.
            [only] => Some(Arc::clone(only)),
            _ => member_set.choose(choice, &self.turn, now()).cloned(),
        }
    }

    /// Waits until names were looked up for the first time, but not longer than `max_wait`. Returns
    /// whether there is a member to choose now.
    pub async fn resolved(&self, max_wait: Duration) -> bool {
        let has_members = || !self.member_set.load().members.is_empty();
        if has_members() {
            return true;
        }
        let mut settled = self.is_settled.subscribe();
        let _ = timeout(max_wait, settled.wait_for(|is_settled| *is_settled)).await;
        has_members()
    }

    /// Whether only requests from before a reload still need it: nothing is to be kept for others.
    pub fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// It is in no policy any more.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// What logs call it.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Whether its servers are spoken to as those of `upstream`: only then can they be the same.
    pub(super) fn speaks_like(&self, upstream: &Upstream) -> bool {
        let own = &self.book.lock().upstream;
        own.transport == upstream.transport && own.protocol == upstream.protocol
    }

    /// Does from now on as `upstream` says. Servers that stay keep all that is known about them.
    pub(super) fn update(self: &Arc<Self>, upstream: &Upstream) {
        let mut book = self.book.lock();
        let mut known = std::mem::take(&mut book.listings);
        book.upstream = upstream.clone();
        let now = Instant::now();
        for server in &upstream.servers {
            let is_same = |listing: &Listing| is_same_place(&listing.server, server);
            let mut listing = match known.iter().position(is_same) {
                Some(at) => known.swap_remove(at),
                None => Listing::new(server, self),
            };
            listing.server = server.clone();
            if let Some(lookups) = &mut listing.lookups {
                lookups.hasten(now, upstream.resolve_every);
            }
            book.listings.push(listing);
        }
        known.iter().flat_map(|listing| &listing.members).for_each(|member| member.leave());
        let members = || book.listings.iter().flat_map(|listing| &listing.members);
        if upstream.health_check.is_none() {
            members().for_each(|member| member.health.forget());
        }
        if upstream.ejection.is_none() {
            members().for_each(|member| member.record.forget());
        }
        let probe = Probe::of(upstream).map(Arc::new);
        self.publish(book, probe);
    }

    /// Whether the keeper has work with it: names to look up, or health checks.
    pub(super) fn needs_care(&self) -> bool {
        let book = self.book.lock();
        book.upstream.health_check.is_some()
            || book.listings.iter().any(|listing| listing.lookups.is_some())
    }

    /// Names that are to be looked up now, with their ports.
    pub(super) fn begin_lookups(&self, now: Instant) -> Vec<(Box<str>, u16)> {
        let mut book = self.book.lock();
        let due = book.listings.iter_mut().filter_map(|listing| {
            let is_due = listing.lookups.as_mut()?.begin_if_due(now);
            is_due.then(|| (listing.server.host.clone(), listing.server.port))
        });
        due.collect()
    }

    /// Takes note of what came of a lookup.
    pub(super) fn end_lookup(
        self: &Arc<Self>,
        host: &str,
        port: u16,
        found: &io::Result<Vec<SocketAddr>>,
        now: Instant,
    ) {
        let mut book = self.book.lock();
        let every = book.upstream.resolve_every;
        let mut has_changed = false;
        for listing in &mut book.listings {
            let Some(lookups) = &mut listing.lookups else { continue };
            if (&*listing.server.host, listing.server.port) != (host, port) {
                continue;
            }
            let is_news = lookups.end(now, found.is_ok(), every);
            match found {
                Ok(addresses) => has_changed |= listing.has_moved_to(addresses, self),
                Err(error) if is_news => {
                    tracing::warn!(upstream = %self.label, %host, %error, "a server's name cannot be resolved");
                }
                Err(_) => {}
            }
        }
        if has_changed {
            let probe = self.member_set.load().probe.clone();
            self.publish(book, probe);
        } else {
            self.settle(&book);
        }
    }

    /// Members that are to be asked for their health now, and what.
    pub(super) fn begin_checks(
        &self,
        now: Instant,
        chance: impl Fn() -> u64,
    ) -> Option<(Arc<Probe>, Vec<Arc<Member>>)> {
        let member_set = self.member_set.load();
        let probe = member_set.probe.as_ref()?;
        let is_due =
            |member: &&Arc<Member>| member.health.begin_if_due(now, chance(), &probe.check);
        let due = member_set.members.iter().filter(is_due).cloned().collect();
        Some((Arc::clone(probe), due))
    }

    /// Takes note of a member's answer to a probe: none, or what is wrong.
    pub(super) fn note(&self, member: &Member, probe: &Probe, symptom: Option<ProbeError>) {
        // A member that is no longer probed is not judged by an earlier probe.
        let is_asked = self.member_set.load().probe.is_some();
        if !is_asked || !member.health.note(symptom.is_none(), &probe.check) {
            return;
        }
        let upstream = &self.label;
        let server = &member.server;
        let address = member.address;
        match symptom {
            Some(error) => {
                tracing::warn!(%upstream, %server, %address, %error, "a server is left out: it is not healthy");
            }
            None => tracing::info!(%upstream, %server, %address, "a server is healthy again"),
        }
    }

    /// A member has failed a request: it may be left out for that.
    pub(super) fn judge(&self, member: &Member, now: Instant) {
        let member_set = self.member_set.load();
        let Some(rules) = &member_set.ejection else { return };
        let _judging = self.judging.lock();
        let left_out = member.record.fail(now, rules, || !member_set.can_spare(member, rules));
        if let Some(time) = left_out {
            member.count_ejection();
            let time = humantime::format_duration(time);
            tracing::warn!(upstream = %self.label, server = %member.server, address = %member.address, %time, "a server is left out: it has failed requests");
        }
    }

    /// Counters for a worker of its own.
    pub(super) fn take_counters(&self) -> Arc<UpstreamCounters> {
        self.counters.take()
    }

    /// What workers have counted.
    pub(super) fn total(&self) -> UpstreamTotal {
        self.counters.read(|all| UpstreamTotal::of(all.iter().map(|own| &**own)))
    }

    /// How its servers are.
    pub(super) fn report(&self, now: Instant) -> Vec<ServerReport> {
        let book = self.book.lock();
        let report = |listing: &Listing| ServerReport {
            server: listing.server.to_string(),
            requests: listing.requests + listing.sum(Member::requests),
            failures: listing.failures + listing.sum(Member::failures),
            ejections: listing.ejections + listing.sum(Member::ejections),
            answers: listing.all_answers(),
            members: listing.members.iter().map(|member| MemberReport::of(member, now)).collect(),
        };
        book.listings.iter().map(report).collect()
    }

    /// Lets requests see what is in the book, and holds its members to its bounds: requests from
    /// before a reload are held to them, too.
    fn publish(&self, book: MutexGuard<'_, Book>, probe: Option<Arc<Probe>>) {
        for member in book.listings.iter().flat_map(|listing| &listing.members) {
            member.slots.bound(&book.upstream.bounds);
            member.shares.bound(&book.upstream.bounds);
        }
        let seats = book.listings.iter().flat_map(|listing| {
            let weight = f64::from(listing.server.weight.get());
            let each = weight / listing.members.len().max(1) as f64;
            listing.members.iter().map(move |member| (Arc::clone(member), each))
        });
        let Upstream { balance, ejection, .. } = &book.upstream;
        let member_set = MemberSet::new(seats.collect(), *balance, ejection.clone(), probe);
        // Still locked: an older book must not be published after this one.
        self.member_set.store(Arc::new(member_set));
        self.settle(&book);
    }

    fn settle(&self, book: &Book) {
        let has_ended = |listing: &Listing| listing.lookups.as_ref().is_none_or(Lookups::has_ended);
        self.is_settled.send_replace(book.listings.iter().all(has_ended));
    }
}

impl Listing {
    fn new(server: &Server, group: &Arc<Group>) -> Listing {
        let address = server.host.parse::<IpAddr>().ok();
        let member = address
            .map(|address| Member::new(SocketAddr::new(address, server.port), server, group));
        Listing {
            server: server.clone(),
            lookups: member.is_none().then(Lookups::default),
            members: member.into_iter().collect(),
            requests: 0,
            failures: 0,
            ejections: 0,
            answers: [0; 6],
        }
    }

    /// Has a member for each of these addresses, and for no others. Whether that is a change.
    fn has_moved_to(&mut self, addresses: &[SocketAddr], group: &Arc<Group>) -> bool {
        let is_same = self.members.iter().map(|member| &member.address).eq(addresses);
        if is_same {
            return false;
        }
        let mut known = std::mem::take(&mut self.members);
        for address in addresses {
            let same = known.iter().position(|member| member.address == *address);
            self.members.push(match same {
                Some(at) => known.swap_remove(at),
                None => Member::new(*address, &self.server, group),
            });
        }
        for gone in &known {
            self.requests += gone.requests();
            self.failures += gone.failures();
            self.ejections += gone.ejections();
            add(&mut self.answers, gone.answers.get());
            gone.leave();
        }
        tracing::info!(upstream = %group.label, server = %self.server, ?addresses, "a server's addresses have changed");
        true
    }

    fn all_answers(&self) -> [u64; 6] {
        let mut all = self.answers;
        self.members.iter().for_each(|member| add(&mut all, member.answers.get()));
        all
    }

    fn sum(&self, number: impl Fn(&Member) -> u64) -> u64 {
        self.members.iter().map(|member| number(member)).sum()
    }
}

fn add(all: &mut [u64; 6], some: [u64; 6]) {
    all.iter_mut().zip(some).for_each(|(sum, number)| *sum += number);
}

/// Whether it is the same server, whatever its weight.
fn is_same_place(one: &Server, other: &Server) -> bool {
    (&one.host, one.port, &one.authority) == (&other.host, other.port, &other.authority)
}

#[cfg(test)]
mod tests;
