//! Replicas that are behind, that take over, and that take charges beside the primary.

use std::rc::Rc;

use tokio::time::sleep;

use super::{Fault, length};
use crate::{chance::Chance, layout::Layout, world::World};

/// Lets a fault of this kind strike a shard.
pub(super) async fn strike(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let hosts = &world.hosts;
    let replicas: Vec<_> =
        hosts.iter().filter(|host| host.follows.get().is_some() && host.is_running()).collect();
    if replicas.is_empty() {
        return;
    }
    let replica = *chance.pick(&replicas);
    let who = format!("server {}", replica.number);
    let Some(primary) = replica.follows.get().map(|primary| &hosts[primary]) else { return };
    let length = length(chance);
    if chance.is_one_in(2) || fault == Fault::LaggingReplica {
        world.story.tell(&who, format_args!("gets nothing of its primary"));
        replica.lags.set(true);
        sleep(length).await;
    }
    if fault == Fault::LaggingReplica {
        replica.lags.set(false);
        return world.written.notify_one();
    }
    // It may have been ended or promoted meanwhile.
    if replica.follows.get() != Some(primary.number) || !replica.is_running() {
        return replica.lags.set(false);
    }
    let stays = fault == Fault::TwoPrimaries;
    world.story.tell(&who, format_args!("is promoted, the primary stays: {stays}"));
    world.has_lost_data.set(true);
    world.was_replaced.set(true);
    if !stays {
        primary.kill();
    }
    replica.promote();
    world.announce_slots(stays.then_some(primary.number));
    world.name_primary(replica.number, chance);
    replica.lags.set(false);
    sleep(super::length(chance)).await;
    // Sentinels may have made yet another one primary.
    let newest = match world.layout {
        Layout::Sentinels => &hosts[world.named.get()],
        _ => replica,
    };
    if newest.follows.get().is_some() || primary.follows.get().is_some() {
        return;
    }
    let who = format!("server {}", primary.number);
    // Nobody tells it that another one has taken over. The nodes of a cluster, and
    // Sentinels, do.
    let is_rival = world.layout == Layout::Sharded && chance.is_one_in(2);
    world.story.tell(&who, format_args!("becomes a replica: {}", !is_rival));
    if !is_rival {
        primary.follow(newest.number);
        world.announce_slots(None);
    }
    world.restart_host(primary.number, chance.is_one_in(2));
}
