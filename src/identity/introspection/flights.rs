//! One call for all who ask the same at the same time.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use super::{Introspected, IntrospectionError};
use crate::identity::fetch::{FetchError, Fetcher, Place, Turn, Turns};

type Answer = Result<Introspected, IntrospectionError>;

/// SHA-256 of a token.
type Name = [u8; 32];

/// How often somebody joins calls of others that end without an answer for him.
const MAX_TRIES: usize = 4;

/// The calls that are under way or wait for their turn, by token.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<Name, watch::Sender<Option<Answer>>>>>);

/// A token that is asked about.
pub(super) struct Question<'q> {
    /// The token.
    pub(super) name: Name,
    /// Whose turn it takes.
    pub(super) client: u128,
    /// The turns of the server that is asked.
    pub(super) turns: &'q Arc<Turns>,
    /// How long it may wait for one.
    pub(super) patience: Duration,
}

impl Flights {
    /// The answer of the call for this token that is under way, or else of `call`, which then runs
    /// on the fetcher's thread: who asked first may go away without taking it from the others. A call
    /// that nobody waits for any more ends.
    pub(super) async fn share<F>(
        &self,
        fetcher: &Fetcher,
        question: Question<'_>,
        call: impl Fn(Turn) -> F + Clone + Send + 'static,
    ) -> Answer
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        for _ in 0..MAX_TRIES {
            let (mut answer, flight) = self.board(&question)?;
            let is_own = flight.is_some();
            if let Some((flight, place)) = flight {
                fetcher.spawn(flight.fly(place, question.patience, call.clone()));
            }
            match answer.wait_for(Option::is_some).await.as_deref() {
                // Of the client that asked first.
                Ok(Some(Err(IntrospectionError::Crowded))) if !is_own => {}
                Ok(Some(answer)) => return answer.clone(),
                _ if is_own => break,
                // It ended because nobody waited for it, just before this one did.
                _ => {}
            }
        }
        Err(FetchError::GivenUp.into())
    }

    /// Where the answer will be; and the flight, if it is a new one that has yet to start, with its
    /// place among those who wait for a turn.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once, by its one user")]
    fn board(
        &self,
        question: &Question<'_>,
    ) -> Result<(watch::Receiver<Option<Answer>>, Option<(Flight, Place)>), IntrospectionError>
    {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = flights.get(&question.name) {
            return Ok((sender.subscribe(), None));
        }
        let place = question.turns.ask(question.client)?;
        let (sender, answer) = watch::channel(None);
        flights.insert(question.name, sender.clone());
        let flight = Flight { flights: self.clone(), name: question.name, sender, result: None };
        Ok((answer, Some((flight, place))))
    }
}

/// A call that others may join until this is dropped.
struct Flight {
    flights: Flights,
    name: Name,
    sender: watch::Sender<Option<Answer>>,
    result: Option<Answer>,
}

impl Flight {
    async fn fly<F>(mut self, place: Place, patience: Duration, call: impl FnOnce(Turn) -> F)
    where
        F: Future<Output = Answer>,
    {
        let asked = async { call(place.turn(patience).await?).await };
        tokio::select! {
            biased;
            () = self.sender.closed() => {}
            answer = asked => self.result = Some(answer),
        }
    }
}

impl Drop for Flight {
    /// Forgets the call before it tells the answer: who asks again then gets a new one.
    fn drop(&mut self) {
        self.flights.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        self.sender.send_replace(self.result.take());
    }
}
