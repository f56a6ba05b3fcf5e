//! What goes wrong. Each seed chooses a few kinds of faults, which then strike again and again, two
//! at a time.

mod failover;
mod moved_slots;

use std::{rc::Rc, time::Duration};

use tokio::time::{Instant, sleep};

pub(crate) use self::moved_slots::move_slots;
use crate::{chance::Chance, layout::Layout, network::Direction, proxy::Order, world::World};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Partition,
    OneWayPartition,
    SlowLink,
    CutConnections,
    LostReply,
    Kill,
    EmptyRestart,
    Stop,
    SlowServer,
    LaggingReplica,
    Failover,
    TwoPrimaries,
    KilledProxy,
    RestartedProxy,
    ClockStep,
    ClockDrift,
    // Of disks.
    PowerCut,
    FullDisk,
    BrokenDisk,
    Reload,
    MovedSlots,
}

impl Fault {
    pub(crate) const ALL: [Fault; 21] = [
        Fault::Partition,
        Fault::OneWayPartition,
        Fault::SlowLink,
        Fault::CutConnections,
        Fault::LostReply,
        Fault::Kill,
        Fault::EmptyRestart,
        Fault::Stop,
        Fault::SlowServer,
        Fault::LaggingReplica,
        Fault::Failover,
        Fault::TwoPrimaries,
        Fault::KilledProxy,
        Fault::RestartedProxy,
        Fault::ClockStep,
        Fault::ClockDrift,
        Fault::PowerCut,
        Fault::FullDisk,
        Fault::BrokenDisk,
        // These come besides.
        Fault::Reload,
        Fault::MovedSlots,
    ];

    /// Those that keep no proxy from any server.
    pub(crate) const OF_PROXIES: [Fault; 3] =
        [Fault::KilledProxy, Fault::RestartedProxy, Fault::ClockDrift];

    /// How many of them, the first ones, a seed chooses from for proxies that have Redis.
    const WITH_REDIS: usize = 16;

    /// Whether it makes a clock wrong.
    pub(crate) fn is_of_clocks(self) -> bool {
        matches!(self, Fault::ClockStep | Fault::ClockDrift)
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Partition => "partition",
            Fault::OneWayPartition => "one-way partition",
            Fault::SlowLink => "slow link",
            Fault::CutConnections => "cut connections",
            Fault::LostReply => "lost reply",
            Fault::Kill => "killed server, back with its data",
            Fault::EmptyRestart => "killed server, back empty",
            Fault::Stop => "stopped server",
            Fault::SlowServer => "slow server",
            Fault::LaggingReplica => "lagging replica",
            Fault::Failover => "failover",
            Fault::TwoPrimaries => "two primaries",
            Fault::KilledProxy => "killed proxy",
            Fault::RestartedProxy => "restarted proxy",
            Fault::ClockStep => "clock step",
            Fault::ClockDrift => "clock drift",
            Fault::PowerCut => "power cut",
            Fault::FullDisk => "full disk",
            Fault::BrokenDisk => "broken disk",
            Fault::Reload => "reload",
            Fault::MovedSlots => "moved slots",
        }
    }
}

/// The kinds that a seed chooses.
pub(crate) fn choose(chance: &mut Chance) -> Vec<Fault> {
    let number = 1 + chance.below(4);
    (0..number).map(|_| *chance.pick(&Fault::ALL[..Fault::WITH_REDIS])).collect()
}

/// Causes faults of these kinds until `end`, one after the other.
pub(crate) async fn cause(world: Rc<World>, kinds: Vec<Fault>, mut chance: Chance, end: Instant) {
    loop {
        sleep(chance.millis(100..5000)).await;
        if Instant::now() >= end {
            return;
        }
        let fault = *chance.pick(&kinds);
        strike(&world, fault, &mut chance).await;
    }
}

/// Edits the policy of the gates until `end`. Each proxy loads it when it notices that.
pub(crate) async fn reload(world: Rc<World>, mut chance: Chance, end: Instant) {
    let Some(file) = &world.policy else { return };
    while Instant::now() < end {
        sleep(chance.millis(50..4000)).await;
        let who = "the policy";
        for number in 0..world.recipes.len() {
            match file.edit() {
                Ok(policies) => {
                    world.story.count(Fault::Reload.name());
                    world.story.tell(&who, format_args!("is loaded by proxy {number}"));
                    world.proxies.borrow()[number].tell(Order::Reload(policies));
                }
                Err(problems) => {
                    world.story.tell(&who, format_args!("is refused: {}", problems[0]));
                }
            }
            sleep(chance.millis(0..500)).await;
        }
    }
}

/// Ends all faults.
pub(crate) fn heal(world: &World) {
    world.story.tell(&"the world", format_args!("is healed"));
    world.network.heal();
    world.heal_sentinels();
    for host in &world.hosts {
        host.slowness.set(Duration::ZERO);
        host.lags.set(false);
        host.resume();
        if !host.is_running() {
            host.start();
        }
    }
}

/// How long a fault lasts: mostly short, so that there is time for others.
pub(crate) fn length(chance: &mut Chance) -> Duration {
    let most = *chance.pick(&[100, 500, 2000, 6000]);
    chance.millis(5..most)
}

async fn strike(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let needs_replica =
        matches!(fault, Fault::LaggingReplica | Fault::Failover | Fault::TwoPrimaries);
    if needs_replica && matches!(world.layout, Layout::Single | Layout::Moving) {
        return;
    }
    world.story.count(fault.name());
    match fault {
        Fault::Partition
        | Fault::OneWayPartition
        | Fault::SlowLink
        | Fault::CutConnections
        | Fault::LostReply => strike_link(world, fault, chance).await,
        Fault::Kill | Fault::EmptyRestart | Fault::Stop | Fault::SlowServer => {
            strike_host(world, fault, chance).await;
        }
        Fault::LaggingReplica | Fault::Failover | Fault::TwoPrimaries => {
            failover::strike(world, fault, chance).await;
        }
        Fault::KilledProxy | Fault::RestartedProxy => strike_proxy(world, fault, chance).await,
        Fault::ClockStep | Fault::ClockDrift => strike_clock(world, fault, chance),
        Fault::Reload | Fault::MovedSlots => {}
        // These proxies have no disk (`disk_world`).
        Fault::PowerCut | Fault::FullDisk | Fault::BrokenDisk => {}
    }
}

async fn strike_link(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let network = &world.network;
    let proxies = world.recipes.len();
    let server = chance.below(world.machines());
    // One proxy, or all of them.
    let meant = chance.below(proxies + 1);
    let links: Vec<_> =
        (0..proxies).filter(|at| meant == proxies || meant == *at).map(|at| (at, server)).collect();
    let who = format!("network {links:?}");
    let length = length(chance);
    let directions: &[Direction] = match fault {
        Fault::CutConnections => {
            let cut = network.cut(|link| links.contains(&link));
            return world.story.tell(&who, format_args!("cuts {cut} connections"));
        }
        Fault::LostReply => {
            links.iter().for_each(|link| network.lose_replies(*link));
            return world.story.tell(&who, format_args!("loses the next reply"));
        }
        Fault::SlowLink => {
            let by = chance.millis(5..100);
            world.story.tell(&who, format_args!("is slower by {by:?} for {length:?}"));
            links.iter().for_each(|link| network.slow_down(*link, by));
            sleep(length).await;
            return links.iter().for_each(|link| network.slow_down(*link, Duration::ZERO));
        }
        Fault::Partition => &[Direction::ToServer, Direction::ToProxy],
        _ => match chance.is_one_in(2) {
            true => &[Direction::ToServer],
            false => &[Direction::ToProxy],
        },
    };
    world.story.tell(&who, format_args!("blocks {directions:?} for {length:?}"));
    let all = || links.iter().flat_map(|link| directions.iter().map(|to| (*link, *to)));
    all().for_each(|(link, direction)| network.block(link, direction));
    sleep(length).await;
    all().for_each(|(link, direction)| network.unblock(link, direction));
}

async fn strike_host(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let host = chance.pick(&world.hosts);
    let who = format!("server {}", host.number);
    let length = length(chance);
    if !host.is_running() {
        return;
    }
    match fault {
        Fault::Kill | Fault::EmptyRestart => {
            let keeps_data = fault == Fault::Kill;
            world.story.tell(&who, format_args!("is killed, data kept: {keeps_data}"));
            host.kill();
            sleep(length).await;
            world.restart_host(host.number, keeps_data);
        }
        Fault::Stop => {
            world.story.tell(&who, format_args!("is stopped for {length:?}"));
            host.stop();
            sleep(length).await;
            host.resume();
        }
        _ => {
            let by = chance.millis(5..90);
            world.story.tell(&who, format_args!("takes {by:?} for a command, for {length:?}"));
            host.slowness.set(by);
            sleep(length).await;
            host.slowness.set(Duration::ZERO);
        }
    }
}

async fn strike_proxy(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let number = chance.below(world.recipes.len());
    let who = format!("proxy {number}");
    if fault == Fault::KilledProxy {
        world.story.tell(&who, format_args!("is killed"));
        world.end_proxy(number);
        return world.restart_proxy(number);
    }
    world.story.tell(&who, format_args!("is restarted"));
    let (done, ended) = tokio::sync::oneshot::channel();
    world.proxies.borrow()[number].tell(Order::Finish(done));
    let _ = ended.await;
    world.end_proxy(number);
    world.restart_proxy(number);
}

fn strike_clock(world: &Rc<World>, fault: Fault, chance: &mut Chance) {
    let proxies = world.recipes.iter().map(|it| (format!("proxy {}", it.number), &it.clock));
    let servers = world.hosts.iter().map(|it| (format!("server {}", it.number), &it.clock));
    let machines: Vec<_> = proxies.chain(servers).collect();
    let (who, clock) = chance.pick(&machines);
    if fault == Fault::ClockStep {
        world.has_set_clock.set(world.has_set_clock.get() || who.starts_with("server"));
        let millis = chance.within(0..8000) as i64 - 4000;
        world.story.tell(who, format_args!("has its clock set by {millis} ms"));
        return clock.step(millis);
    }
    let gain = chance.within(0..2000) as i64 - 1000;
    world.story.tell(who, format_args!("has a clock that gains {gain} microseconds a second"));
    clock.drift(gain);
}
