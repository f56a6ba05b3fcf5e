//! A Redis server as data: it answers commands, and has no socket, no clock and no thread. The
//! world around it brings the bytes, the time and the effects of its primary, and decides what is
//! lost.
//!
//! It has what the store uses, and answers other commands as Redis answers unknown ones. A
//! differential test holds it to a real server.
//!
//! - `session`, `command_reader`, `reply`: the protocol;
//! - `server`, `commands`: what a server is, and which commands it has;
//! - `keyspace`, `strings`, `hashes`, `sorted_sets`, `numbers`: the data;
//! - `scripts`, `script_commands`, `packing`: scripts, in the real Lua;
//! - `replication`, `disk`: what becomes of data: replicas, promotions, restarts;
//! - `cluster`, `sentinel`: who has which data;
//! - `report`: what a server says of itself.

mod address;
mod cluster;
mod command_error;
mod command_reader;
mod commands;
mod differential;
mod disk;
mod hashes;
mod keyspace;
mod numbers;
mod packing;
mod replication;
mod reply;
mod report;
mod script_commands;
mod scripts;
mod sentinel;
mod server;
mod session;
mod sorted_sets;
mod strings;

pub(crate) use self::{
    address::Address,
    cluster::{ClusterView, SlotRange},
    replication::{Effect, Position, Role},
    reply::Reply,
    sentinel::{Sentinel, Watched},
    server::{Condition, Server},
    session::Session,
};
