//! An attempt that failed, and what that leaves to be tried.

use http::Request;

use super::{RequestBody, UpstreamError};

/// What became of an attempt.
pub(super) struct Failure {
    pub(super) error: UpstreamError,
    /// The request, if it was never sent, or the server has said that it did not look at it.
    pub(super) unsent: Option<Box<Request<RequestBody>>>,
    /// Nothing of a response had come.
    pub(super) is_unanswered: bool,
    /// The connection was not what it seemed to be when it was taken, if it was kept: the server
    /// had closed it, or was about to.
    pub(super) is_stale: bool,
}

impl Failure {
    /// The request was sent, and a response has begun.
    pub(super) fn sent(error: UpstreamError) -> Failure {
        Failure { error, unsent: None, is_unanswered: false, is_stale: false }
    }

    /// The request was not even sent.
    pub(super) fn unsent(error: UpstreamError, request: Request<RequestBody>) -> Failure {
        Failure { error, unsent: Some(Box::new(request)), is_unanswered: true, is_stale: false }
    }
}
