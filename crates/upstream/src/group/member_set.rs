//! The members of an upstream at one moment, and how one is chosen. Immutable: each member
//! keeps its own changing state, and a change of the members makes a new set.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tollgate_policy::{Balance, Ejection};

use super::{Choice, Member};
use crate::{
    balance::{Schedule, Weights, chance},
    health::Probe,
};

/// The members that requests can be sent to.
#[derive(Debug, Default)]
pub(crate) struct MemberSet {
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) ejection: Option<Ejection>,
    pub(crate) probe: Option<Arc<Probe>>,
    weights: Weights,
    balance: Balance,
    /// Empty unless the balance is round robin.
    schedule: Schedule,
}

impl MemberSet {
    /// Members with their weights, and the rules for choosing among them.
    pub(crate) fn new(
        members: Vec<(Arc<Member>, f64)>,
        balance: Balance,
        ejection: Option<Ejection>,
        probe: Option<Arc<Probe>>,
    ) -> MemberSet {
        let weights = Weights::new(members.iter().map(|(_, weight)| *weight));
        let schedule = match balance {
            Balance::RoundRobin => Schedule::new(&weights),
            Balance::LeastLoaded | Balance::Caller => Schedule::default(),
        };
        let members = members.into_iter().map(|(member, _)| member).collect();
        MemberSet { members, ejection, probe, weights, balance, schedule }
    }

    /// The member for a request at the instant `now`; `turn` counts the turns of round robin.
    ///
    /// Ejected members get none, and members that have failed this request get it only if no
    /// other is left. If all are ejected, none counts as ejected: only a request can show that an
    /// member has recovered.
    pub(crate) fn choose(
        &self,
        choice: Choice<'_>,
        turn: &AtomicUsize,
        now: Instant,
    ) -> Option<&Arc<Member>> {
        if let [] | [_] = &*self.members {
            return self.members.first();
        }
        let is_usable = |member: &Member| member.is_clean() || member.is_usable(now);
        let is_untried =
            |member: &Member| !choice.tried.iter().any(|tried| std::ptr::eq(&**tried, member));
        let picked = |is_eligible: &dyn Fn(&Member) -> bool| {
            let at = self.pick(choice, turn, |at| {
                self.members.get(at).is_some_and(|member| is_eligible(member))
            });
            self.members.get(at?)
        };
        let admitted = |is_eligible: &dyn Fn(&Member) -> bool| {
            // Another request may have begun the trial of this member by now; then it is skipped.
            (0..self.members.len())
                .map_while(|_| picked(is_eligible))
                .find(|member| member.is_clean() || member.admit(now, self.ejection.as_ref()))
        };
        admitted(&|member| is_usable(member) && is_untried(member))
            .or_else(|| admitted(&is_usable))
            .or_else(|| picked(&is_untried))
            .or_else(|| picked(&|_| true))
    }

    fn pick(
        &self,
        choice: Choice<'_>,
        turn: &AtomicUsize,
        is_eligible: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let of = |at: usize| self.members.get(at);
        match self.balance {
            Balance::LeastLoaded => {
                let load = |at| of(at).map_or(0, |member| member.in_flight());
                self.weights.less_loaded([chance(), chance()], is_eligible, load)
            }
            Balance::RoundRobin if choice.tried.is_empty() => {
                self.schedule.next(|| turn.fetch_add(1, Ordering::Relaxed), is_eligible)
            }
            // A retry takes no turn: if it did, with one of two servers broken, every request would
            // begin at the broken one.
            Balance::RoundRobin => {
                let own = Cell::new(turn.load(Ordering::Relaxed));
                self.schedule.next(|| own.replace(own.get().wrapping_add(1)), is_eligible)
            }
            Balance::Caller => {
                let name = |at| of(at).map_or(0, |member| member.name);
                self.weights.rendezvous(choice.caller, name, is_eligible)
            }
        }
    }

    /// Whether this member can be ejected: another is clean, and no more are ejected than may be.
    pub(crate) fn can_spare(&self, member: &Member, rules: &Ejection) -> bool {
        let others = || self.members.iter().filter(|other| !std::ptr::eq(&***other, member));
        let ejected = others().filter(|other| other.is_ejected()).count();
        others().any(|other| other.is_clean()) && ejected < rules.most_of(self.members.len())
    }
}
