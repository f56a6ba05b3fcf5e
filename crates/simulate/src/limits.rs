//! What each limit would have done, for each tier and window.

use rustc_hash::FxHashMap;
use tollgate_clock::Timestamp;
use tollgate_policy::{Enforcement, Limit, Policies, Policy};
use tollgate_preview::{ChargeMode, JudgedCharge};

use super::{
    Curve, LimitAnswer,
    left_out::{LeftOut, Tries},
    limit_count::{LimitCount, mark_shared},
    not_judged::NotJudged,
};

/// Charges that are counted together.
const WAITING: usize = 64;

/// What was counted of all limits.
#[derive(Default)]
pub(super) struct LimitCounts<'p> {
    positions: FxHashMap<(usize, u8), usize>,
    all: Vec<LimitCount<'p>>,
    /// Charges that are not counted yet, each with the position of its limit, its time and caller.
    /// The memory that several of them need is waited for together, where it is not in a cache of
    /// the processor.
    waiting: Vec<(usize, JudgedCharge<'p>, Timestamp, u64)>,
    /// What callers tried where failures count.
    pub(super) tries: Tries,
    /// Requests that limits could not be judged for.
    pub(super) not_judged: NotJudged<'p>,
}

impl<'p> LimitCounts<'p> {
    /// Counts a charge of a caller at `now`.
    pub(super) fn add(
        &mut self,
        policy: &'p Policy,
        charge: &JudgedCharge<'p>,
        now: Timestamp,
        caller: u64,
    ) {
        let place = std::ptr::from_ref(charge.allowance).addr();
        let position = *self.positions.entry((place, charge.mode as u8)).or_insert_with(|| {
            let JudgedCharge { limit, allowance, mode, tier, .. } = *charge;
            self.all.push(LimitCount::new(policy, limit, allowance, mode, tier));
            self.all.len() - 1
        });
        self.waiting.push((position, *charge, now, caller));
        if self.waiting.len() >= WAITING {
            self.count_waiting();
        }
    }

    fn count_waiting(&mut self) {
        for (position, charge, now, caller) in self.waiting.drain(..) {
            if let Some(count) = self.all.get_mut(position) {
                count.add(&charge, now, caller);
            }
        }
    }

    /// The answers, and how many each limit would deny, were it another one: the limit that denies
    /// most first.
    pub(super) fn report(mut self, policies: &Policies) -> (Vec<LimitAnswer>, Vec<Curve>) {
        self.count_waiting();
        let has_several = policies.iter().nth(1).is_some();
        let full_name = |policy: &Policy, limit: &Limit| match has_several {
            true => format!("{}/{}", policy.name, limit.name),
            false => limit.name.to_string(),
        };
        let LimitCounts { not_judged, mut all, tries, .. } = self;
        mark_shared(&mut all);
        all.iter_mut().for_each(LimitCount::end_windows);
        all.sort_by(|one, other| {
            let rank = |count: &LimitCount<'_>| (count.denied, count.requests);
            rank(other).cmp(&rank(one)).then_with(|| one.limit.name.cmp(&other.limit.name))
        });
        let mut answers = Vec::new();
        let mut curves = Vec::new();
        let mut shown = Vec::new();
        let left_out = LeftOut::of(&all, &tries);
        for (count, left_out) in all.iter().zip(&left_out) {
            let name = full_name(count.policy, count.limit);
            // Those who have an override may be of any tier.
            let missed = match count.is_override() {
                true => 0,
                false => {
                    shown.push((count.limit, count.tier));
                    not_judged.of(count.limit, count.tier)
                }
            };
            answers.push(count.answer(&name, missed));
            curves.extend(left_out.curve(count, &name));
        }
        let shown = |limit: &Limit| {
            let own = shown.iter().filter(|(shown, _)| std::ptr::eq(*shown, limit));
            own.map(|(_, tier)| *tier).collect()
        };
        for (of_limit, tier) in not_judged.rest(shown) {
            let name = full_name(of_limit.policy, of_limit.limit);
            let requests = not_judged.of(of_limit.limit, tier);
            let Some(allowance) = of_limit.limit.rates.get(tier).and_then(|rates| rates.last())
            else {
                continue;
            };
            let mode = match of_limit.limit.enforcement {
                Enforcement::Shadow => ChargeMode::Shadow,
                Enforcement::AllCallers | Enforcement::Percent(_) => ChargeMode::Enforce,
            };
            let count = LimitCount::new(of_limit.policy, of_limit.limit, allowance, mode, tier);
            answers.push(count.answer(&name, requests));
        }
        (answers, curves)
    }
}
