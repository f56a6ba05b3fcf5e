//! How a request would be handled under the policies in force, for `tollgate explain`.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tollgate_preview::explain::{Counters, Question, explain};

use super::{Context, json_response, message};

impl Context {
    /// It takes a thread for a moment: stores are asked over connections made for the question.
    pub(super) async fn explain(&self, question: &[u8]) -> Response<Full<Bytes>> {
        let question: Question = match serde_json::from_slice(question) {
            Ok(question) => question,
            // Its own words would quote what was sent.
            Err(error) => {
                let text = format!("the request body is not valid, at column {}", error.column());
                return message(StatusCode::BAD_REQUEST, &text);
            }
        };
        let shared = Arc::clone(&self.shared);
        let explained =
            tokio::task::spawn_blocking(move || explain(&shared, &question, Counters::InUse));
        match explained.await {
            Ok(Ok(explanation)) => json_response(StatusCode::OK, &explanation),
            Ok(Err(error)) => message(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
            Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "this cannot be explained"),
        }
    }
}
