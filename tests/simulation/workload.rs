//! Callers: they charge their limits at any proxy, give some of it back, and are reset by an
//! operator now and then. One of them asks for a third of everything.

use std::{ops::Range, rc::Rc, time::Duration};

use http::StatusCode;
use tokio::{
    sync::oneshot,
    task::spawn_local,
    time::{Instant, sleep},
};
use tollgate_clock::Timestamp;
use tollgate_limit::{DecidedBy, Decision, Outcome, Outcomes, Verdict};

use crate::{
    chance::Chance,
    gate::Question,
    ledger::{Admission, Answer, Reset},
    proxy::{Decided, Order},
    world::World,
};

/// How much later than its deadline an answer may be: timers have this grain.
const GRAIN: Duration = Duration::from_millis(2);

/// The time between two requests, at least and at most.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const PAUSES: Range<u64> = SHORTEST_PAUSE.as_millis() as u64..120;

/// Which limits of a caller a request charges.
const CHOICES: [&[usize]; 4] = [&[0, 1], &[0], &[1], &[1]];

/// Sends requests until `end`.
pub(crate) async fn send_requests(world: Rc<World>, mut chance: Chance, end: Instant) {
    let has_resets = chance.is_one_in(2);
    while Instant::now() < end {
        sleep(chance.millis(PAUSES)).await;
        let callers = world.limits.len();
        let caller = if chance.is_one_in(3) { 0 } else { chance.below(callers) };
        let proxy = chance.below(world.recipes.len());
        if has_resets && chance.is_one_in(150) {
            spawn_local(reset(Rc::clone(&world), caller, proxy));
            continue;
        }
        let which = *chance.pick(&CHOICES);
        let cost = if chance.is_one_in(5) { 2 } else { 1 };
        let request = Request { caller, proxy, which, cost, asked: world.elapsed() };
        let (world, own) = (Rc::clone(&world), chance.part());
        match world.policy.is_some() && which == [0] {
            true => drop(spawn_local(request.ask(world))),
            false => drop(spawn_local(request.send(world, own))),
        }
    }
}

/// A request of a caller.
struct Request {
    caller: usize,
    proxy: usize,
    /// The limits that it charges.
    which: &'static [usize],
    cost: u32,
    asked: Duration,
}

impl Request {
    async fn send(self, world: Rc<World>, chance: Chance) {
        let Request { caller, proxy, which, cost, asked } = self;
        let limit = |at: &usize| (world.limits[caller][*at].clone(), cost);
        let limits = which.iter().map(limit).collect();
        let (sender, reply) = oneshot::channel();
        world.proxies.borrow()[proxy].tell(Order::Charge(limits, sender));
        let who = format!("proxy {proxy}");
        let what = format!("caller {caller} {which:?} cost {cost}");
        let Ok(Decided { decision, took }) = reply.await else {
            *world.ledger.borrow_mut().unanswered.entry(caller).or_default() += cost;
            return world.story.tell(&who, format_args!("{what}: ended before it answered"));
        };
        note_if_late(&world, took, &format!("{who} for {what} at {asked:?}"));
        match decision {
            Ok(decision) => {
                world.story.tell(&who, format_args!("{what}: {}", summary(&decision)));
                let Decision { verdict, ref outcomes, now } = decision;
                self.note_answer(&world, (verdict, outcomes.clone(), now));
                if decision.verdict == Verdict::Allow {
                    self.note_admitted(&world, &decision, chance);
                }
            }
            Err(error) => {
                world.story.count("requests refused");
                world.story.tell(&who, format_args!("{what}: {error}"));
                self.note_answer(&world, (Verdict::Deny, Outcomes::new(), Timestamp::default()));
            }
        }
    }

    /// Asks the gate of a proxy, which charges the hourly limit.
    async fn ask(self, world: Rc<World>) {
        let Request { caller, proxy, which: _, cost, asked } = self;
        let (sender, reply) = oneshot::channel();
        world.proxies.borrow()[proxy].tell(Order::Ask(Question { caller, cost }, sender));
        let who = format!("gate {proxy}");
        let what = format!("caller {caller} cost {cost}");
        let Ok(answer) = reply.await else {
            *world.ledger.borrow_mut().unanswered.entry(caller).or_default() += cost;
            return world.story.tell(&who, format_args!("{what}: ended before it answered"));
        };
        world.story.count("answers of gates");
        let fields = answer.fields();
        world.story.tell(&who, format_args!("{what}: {}, {fields:?}", answer.status));
        note_if_late(&world, answer.took, &format!("{who} for {what} at {asked:?}"));
        let fault = world.policy.as_ref().and_then(|file| answer.fault(file));
        let mut ledger = world.ledger.borrow_mut();
        ledger.faulty.extend(fault.map(|fault| format!("{who}, {what} at {asked:?}: {fault}")));
        let Some(fields) = fields.filter(|_| answer.status == StatusCode::OK) else { return };
        ledger.admissions.push(Admission {
            limit: (caller, 0),
            units: cost,
            at: answer.at,
            reset: fields.reset,
            asked,
            answered: world.elapsed(),
            decided_by: if fields.is_alone { DecidedBy::Local } else { DecidedBy::Current },
            proxy,
            refunded: None,
            is_late: false,
        });
    }

    fn note_answer(&self, world: &World, decision: (Verdict, Outcomes, Timestamp)) {
        let Request { caller, proxy, which, cost, asked } = *self;
        let (verdict, outcomes, at) = decision;
        let answered = world.elapsed();
        let mut ledger = world.ledger.borrow_mut();
        let first_admission = ledger.admissions.len();
        ledger.answers.push(Answer {
            caller,
            which,
            cost,
            proxy,
            at,
            asked,
            answered,
            verdict,
            outcomes,
            first_admission,
        });
    }

    /// Records what was admitted. Some of it is given back later.
    fn note_admitted(&self, world: &Rc<World>, decision: &Decision, mut chance: Chance) {
        for (at, outcome) in self.which.iter().zip(&decision.outcomes) {
            let mut ledger = world.ledger.borrow_mut();
            let entry = ledger.admissions.len();
            ledger.admissions.push(Admission {
                limit: (self.caller, *at),
                units: self.cost,
                at: decision.now,
                reset: outcome.standing.reset,
                asked: self.asked,
                answered: world.elapsed(),
                decided_by: outcome.decided_by,
                proxy: self.proxy,
                refunded: None,
                is_late: false,
            });
            let limit = &world.limits[self.caller][*at];
            // A request in flight always ends.
            let is_lease = limit.quota.holds_leases();
            if is_lease || chance.is_one_in(5) && limit.can_be_refunded() {
                let wait = chance.millis(1..4000);
                let given = Given { entry, proxy: self.proxy, outcome: *outcome, wait };
                spawn_local(given.back(Rc::clone(world)));
            } else if world.policy.is_some() && chance.is_one_in(8) {
                let wait = chance.millis(1..4000);
                let given = Given { entry, proxy: self.proxy, outcome: *outcome, wait };
                spawn_local(given.more(Rc::clone(world)));
            }
        }
    }
}

fn note_if_late(world: &World, took: Duration, what: &str) {
    if took > world.deadline + GRAIN {
        world.ledger.borrow_mut().faulty.push(format!("{what} took {took:?}"));
    }
}

/// A decision in a line of the story.
pub(crate) fn summary(decision: &Decision) -> String {
    let Decision { verdict, outcomes, now } = decision;
    let by: Vec<_> = outcomes.iter().map(|outcome| outcome.decided_by).collect();
    let used: Vec<_> = outcomes.iter().map(|outcome| outcome.standing.used).collect();
    format!("{verdict:?} by {by:?}, used {used:?}, at {now}")
}

/// A charge that is corrected later.
struct Given {
    /// Its place in the ledger.
    entry: usize,
    proxy: usize,
    outcome: Outcome,
    wait: Duration,
}

impl Given {
    /// It is given back.
    async fn back(self, world: Rc<World>) {
        let Given { entry, proxy, outcome, wait } = self;
        let life = world.lives.borrow()[proxy];
        sleep(wait).await;
        let Admission { limit: (caller, at), units, .. } = world.ledger.borrow().admissions[entry];
        let has_ended = world.lives.borrow()[proxy] != life;
        if !has_ended || world.limits[caller][at].quota.holds_leases() {
            world.ledger.borrow_mut().admissions[entry].refunded = Some(world.elapsed());
        }
        // A process that has ended gives nothing back, though its requests have ended with it.
        if has_ended {
            return;
        }
        world.story.count("refunds");
        let limit = &world.limits[caller][at];
        let who = format!("proxy {proxy}");
        world.story.tell(&who, format_args!("gives back {units} of {}", limit.name));
        world.proxies.borrow()[proxy].tell(Order::GiveBack(limit.clone(), units, outcome));
    }

    /// Its request turns out to cost more.
    async fn more(self, world: Rc<World>) {
        let Given { entry, proxy, outcome, wait } = self;
        let life = world.lives.borrow()[proxy];
        sleep(wait).await;
        if world.lives.borrow()[proxy] != life {
            return;
        }
        let at = world.elapsed();
        let charged = world.ledger.borrow().admissions[entry];
        let late = Admission { asked: at, answered: at, units: 1, is_late: true, ..charged };
        world.ledger.borrow_mut().admissions.push(late);
        world.story.count("late charges");
        let (caller, place) = charged.limit;
        let limit = &world.limits[caller][place];
        let who = format!("proxy {proxy}");
        world.story.tell(&who, format_args!("takes 1 more of {}", limit.name));
        world.proxies.borrow()[proxy].tell(Order::Take(limit.clone(), 1, outcome));
    }
}

async fn reset(world: Rc<World>, caller: usize, proxy: usize) {
    let begun = world.elapsed();
    let (sender, reply) = oneshot::channel();
    let limits = world.limits[caller].to_vec();
    world.proxies.borrow()[proxy].tell(Order::Reset(limits, sender));
    let made = reply.await;
    let who = format!("proxy {proxy}");
    world.story.tell(&who, format_args!("resets caller {caller}, begun at {begun:?}: {made:?}"));
    let mut ledger = world.ledger.borrow_mut();
    if let Ok(Ok(())) = made {
        world.story.count("resets");
        ledger.resets.push(Reset { caller, begun, made: world.elapsed() });
    } else {
        // Some of its counters may be reset.
        ledger.doubted.insert(caller);
    }
}
