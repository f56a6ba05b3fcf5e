//! Counters in Redis: real servers, alone, sharded, in a cluster.

mod access;
mod newcomers;
mod reported;
mod rights;
mod secret;
mod servers;
mod sharing;
mod skew;
