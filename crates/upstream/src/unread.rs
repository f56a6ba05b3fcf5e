//! What the proxy holds of an upstream's responses for clients that do not read them, and which of
//! them is broken off when that is too much.
//!
//! A client that stops reading costs a server a stream or a connection, which is bounded too, and
//! the proxy what has come of the response: a window of HTTP/2, or what was read at once of
//! HTTP/1.1. The windows towards the server are as wide as one fast response needs, and together as
//! wide as all of a connection's, so that no client's stream waits for what another client does not
//! read. Therefore the sum is bounded here: of an upstream, and of an address by half of that. Past
//! it, the response is broken off that has waited for its client for longest; where an address
//! holds too much, the one of that address. A client that reads, though slowly, is the last to be.
//!
//! A response counts while it is its client's turn, from a part that it was given until it asks for
//! the next. All workers share one list: the response that has waited for longest may be another
//! worker's.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    task::Context,
};

use parking_lot::Mutex;

use super::downstream::CutOff;

/// What is held of an upstream's responses for clients that do not read them.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// The responses that wait, by when they began to.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    bytes: u64,
    /// Bytes of each address that holds some.
    of_clients: HashMap<u128, u64>,
}

#[derive(Debug)]
struct Waiting {
    client: Option<u128>,
    bytes: u64,
    cut_off: Arc<CutOff>,
}

/// A response, and whether it is its client's turn.
#[derive(Debug)]
pub(super) struct ClientTurn {
    unread: Arc<Unread>,
    /// The number of the client's address; none: it is not bounded.
    client: Option<u128>,
    /// What may be held in all.
    max: u64,
    /// Its number among those that wait; none: it does not.
    number: Option<u64>,
}

/// What a response takes besides its bytes.
const OVERHEAD: u64 = 4 * 1024;

/// An address may have one part in so many.
const PART_OF_A_CLIENT: u64 = 2;

impl Unread {
    /// A response for `client`, where `max` bytes may be held for all.
    pub(super) fn turn(self: &Arc<Self>, client: Option<u128>, max: u64) -> ClientTurn {
        ClientTurn { unread: Arc::clone(self), client, max, number: None }
    }
}

impl Held {
    /// Adds one. Returns its number, and takes out those that are to be broken off.
    fn add(&mut self, response: Waiting, max: u64, cut: &mut Vec<Waiting>) -> u64 {
        let (number, client) = (self.next, response.client);
        self.next = number.wrapping_add(1);
        self.bytes += response.bytes;
        if let Some(client) = client {
            let of_client = self.of_clients.entry(client).or_default();
            *of_client += response.bytes;
            let excess = of_client.saturating_sub(max / PART_OF_A_CLIENT);
            self.waiting.insert(number, response);
            self.take_oldest(excess, |other| other == Some(client), cut);
        } else {
            self.waiting.insert(number, response);
        }
        self.take_oldest(self.bytes.saturating_sub(max), |_| true, cut);
        number
    }

    /// Takes out those that have waited for longest, until so much less is held.
    fn take_oldest(
        &mut self,
        mut excess: u64,
        is_meant: impl Fn(Option<u128>) -> bool,
        cut: &mut Vec<Waiting>,
    ) {
        while excess > 0 {
            let mut meant = self.waiting.iter().filter(|(_, response)| is_meant(response.client));
            let Some(number) = meant.next().map(|(number, _)| *number) else { return };
            let Some(response) = self.remove(number) else { return };
            excess = excess.saturating_sub(response.bytes);
            cut.push(response);
        }
    }

    /// Takes one out, unless that was done.
    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let response = self.waiting.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(response.bytes);
        if let Some(client) = response.client
            && let Some(of_client) = self.of_clients.get_mut(&client)
        {
            *of_client = of_client.saturating_sub(response.bytes);
            if *of_client == 0 {
                self.of_clients.remove(&client);
            }
        }
        Some(response)
    }
}

impl ClientTurn {
    /// It is the client's turn, while at most so many bytes are held for it.
    pub(super) fn begin(&mut self, bytes: u64, cut_off: &Arc<CutOff>, context: &Context<'_>) {
        if self.number.is_some() {
            return;
        }
        cut_off.watch(context);
        let bytes = bytes.saturating_add(OVERHEAD);
        let response = Waiting { client: self.client, bytes, cut_off: Arc::clone(cut_off) };
        let mut cut = Vec::new();
        self.number = Some(self.unread.0.lock().add(response, self.max, &mut cut));
        cut.iter().for_each(|response| response.cut_off.cut());
    }

    /// The client asks for the next part.
    pub(super) fn end(&mut self) {
        if let Some(number) = self.number.take() {
            let removed = self.unread.0.lock().remove(number);
            drop(removed);
        }
    }
}

impl Drop for ClientTurn {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const KIB: u64 = 1024;

    /// Responses of a client that begin to wait, each of 64 KiB in all.
    fn stall(unread: &Arc<Unread>, client: u128, count: usize) -> Vec<(ClientTurn, Arc<CutOff>)> {
        let begin = || {
            let mut turn = unread.turn(Some(client), 1024 * KIB);
            let cut_off = Arc::default();
            turn.begin(60 * KIB, &cut_off, &Context::from_waker(Waker::noop()));
            (turn, cut_off)
        };
        (0..count).map(|_| begin()).collect()
    }

    fn cut(responses: &[(ClientTurn, Arc<CutOff>)]) -> Vec<usize> {
        let cut = responses.iter().enumerate().filter(|(_, (_, cut_off))| cut_off.is_cut());
        cut.map(|(place, _)| place).collect()
    }

    #[test]
    fn oldest_of_an_address_are_cut_beyond_its_half() {
        let unread = Arc::<Unread>::default();
        let other = stall(&unread, 1, 8);
        let greedy = stall(&unread, 2, 11);
        assert_eq!((cut(&other), cut(&greedy)), (vec![], vec![0, 1, 2]));
    }

    #[test]
    fn oldest_of_all_are_cut_beyond_the_whole() {
        let unread = Arc::<Unread>::default();
        let clients: Vec<_> = (0..6).map(|client| stall(&unread, client, 3)).collect();
        let cut: Vec<_> = clients.iter().map(|responses| cut(responses)).collect();
        assert_eq!(cut[0], [0, 1]);
        assert!(cut[1..].iter().all(Vec::is_empty), "{cut:?}");
    }

    #[test]
    fn response_that_goes_on_waits_anew() {
        let unread = Arc::<Unread>::default();
        let mut responses = stall(&unread, 1, 8);
        let (turn, cut_off) = &mut responses[0];
        turn.end();
        turn.begin(60 * KIB, cut_off, &Context::from_waker(Waker::noop()));
        let _more = stall(&unread, 1, 1);
        assert_eq!(cut(&responses), [1]);
    }

    #[test]
    fn nothing_is_left_of_what_has_ended() {
        let unread = Arc::<Unread>::default();
        drop((stall(&unread, 1, 30), stall(&unread, 2, 30)));
        let held = unread.0.lock();
        assert!(held.waiting.is_empty() && held.of_clients.is_empty());
        assert_eq!(held.bytes, 0);
    }

    #[test]
    fn address_that_is_not_known_is_bounded_with_all_only() {
        let unread = Arc::<Unread>::default();
        let context = Context::from_waker(Waker::noop());
        let responses: Vec<_> = (0..17)
            .map(|_| {
                let (mut turn, cut_off) = (unread.turn(None, 1024 * KIB), Arc::default());
                turn.begin(60 * KIB, &cut_off, &context);
                (turn, cut_off)
            })
            .collect();
        assert_eq!(cut(&responses), [0]);
    }
}
