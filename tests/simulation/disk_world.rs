//! A world without Redis: proxies that have their counters on disks of their own.
//!
//! The store works there with threads of the system, which know nothing of simulated time. So what
//! has to wait for them waits in place: nothing else happens meanwhile, and no time passes. What
//! these threads do by themselves is not seen in the story, as long as the store is right.

mod callers;
mod history;
mod limits;
mod proxy;
mod strikes;
mod waiting;

use std::{cell::RefCell, rc::Rc, time::Duration};

use tokio::{
    sync::Mutex,
    task::spawn_local,
    time::{Instant, sleep},
};

use self::{limits::DiskLimit, proxy::Proxy};
use crate::{
    chance::Chance,
    limits::Limit,
    run::{LENGTH, Outcome},
    story::Story,
};

/// All that is in such a world.
struct DiskWorld {
    begun: Instant,
    story: Story,
    limits: Vec<[DiskLimit; 2]>,
    crowd: Vec<Limit>,
    /// One thing after the other happens in a proxy.
    proxies: Vec<Mutex<Proxy>>,
    /// What was not as promised.
    broken: RefCell<Vec<String>>,
}

/// Whether a seed decides about such a world. Seeds that were kept before there were disks are of
/// others.
pub(crate) fn is_of(seed: u64) -> bool {
    seed % 7 == 5
}

pub(crate) async fn simulate(seed: u64) -> Outcome {
    let mut chance = Chance::new(seed);
    let begun = Instant::now();
    let story = Story::new();
    let limits = limits::limits(4, &mut chance);
    let proxies: Vec<_> = (0..2).map(|number| Proxy::new(number, &limits, &mut chance)).collect();
    let kinds = strikes::choose(&mut chance);
    let syncs: Vec<_> = proxies.iter().map(|proxy| (proxy.sync, proxy.flush)).collect();
    story.tell(&"the world", format_args!("seed {seed}, disks {syncs:?}, faults {kinds:?}"));
    story.count("disk");
    let proxies = proxies.into_iter().map(Mutex::new).collect();
    let broken = RefCell::default();
    let crowd = limits::crowd();
    let world = Rc::new(DiskWorld { begun, story, limits, crowd, proxies, broken });
    let end = begun + LENGTH;
    let mut flushing = Vec::new();
    for number in 0..world.proxies.len() {
        let flush = world.proxies[number].lock().await.flush;
        flushing.push(spawn_local(keep_flushing(
            Rc::clone(&world),
            number,
            flush,
            chance.part(),
            end,
        )));
    }
    let causing = spawn_local(strikes::cause(Rc::clone(&world), kinds, chance.part(), end));
    callers::send_requests(Rc::clone(&world), chance.part(), end).await;
    causing.await.expect("faults do not panic");
    for task in flushing {
        task.await.expect("flushes do not panic");
    }
    // Until all is given back that is to be.
    sleep(callers::LONGEST_REQUEST).await;
    for number in 0..world.proxies.len() {
        world.proxies[number].lock().await.close(&world).await;
    }
    let broken = world.broken.take();
    for what in &broken {
        world.story.tell(&"the judge", format_args!("{what}"));
    }
    Outcome { story: world.story.lines(), counts: world.story.counts(), broken }
}

impl DiskWorld {
    /// Notes what is not as promised.
    fn blame(&self, who: &str, what: impl IntoIterator<Item = String>) {
        let now = self.begun.elapsed();
        self.broken
            .borrow_mut()
            .extend(what.into_iter().map(|what| format!("{now:?} {who}: {what}")));
    }
}

/// Does in simulated time what a proxy does twice in each `flush`.
async fn keep_flushing(
    world: Rc<DiskWorld>,
    number: usize,
    flush: Duration,
    mut chance: Chance,
    end: Instant,
) {
    while Instant::now() < end {
        sleep(flush / 2).await;
        world.proxies[number].lock().await.write(&world, &mut chance).await;
    }
}
