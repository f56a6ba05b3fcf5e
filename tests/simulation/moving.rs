//! Callers are moved from one store to another while they are served: first they are mirrored, one
//! proxy after the other, and then moved.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_settings::MoveMode;
use tollgate_store::Stores;

use crate::{chance::Chance, layout::Layout, limits::SHORT, world::World};

/// For how long a unit of a short limit counts: sliding windows weigh two of them.
pub(crate) const LONGEST: Duration = SHORT.saturating_mul(2);

/// Which callers are in the next store, as the settings file says at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan(Rc<Cell<Option<(u8, MoveMode)>>>);

impl Plan {
    /// As a proxy does when it starts, and when the settings change.
    pub(crate) fn put_in_force(&self, stores: &Stores) {
        if let Some((percent, mode)) = self.0.get() {
            stores.moving.set(percent, mode);
            stores.moving.set_longest(LONGEST);
        }
    }

    /// The percentage of callers that are to be moved in the end.
    pub(crate) fn percent(&self) -> u8 {
        self.0.get().map_or(0, |(percent, _)| percent)
    }
}

/// Changes the plan until callers are moved.
pub(crate) async fn move_callers(world: Rc<World>, mut chance: Chance) {
    if world.layout != Layout::Moving {
        return;
    }
    let percent = *chance.pick(&[40, 70, 100]);
    for mode in [MoveMode::Mirror, MoveMode::Move] {
        sleep(chance.millis(0..6000)).await;
        for (number, recipe) in world.recipes.iter().enumerate() {
            recipe.plan.0.set(Some((percent, mode)));
            let who = format!("proxy {number}");
            world.story.tell(&who, format_args!("is set to {mode:?} {percent} %"));
            recipe.plan.put_in_force(world.proxies.borrow()[number].stores());
            sleep(chance.millis(0..1500)).await;
        }
    }
}

/// Waits, for as long as that may take in a world without faults, until callers are moved. Returns
/// whether they are.
pub(crate) async fn wait_until_moved(world: &World) -> bool {
    let begun = Instant::now();
    let is_moved = || {
        let proxies = world.proxies.borrow();
        let plans = world.recipes.iter().map(|recipe| recipe.plan.percent());
        proxies.iter().zip(plans).all(|(proxy, percent)| proxy.stores().moving.moved() == percent)
    };
    while !is_moved() && begun.elapsed() < 3 * LONGEST {
        sleep(Duration::from_millis(100)).await;
    }
    is_moved()
}
