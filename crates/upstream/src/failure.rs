//! An attempt that failed, and what that leaves to be tried.

use super::UpstreamError;

/// What became of an attempt to send a request `R`.
pub(super) struct Failure<R> {
    pub(super) error: UpstreamError,
    /// The request, if it was never sent, or the server has said that it did not look at it.
    pub(super) unsent: Option<R>,
    /// Nothing of a response had come.
    pub(super) is_unanswered: bool,
    /// The connection was not what it seemed to be when it was taken, if it was kept: the server
    /// had closed it, or was about to.
    pub(super) is_stale: bool,
    /// More of the client's body was awaited: the server may have given up a client that was too
    /// slow for it, and is not to be blamed.
    pub(super) awaited_client: bool,
}

impl<R> Failure<R> {
    /// The request was sent, and a response has begun.
    pub(super) fn sent(error: UpstreamError) -> Failure<R> {
        Failure {
            error,
            unsent: None,
            is_unanswered: false,
            is_stale: false,
            awaited_client: false,
        }
    }

    /// The request was not even sent.
    pub(super) fn unsent(error: UpstreamError, request: R) -> Failure<R> {
        Failure { unsent: Some(request), is_unanswered: true, ..Failure::sent(error) }
    }

    /// The same of a request in another form.
    pub(super) fn map<S>(self, form: impl FnOnce(R) -> S) -> Failure<S> {
        let Failure { error, unsent, is_unanswered, is_stale, awaited_client } = self;
        Failure { error, unsent: unsent.map(form), is_unanswered, is_stale, awaited_client }
    }
}
