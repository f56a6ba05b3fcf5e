//! What the open internet sends: garbage, clients that take their time, and too many of them.

/// How many connections there may be.
mod connections;

/// What is told to those whose request never became one.
mod refusals;

/// Clients that take their time.
mod slow;
