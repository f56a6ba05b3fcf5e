//! What the open internet sends: garbage, clients that take their time, and too many of them.

/// How many connections there may be.
mod connections;

/// The responses to input that is not a valid request.
mod refusals;

/// Clients that take their time.
mod slow;
