//! What the bodies of requests and responses say about what a request costs.
//!
//! A body is read as it passes, in pieces, in constant memory: nothing is held back for it. What it
//! says is a fact here; what that costs a limit is for others to decide.
//!
//! - [`path`]: which members of a document are wanted.
//! - [`json`]: reads them.
//! - [`event_stream`]: the documents in a stream of server-sent events.
//! - [`tokens`]: what vendors of language models call their tokens.
//! - [`weights`]: what tokens cost.
//! - [`include_usage`]: asks for the usage of a stream.
//! - [`mcp`]: the messages of the Model Context Protocol in a request's body.
//! - [`response`]: a response's body, whatever its form and coding.
//! - [`logged`]: what a log says that a request has used.
//! - [`usage_object`]: the usage of a response that a program hands over.
//! - [`request`]: a request's body: what it asks for.

mod coding;
pub mod event_stream;
pub mod include_usage;
pub mod json;
pub mod logged;
pub mod mcp;
mod members;
pub mod path;
pub mod request;
pub mod response;
pub mod tokens;
pub mod usage_object;
pub mod weights;
