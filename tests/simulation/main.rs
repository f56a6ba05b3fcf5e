//! A whole fleet in one thread, on simulated time and a simulated network: real stores with the
//! real Redis client code, against a model of Redis. A seed decides everything that happens, so
//! what it finds can be repeated: `SEED=7 cargo test --test simulation replay -- --nocapture`.
//!
//! - `run`, `course`: one simulation, from its seed to what the judge says of it;
//! - `world`, `proxy`, `gate`, `host`, `serving`, `network`, `machine`,
//!   `layout`: what there is;
//! - `disk_world`: proxies that have their counters on disk, without Redis;
//! - `replication`, `slots`, `sentinels`: what servers tell each other, and others of them;
//! - `memory`: what proxies hold;
//! - `limits`, `workload`, `faults`, `moving`: what happens;
//! - `story`, `ledger`, `judge`: what is known of it, and whether that is as promised;
//! - `histories`: the same judge, of drills with real servers;
//! - `chance`: chance that a seed decides;
//! - `model`: a Redis server.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a simulation that cannot go on fails its test; clippy knows only `#[test]` functions"
)]

mod chance;
mod course;
mod disk_world;
mod faults;
mod gate;
mod histories;
mod host;
mod judge;
mod layout;
mod ledger;
mod limits;
mod machine;
mod memory;
mod model;
mod moving;
mod network;
mod proxy;
mod replication;
mod run;
mod seeds;
mod sentinels;
mod serving;
mod slots;
mod story;
mod workload;
mod world;
