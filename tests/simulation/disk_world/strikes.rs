//! What goes wrong with proxies and their disks.

use std::rc::Rc;

use tokio::time::{Instant, sleep};
use tollgate_unreliable::{DriveFault, Ending};

use super::DiskWorld;
use crate::{
    chance::Chance,
    faults::{self, Fault},
};

/// The kinds that make sense here.
const KINDS: [Fault; 7] = [
    Fault::KilledProxy,
    Fault::RestartedProxy,
    Fault::ClockStep,
    Fault::ClockDrift,
    Fault::PowerCut,
    Fault::FullDisk,
    Fault::BrokenDisk,
];

/// The kinds that a seed chooses.
pub(super) fn choose(chance: &mut Chance) -> Vec<Fault> {
    let number = 1 + chance.below(4);
    (0..number).map(|_| *chance.pick(&KINDS)).collect()
}

/// Causes faults of these kinds until `end`, one after the other.
pub(super) async fn cause(
    world: Rc<DiskWorld>,
    kinds: Vec<Fault>,
    mut chance: Chance,
    end: Instant,
) {
    loop {
        sleep(chance.millis(100..4000)).await;
        if Instant::now() >= end {
            return;
        }
        let fault = *chance.pick(&kinds);
        world.story.count(fault.name());
        let number = chance.below(world.proxies.len());
        match fault {
            Fault::FullDisk | Fault::BrokenDisk => fail(&world, number, fault, &mut chance).await,
            Fault::ClockStep | Fault::ClockDrift => {
                set_clock(&world, number, fault, &mut chance).await;
            }
            _ => end_process(&world, number, fault, &mut chance).await,
        }
    }
}

/// Lets a disk fail for some time.
async fn fail(world: &Rc<DiskWorld>, number: usize, fault: Fault, chance: &mut Chance) {
    let fault = match fault {
        Fault::FullDisk => DriveFault::Full(*chance.pick(&[0, 0, 30, 300, 3000])),
        _ => *chance.pick(&[DriveFault::Broken, DriveFault::Unsyncable]),
    };
    let length = faults::length(chance);
    let proxy = world.proxies[number].lock().await;
    world.story.tell(&proxy.who, format_args!("has a disk that is {fault:?} for {length:?}"));
    proxy.fail(fault);
    drop(proxy);
    sleep(length).await;
    let mut proxy = world.proxies[number].lock().await;
    world.story.tell(&proxy.who, format_args!("has a disk that is well"));
    proxy.recover(world);
}

async fn set_clock(world: &Rc<DiskWorld>, number: usize, fault: Fault, chance: &mut Chance) {
    let mut proxy = world.proxies[number].lock().await;
    if fault == Fault::ClockStep {
        let millis = chance.within(0..8000) as i64 - 4000;
        world.story.tell(&proxy.who, format_args!("has its clock set by {millis} ms"));
        return proxy.set_clock(millis);
    }
    let gain = chance.within(0..2000) as i64 - 1000;
    let who = &proxy.who;
    world.story.tell(who, format_args!("has a clock that gains {gain} microseconds a second"));
    proxy.clock.drift(gain);
}

async fn end_process(world: &Rc<DiskWorld>, number: usize, fault: Fault, chance: &mut Chance) {
    let mut proxy = world.proxies[number].lock().await;
    let ending = match fault {
        Fault::PowerCut => Ending::PowerCut(chance.draw()),
        _ => Ending::Killed(chance.draw()),
    };
    let away = 1 + chance.below(6) as u32;
    if fault == Fault::RestartedProxy {
        world.story.tell(&proxy.who, format_args!("is restarted"));
        return proxy.stop(world).await;
    }
    let (when, who) = (chance.below(4), proxy.who.clone());
    let tell = |when: &str| world.story.tell(&who, format_args!("meets {ending:?} {when}"));
    match when {
        0 => {
            tell("now");
            proxy.end(world, ending).await;
        }
        1 => {
            tell(&format!("while it writes or syncs, {away} of them away"));
            proxy.end_soon(ending, away);
        }
        2 => {
            tell("while it stops");
            // At its write or the sync of that.
            proxy.end_soon(ending, 1 + away % 2);
            proxy.stop(world).await;
        }
        _ => {
            tell(&format!("now, and {away} changes of files after its start again"));
            proxy.end_while_starting(Ending::PowerCut(chance.draw()), away);
            proxy.end(world, ending).await;
        }
    }
}
