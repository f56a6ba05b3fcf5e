//! The body of a question, read whole: of a program's call, or of a proxy that asks by gRPC.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tollgate_upstream::ClientBody;

/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WholeBodyError {
    /// It has more bytes than this.
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    /// Its end never came, or it is not well-formed.
    #[error("it is malformed")]
    Malformed,
    /// It took too long.
    #[error("it did not arrive in time")]
    Late,
}

impl WholeBodyError {
    /// The status of a response without such a body.
    pub(super) fn status(self) -> StatusCode {
        match self {
            WholeBodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            WholeBodyError::Malformed => StatusCode::BAD_REQUEST,
            WholeBodyError::Late => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// A body of at most `max` bytes.
///
/// # Errors
/// [`WholeBodyError`].
pub(super) async fn whole(body: ClientBody, max: usize) -> Result<Bytes, WholeBodyError> {
    let whole = Limited::new(body.incoming, max).collect();
    match tokio::time::timeout(BODY_TIME, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(WholeBodyError::TooLarge(max)),
        Ok(Err(_)) => Err(WholeBodyError::Malformed),
        Err(_) => Err(WholeBodyError::Late),
    }
}
