//! What happens when Redis is not there, cannot answer or answers too late, and when it is back.

mod callers;
mod cluster;
mod emptied;
mod left_behind;
mod load;
mod owners;
mod replicas;
mod reshard;
mod shards;
mod single;
mod together;
mod two_primaries;
