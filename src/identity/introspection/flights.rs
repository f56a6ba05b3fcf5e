//! One call for all who ask the same at the same time.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use super::{Introspected, IntrospectionError};
use crate::identity::fetch::{FetchError, Fetcher};

type Answer = Result<Introspected, IntrospectionError>;

/// SHA-256 of a token.
type Name = [u8; 32];

/// The calls that are under way, by token. As many as the fetcher takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<Name, watch::Receiver<Option<Answer>>>>>);

impl Flights {
    /// The answer of the call for this token that is under way, or else of `call`, which then runs
    /// on the fetcher's thread: who asked first may go away without taking it from the others.
    pub(super) async fn share<F>(
        &self,
        fetcher: &Fetcher,
        name: Name,
        call: impl FnOnce() -> F,
    ) -> Answer
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let (mut answer, flight) = self.board(name);
        if let Some(flight) = flight {
            let call = call();
            fetcher.spawn(flight.fly(call));
        }
        match answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(answer)) => answer.clone(),
            _ => Err(FetchError::GivenUp.into()),
        }
    }

    /// Where the answer will be; and the flight, if it is a new one that has yet to start.
    fn board(&self, name: Name) -> (watch::Receiver<Option<Answer>>, Option<Flight>) {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = flights.get(&name) {
            return (answer.clone(), None);
        }
        let (sender, answer) = watch::channel(None);
        flights.insert(name, answer.clone());
        (answer, Some(Flight { flights: self.clone(), name, sender, result: None }))
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
    async fn fly(mut self, call: impl Future<Output = Answer>) {
        self.result = Some(call.await);
    }
}

impl Drop for Flight {
    /// Forgets the call before it tells the answer: who asks again then gets a new one.
    fn drop(&mut self) {
        self.flights.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        self.sender.send_replace(self.result.take());
    }
}
