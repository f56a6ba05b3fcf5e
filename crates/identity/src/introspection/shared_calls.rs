//! One introspection call for all requests that show the same token at the same time.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{IntrospectionError, IntrospectionResponse};
use crate::fetch::{FairLimiter, FetchError, Fetcher, Permit, PermitRequest};

type CallResult = Result<IntrospectionResponse, IntrospectionError>;

/// SHA-256 of a token.
type TokenDigest = [u8; 32];

/// How often a request joins calls that other requests have begun and that end without a response
/// for it.
const MAX_TRIES: usize = 4;

/// The calls that are under way or wait for a permit, by token.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedCalls(Arc<Mutex<HashMap<TokenDigest, watch::Sender<Option<CallResult>>>>>);

/// A token to introspect.
pub(super) struct TokenQuery<'q> {
    pub(super) token: TokenDigest,
    /// The client that takes the permit.
    pub(super) client: u128,
    /// Gives out the permits of the server.
    pub(super) limiter: &'q Arc<FairLimiter>,
    /// How long the call may wait for a permit.
    pub(super) permit_timeout: Duration,
}

impl SharedCalls {
    /// The result of the running call for this token, if there is one, or else of `call`. A call
    /// runs on the fetcher's thread, so that it continues for the other requests if the request
    /// that began it ends. A call ends when no request waits for its result any more.
    pub(super) async fn share<F>(
        &self,
        fetcher: &Fetcher,
        query: TokenQuery<'_>,
        call: impl Fn(Permit) -> F + Clone + Send + 'static,
    ) -> CallResult
    where
        F: Future<Output = CallResult> + Send + 'static,
    {
        for _ in 0..MAX_TRIES {
            let JoinedCall { mut result, new } = self.join(&query)?;
            let is_own = new.is_some();
            if let Some(new) = new {
                fetcher.spawn(new.run(query.permit_timeout, call.clone()));
            }
            match result.wait_for(Option::is_some).await.as_deref() {
                // The limit of the client that began the call is not the limit of this one.
                Ok(Some(Err(IntrospectionError::ClientLimit))) if !is_own => {}
                Ok(Some(result)) => return result.clone(),
                _ if is_own => break,
                // The call ended because no request awaited it, just before this one did.
                _ => {}
            }
        }
        Err(FetchError::Cancelled.into())
    }

    /// Joins the call for a token, or begins one.
    fn join(&self, query: &TokenQuery<'_>) -> Result<JoinedCall, IntrospectionError> {
        let mut calls = self.0.lock();
        if let Some(sender) = calls.get(&query.token) {
            return Ok(JoinedCall { result: sender.subscribe(), new: None });
        }
        let permit = query.limiter.request(query.client)?;
        let (sender, result) = watch::channel(None);
        calls.insert(query.token, sender.clone());
        let call = SharedCall { calls: self.clone(), token: query.token, sender, result: None };
        Ok(JoinedCall { result, new: Some(NewCall { call, permit }) })
    }
}

/// A call that a request has joined.
struct JoinedCall {
    result: watch::Receiver<Option<CallResult>>,
    /// The call, if this request has begun it and has yet to run it.
    new: Option<NewCall>,
}

/// A new call, and its permit or request for one.
struct NewCall {
    call: SharedCall,
    permit: PermitRequest,
}

impl NewCall {
    async fn run<F>(self, permit_timeout: Duration, send: impl FnOnce(Permit) -> F)
    where
        F: Future<Output = CallResult>,
    {
        let NewCall { mut call, permit } = self;
        let response = async { send(permit.permit(permit_timeout).await?).await };
        tokio::select! {
            biased;
            () = call.sender.closed() => {}
            result = response => call.result = Some(result),
        }
    }
}

/// A call that requests may join until this is dropped.
struct SharedCall {
    calls: SharedCalls,
    token: TokenDigest,
    sender: watch::Sender<Option<CallResult>>,
    result: Option<CallResult>,
}

impl Drop for SharedCall {
    /// Removes the call before it sends the result, so that a later request begins a new one.
    fn drop(&mut self) {
        self.calls.0.lock().remove(&self.token);
        self.sender.send_replace(self.result.take());
    }
}
