//! Carries what primaries write to their replicas: in order, a little later, and not at all while
//! they cannot reach each other.

use std::rc::Rc;

use tokio::time::sleep;

use crate::{chance::Chance, host::Host, model::Effect, world::World};

/// Keeps replicas up to date as long as it runs.
pub(crate) async fn replicate(world: Rc<World>, mut chance: Chance) {
    loop {
        world.written.notified().await;
        sleep(chance.millis(0..4)).await;
        for replica in &world.hosts {
            let Some(primary) = replica.follows.get() else { continue };
            catch_up(&world, replica, &world.hosts[primary]);
        }
    }
}

fn catch_up(world: &World, replica: &Host, primary: &Host) {
    let reach_each_other = !replica.lags.get() && replica.is_awake() && primary.is_awake();
    if !reach_each_other {
        return;
    }
    let mut own = replica.server.borrow_mut();
    let mut other = primary.server.borrow_mut();
    if replica.is_linked.get() && own.position().id == other.position().id {
        let offset = own.position().offset;
        let new: Vec<Effect> = other.effects_after(offset).cloned().collect();
        if new.iter().all(|effect| own.apply(effect).is_ok()) {
            return;
        }
    }
    let resync = other.resync(own.position());
    own.accept(resync);
    replica.is_linked.set(true);
    world.story.count("resyncs");
}
