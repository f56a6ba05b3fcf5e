//! Tollgate: an edge reverse proxy that enforces app-level identity limits.
//!
//! The life of a request:
//!
//! 1. [`server`] accepts a connection and hands it to a worker; hyper parses a request, and the
//!    framing check beside it has seen every byte.
//! 2. [`gate`] takes it from there, and reads from top to bottom: the request's form ([`wire`]),
//!    its route ([`policy`]), who is calling ([`identity`]).
//! 3. The route's limits become charges, and the [`store`] takes all of them or none, by the pure
//!    rules of [`limit`].
//! 4. [`upstream`] forwards what was admitted and brings the response back.
//! 5. What the response shows to have been charged wrongly is put right in the [`store`].
//! 6. [`response`] knows what clients are told: limit headers, denials, errors.
//! 7. [`access_log`] writes a line when the response has ended.
//!
//! Around it: [`settings`] and [`yaml`] read configuration and tell every mistake with its place,
//! and [`warning`] is what they find unwise; [`clock`] is the only one to ask for the time; [`deadline`] is one timer a worker; [`pipe`] is
//! output that never holds anybody up; [`events`] and [`panics`]
//! are told to people; [`reload`] puts another configuration in force while traffic
//! flows; [`admin`] tells how the proxy is; [`explain`] tells what would become of a
//! request; [`cases`] runs the tests that policies have; [`cli`] is the command line.

pub mod access_log;
pub mod admin;
pub mod cli;
pub mod clock;
pub mod deadline;
pub mod downstream;
pub mod events;
pub mod gate;
pub mod identity;
pub mod limit;
pub mod panics;
pub mod pipe;
pub mod policy;
pub mod preview;
pub mod reload;
pub mod response;
pub mod server;
pub mod settings;
pub mod store;
pub mod upstream;
pub mod warning;
pub mod wire;
pub mod yaml;
