//! Turns at asking one server: so many questions at once, and of these so many for one client.
//!
//! Whoever makes up tokens can have any number of questions asked. So a client holds no more than a
//! share of the turns, and the rest of its questions wait behind its own. Where turns are scarce,
//! clients get them in rotation, one each: nobody waits longer because somebody else asks more.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use http::Uri;
use tokio::{sync::oneshot, time::timeout};

/// Questions to a server at once.
const MAX_AT_ONCE: u32 = 256;
/// Of these, those of one client.
const SHARE: u32 = 16;
/// Questions of one client that wait. Clients together have no more than there are requests.
const MAX_WAITING: usize = 128;

/// The turns at every server that is being asked, by its URL: policies that ask the same server share
/// them.
#[derive(Default)]
pub(super) struct AllTurns(Mutex<HashMap<Uri, Weak<Turns>>>);

impl AllTurns {
    /// Those at the server with this URL.
    pub(super) fn at(&self, url: &Uri) -> Arc<Turns> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.get(url).and_then(Weak::upgrade) {
            return turns;
        }
        // Nobody asks the others, and so there is nothing to know about them.
        known.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::default();
        known.insert(url.clone(), Arc::downgrade(&turns));
        turns
    }
}

/// The turns at one server.
#[derive(Default)]
pub(in crate::identity) struct Turns(Mutex<Queues>);

/// Why a question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::identity) enum NoTurn {
    /// Its client has its share.
    Share,
    /// Other clients have all of them.
    Taken,
}

struct Queues {
    free: u32,
    clients: HashMap<u128, OneClient>,
    /// Clients that wait and have not their share yet, each once, in the order in which they get the
    /// next turns. Empty as long as a turn is free.
    rotation: VecDeque<u128>,
    /// How many have waited, which names the next one.
    waits: u64,
}

/// What one client has; forgotten when that is nothing.
#[derive(Default)]
struct OneClient {
    turns: u32,
    /// First come, first served.
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Default for Queues {
    fn default() -> Self {
        let (clients, rotation) = (HashMap::new(), VecDeque::new());
        Queues { free: MAX_AT_ONCE, clients, rotation, waits: 0 }
    }
}

impl Turns {
    /// A turn for a client, or a place in its queue.
    ///
    /// # Errors
    /// The client's queue is full.
    pub(in crate::identity) fn ask(self: &Arc<Self>, client: u128) -> Result<Place, NoTurn> {
        let mut queues = self.queues();
        let Queues { free, clients, rotation, waits } = &mut *queues;
        let one = clients.entry(client).or_default();
        if one.turns < SHARE && *free > 0 {
            one.turns += 1;
            *free -= 1;
            return Ok(Place::Turn(Turn { turns: Arc::clone(self), client }));
        }
        if one.waiting.len() >= MAX_WAITING {
            return Err(one.why_not());
        }
        if one.turns < SHARE && one.waiting.is_empty() {
            rotation.push_back(client);
        }
        let (sender, called) = oneshot::channel();
        *waits += 1;
        one.waiting.push_back((*waits, sender));
        Ok(Place::Queue(Waiting { turns: Arc::clone(self), client, number: *waits, called }))
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OneClient {
    fn why_not(&self) -> NoTurn {
        if self.turns >= SHARE { NoTurn::Share } else { NoTurn::Taken }
    }
}

impl Queues {
    /// Takes a client's turn back and gives it to whoever is next.
    fn give_back(&mut self, client: u128) {
        self.free += 1;
        if let Some(one) = self.clients.get_mut(&client) {
            let had_share = one.turns >= SHARE;
            one.turns -= 1;
            if had_share && !one.waiting.is_empty() {
                self.rotation.push_back(client);
            }
        }
        self.forget_idle(client);
        self.call_next();
    }

    /// Gives turns that are free to those who wait.
    fn call_next(&mut self) {
        while self.free > 0
            && let Some(client) = self.rotation.pop_front()
        {
            let Some(one) = self.clients.get_mut(&client) else { continue };
            let called = one.waiting.pop_front().is_some_and(|(_, sender)| sender.send(()).is_ok());
            if called {
                one.turns += 1;
                self.free -= 1;
            }
            if one.turns < SHARE && !one.waiting.is_empty() {
                self.rotation.push_back(client);
            }
        }
    }

    /// Takes one who waits out of the queue.
    fn leave(&mut self, client: u128, number: u64) {
        let Some(one) = self.clients.get_mut(&client) else { return };
        one.waiting.retain(|(own, _)| *own != number);
        if one.waiting.is_empty() {
            self.rotation.retain(|own| *own != client);
        }
        self.forget_idle(client);
    }

    fn forget_idle(&mut self, client: u128) {
        let is_idle = |one: &OneClient| one.turns == 0 && one.waiting.is_empty();
        if self.clients.get(&client).is_some_and(is_idle) {
            self.clients.remove(&client);
        }
    }
}

/// Permission to ask one question, until this is dropped.
pub(in crate::identity) struct Turn {
    turns: Arc<Turns>,
    client: u128,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.queues().give_back(self.client);
    }
}

/// What a client gets that asks for a turn. Whoever drops it leaves nothing behind.
pub(in crate::identity) enum Place {
    /// It has one.
    Turn(Turn),
    /// It waits for one.
    Queue(Waiting),
}

impl Place {
    /// The turn, for which this waits no longer than `patience`.
    ///
    /// # Errors
    /// It did not come in time.
    pub(in crate::identity) async fn turn(self, patience: Duration) -> Result<Turn, NoTurn> {
        let mut waiting = match self {
            Place::Turn(turn) => return Ok(turn),
            Place::Queue(waiting) => waiting,
        };
        match timeout(patience, &mut waiting.called).await {
            Ok(Ok(())) => Ok(Turn { turns: Arc::clone(&waiting.turns), client: waiting.client }),
            _ => Err(waiting.why_not()),
        }
    }
}

/// A place in a client's queue.
pub(in crate::identity) struct Waiting {
    turns: Arc<Turns>,
    client: u128,
    number: u64,
    /// Told under the lock when the turn is this one's.
    called: oneshot::Receiver<()>,
}

impl Waiting {
    fn why_not(&self) -> NoTurn {
        self.turns.queues().clients.get(&self.client).map_or(NoTurn::Taken, OneClient::why_not)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut queues = self.turns.queues();
        // Called, and gone before it heard of that.
        match self.called.try_recv() {
            Ok(()) => queues.give_back(self.client),
            Err(_) => queues.leave(self.client, self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has a client ask so often; all of it has to be given.
    fn ask(turns: &Arc<Turns>, client: u128, times: u32) -> Vec<Place> {
        (0..times).map(|_| turns.ask(client).unwrap()).collect()
    }

    fn turns_of(turns: &Turns, client: u128) -> u32 {
        turns.queues().clients.get(&client).map_or(0, |one| one.turns)
    }

    fn is_waiting(place: &Place) -> bool {
        matches!(place, Place::Queue(_))
    }

    #[test]
    fn client_has_no_more_than_its_share_and_others_have_theirs() {
        let turns = Arc::<Turns>::default();
        let flood = ask(&turns, 1, SHARE + MAX_WAITING as u32);
        assert_eq!(flood.iter().filter(|place| is_waiting(place)).count(), MAX_WAITING);
        assert!(matches!(turns.ask(1), Err(NoTurn::Share)));
        let others = ask(&turns, 2, SHARE);
        assert!(!others.iter().any(is_waiting));
        drop((flood, others));
        let queues = turns.queues();
        assert_eq!((queues.free, queues.clients.len(), queues.rotation.len()), (MAX_AT_ONCE, 0, 0));
    }

    #[test]
    fn scarce_turns_go_round() {
        let turns = Arc::<Turns>::default();
        let full = u128::from(MAX_AT_ONCE / SHARE);
        let mut held: Vec<_> = (0..full).map(|client| ask(&turns, client, SHARE)).collect();
        // One that asks much, and two that ask little and later.
        let mut waiting = ask(&turns, 100, MAX_WAITING as u32);
        assert!(matches!(turns.ask(100), Err(NoTurn::Taken)));
        let few = [ask(&turns, 101, 1), ask(&turns, 102, 1)];
        held[0].truncate(SHARE as usize - 3);
        assert_eq!([100, 101, 102].map(|client| turns_of(&turns, client)), [1, 1, 1]);
        // What a client that has left would have had goes to the next.
        drop(few);
        assert_eq!([100, 101, 102].map(|client| turns_of(&turns, client)), [3, 0, 0]);
        waiting.clear();
        held.clear();
        assert_eq!(turns.queues().free, MAX_AT_ONCE);
    }

    #[test]
    fn share_that_is_used_up_stands_in_nobodys_way() {
        let turns = Arc::<Turns>::default();
        let mut flood = ask(&turns, 1, SHARE + 2);
        let full = u128::from(MAX_AT_ONCE / SHARE);
        let _held: Vec<_> = (2..=full).map(|client| ask(&turns, client, SHARE)).collect();
        let other = ask(&turns, 100, 1);
        assert!(is_waiting(&other[0]));
        // The client that has its share waits too, but is not in the rotation.
        flood.remove(0);
        assert_eq!((turns_of(&turns, 1), turns_of(&turns, 100)), (SHARE - 1, 1));
        drop(other);
        assert_eq!(turns_of(&turns, 1), SHARE);
    }

    #[tokio::test]
    async fn whoever_waits_is_called_or_told_why_not() {
        let turns = Arc::<Turns>::default();
        let mut held = ask(&turns, 1, SHARE);
        let late = turns.ask(1).unwrap();
        assert_eq!(late.turn(Duration::ZERO).await.err(), Some(NoTurn::Share));
        let called = turns.ask(1).unwrap();
        held.pop();
        let turn = called.turn(Duration::MAX).await.unwrap();
        assert_eq!(turns_of(&turns, 1), SHARE);
        drop((turn, held));
        assert_eq!(turns.queues().free, MAX_AT_ONCE);
    }

    #[test]
    fn turns_are_those_of_the_server_as_long_as_somebody_asks_it() {
        let all = AllTurns::default();
        let (one, other) = (Uri::from_static("https://a.b/"), Uri::from_static("https://c.d/"));
        let turns = all.at(&one);
        assert!(Arc::ptr_eq(&turns, &all.at(&one)));
        drop(turns);
        assert_eq!(turns_of(&all.at(&other), 1), 0);
        assert_eq!(all.0.lock().unwrap().len(), 1);
    }
}
