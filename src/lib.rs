//! Tollgate: an edge reverse proxy that enforces app-level identity limits.
//!
//! The life of a request:
//!
//! 1. [`server`] accepts a connection and hands it to a worker. hyper parses requests; the framing
//!    check of [`tollgate_wire`] sees every byte first.
//! 2. [`tollgate_gate`] takes a request from there, and reads from top to bottom: its form
//!    ([`tollgate_wire`]), its route ([`tollgate_policy`]), its caller ([`tollgate_identity`]).
//! 3. The route's limits become charges. The [`tollgate_store`] takes all of them or none, by the
//!    pure rules of [`tollgate_limit`].
//! 4. [`tollgate_upstream`] forwards what was admitted and returns the response.
//! 5. Refunds, and costs that the response names, are settled in the [`tollgate_store`].
//! 6. [`tollgate_response`] writes limit headers, denials and errors: the only place with status
//!    codes.
//! 7. [`tollgate_observe::access_log`] writes a line when the response has ended.
//!
//! The crates in `crates/`, from the lowest up:
//!
//! - `tollgate_printable`: text that people may see, which drives no terminal.
//! - [`tollgate_keyword`]: enums each of whose variants has a keyword in files.
//! - [`tollgate_clock`]: the only place that asks for the time, and one timer a worker.
//! - `tollgate_outbound`: the HTTPS client for servers beside the path of requests.
//! - [`tollgate_wire`]: the grammars of what clients send, of the Redis protocol and of Envoy.
//! - [`tollgate_limit`]: the algorithms.
//! - [`tollgate_yaml`]: text to typed values, every problem with its place; warnings of what is
//!   legal and unwise.
//! - [`tollgate_history`]: access logs of the past, read and merged.
//! - [`tollgate_observe`]: metrics, the access log, the log of events and traces.
//! - [`tollgate_identity`]: who is calling.
//! - [`tollgate_policy`]: a policy file, compiled.
//! - [`tollgate_settings`]: what needs a restart to change.
//! - [`tollgate_store`]: counters, in the process, on disk or in Redis.
//! - [`tollgate_upstream`]: servers and connections to them, and the connection of a client.
//! - [`tollgate_response`]: status codes, limit headers and bodies.
//! - [`tollgate_gate`]: the life of a request.
//! - [`tollgate_preview`]: what would happen, found out without charging.
//! - [`tollgate_simulate`]: what limits would have done to the requests of a history.
//!
//! The rooms in this package, from the lowest up:
//!
//! - [`callers`]: the counters of one caller, and the callers that use limits most.
//! - `guard`: what web pages of other origins may not ask.
//! - [`decisions`]: what other programs ask, at listeners of their own and at those of workers.
//! - [`server`]: listeners, workers and connections.
//! - [`reload`]: another configuration put in force under traffic.
//! - [`admin`]: metrics, health and inspection.
//! - [`cli`]: the command line.
//!
//! A room may import only rooms and crates below it: `docs/architecture.md` has the floors, and
//! `tests/integration/floors.rs` holds them.

pub mod admin;
pub mod callers;
pub mod cli;
pub mod decisions;
mod guard;
pub mod reload;
pub mod server;
