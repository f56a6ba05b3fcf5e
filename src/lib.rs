//! Tollgate: an edge reverse proxy that enforces app-level identity limits.
//!
//! The life of a request:
//!
//! 1. [`server`] accepts a connection and hands it to a worker. hyper parses requests; the framing
//!    check of [`wire`] sees every byte first.
//! 2. [`gate`] takes a request from there, and reads from top to bottom: its form ([`wire`]), its
//!    route ([`policy`]), its caller ([`identity`]).
//! 3. The route's limits become charges. The [`store`] takes all of them or none, by the pure rules of
//!    [`limit`].
//! 4. [`upstream`] forwards what was admitted and returns the response.
//! 5. Refunds, and costs that the response names, are settled in the [`store`].
//! 6. [`response`] writes limit headers, denials and errors: the only place with status codes.
//! 7. [`access_log`] writes a line when the response has ended.
//!
//! Beside that path: [`settings`] and [`yaml`] read configuration and report every mistake with its
//! line; [`warning`] lists what is legal and unwise. [`clock`] is the only place that asks for the
//! time, [`deadline`] is one timer a worker, [`downstream`] is what is known of a client's
//! connection. [`metrics`] is what each worker counts for itself, [`sketch`] which callers use a
//! limit most, and [`trace`] exports what happened to single requests. [`pipe`] is output that never
//! blocks a request, [`events`] and [`panics`] write the log of events. [`preview`] finds out what
//! would happen without charging, [`history`] reads access logs and [`simulate`] finds out what limits
//! would have done to them, [`callers`] the counters of one caller. [`reload`] puts another
//! configuration in force under traffic, [`decisions`] are listeners at which other programs ask, in
//! the protocol of [`resp`]; [`envoy`] has the messages of gRPC by which Envoy asks. [`outbound`]
//! calls servers beside that path, and [`printable`] is text that people may see. [`admin`] serves
//! metrics and health, and [`cli`] is the command line.
//!
//! A room may import only rooms below it: `docs/architecture.md` has the floors, and
//! `tests/integration/floors.rs` holds them.

pub mod admin;
pub mod callers;
pub mod cli;
pub mod decisions;
pub mod reload;
pub mod server;
