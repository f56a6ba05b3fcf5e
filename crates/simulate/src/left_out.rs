//! Who is left out of a suggested number, so that an attack makes no limit.

use std::cmp::Reverse;

use http::StatusCode;
use rustc_hash::{FxHashMap, FxHashSet};
use tollgate_limit::Quota;

use super::{
    Curve, Doubt,
    curve::{LEAST_COMPARED, Usage, share},
    limit_count::{KeyCount, LimitCount},
};

/// The most outliers of a limit that are named.
const NAMED_OUTLIERS: usize = 3;

/// Failures of a caller that say nothing yet: people mistype.
const LEAST_FAILURES: u32 = 10;

/// What callers tried where failures count, by their hash: how often, and how often their
/// credentials did not pass.
#[derive(Default)]
pub(super) struct Tries(FxHashMap<u64, (u32, u32)>);

impl Tries {
    /// Counts an answer to a caller; 0: it is not known who that is.
    pub(super) fn add(&mut self, caller: u64, status: StatusCode) {
        if caller != 0 {
            let (tries, failures) = self.0.entry(caller).or_default();
            *tries = tries.saturating_add(1);
            let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            *failures = failures.saturating_add(u32::from(is_refused));
        }
    }

    /// Whether a caller guesses: most of what it tried did not pass.
    fn are_guesses(&self, caller: u64) -> bool {
        self.0
            .get(&caller)
            .is_some_and(|(tries, failures)| *failures >= LEAST_FAILURES && *failures > *tries / 2)
    }
}

/// Who is left out of the number of a limit, in one of its windows.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    /// The number.
    suggested: u32,
    /// What it would be with them.
    suggested_with: u32,
    /// How many there are, if that makes a difference in this window.
    callers: u64,
    /// How many of them had credentials that did not pass.
    refused: u64,
    /// Those with the highest peaks.
    highest: Vec<(u128, u32)>,
    doubt: Option<Doubt>,
}

impl LeftOut {
    /// Who is left out of each of these counts: a caller that is left out of one window of a limit
    /// is left out of all its windows.
    pub(super) fn of(counts: &[LimitCount<'_>], tries: &Tries) -> Vec<LeftOut> {
        let mut keys: FxHashMap<_, FxHashSet<u128>> = FxHashMap::default();
        let mut have_own = Vec::with_capacity(counts.len());
        for count in counts {
            let refused = count.keys.iter().filter(|(_, own)| tries.are_guesses(own.caller));
            let refused: FxHashSet<u128> = refused.map(|(key, _)| *key).collect();
            let others = others(count, &refused);
            let least = others.outliers().filter(|own| own.are_few).map(|own| own.least);
            let apart = count.keys.iter().filter(|(_, own)| least.is_some_and(|it| own.peak >= it));
            have_own.push(least.is_some());
            let of_limit = keys.entry(group(count)).or_default();
            of_limit.extend(apart.map(|(key, _)| *key));
            of_limit.extend(refused);
        }
        let none = FxHashSet::default();
        let of_count = |(count, has_own): (&LimitCount<'_>, bool)| {
            let own = LeftOut::of_window(count, keys.get(&group(count)).unwrap_or(&none), tries);
            match has_own || own.suggested != own.suggested_with {
                true => own,
                // It makes no difference here.
                false => LeftOut { callers: 0, highest: Vec::new(), ..own },
            }
        };
        let mut all: Vec<LeftOut> = counts.iter().zip(have_own).map(of_count).collect();
        // In a part of a window, nobody uses more than in the whole.
        let suggested: Vec<u32> = all.iter().map(|own| own.suggested).collect();
        for (own, count) in all.iter_mut().zip(counts) {
            for (other, of_longer) in counts.iter().zip(&suggested) {
                let is_longer = other.allowance.window_secs > count.allowance.window_secs;
                if is_longer && !count.is_override() && group(other) == group(count) {
                    own.suggested = own.suggested.min(*of_longer);
                }
            }
        }
        all
    }

    fn of_window(count: &LimitCount<'_>, keys: &FxHashSet<u128>, tries: &Tries) -> LeftOut {
        // Where nobody else is, they are all that is known.
        let none = FxHashSet::default();
        let has_others = count.keys.keys().any(|key| !keys.contains(key));
        let keys = if has_others { keys } else { &none };
        let others = others(count, keys);
        let suggested = count.usage.suggested(&others);
        let suggested_with = count.usage.suggested(&count.usage);
        let doubt = doubt(count, keys, &others);
        let own = count.keys.iter().filter(|(key, _)| keys.contains(*key));
        let refused = own.clone().filter(|(_, own)| tries.are_guesses(own.caller)).count() as u64;
        let mut highest: Vec<(u128, u32)> = own.map(|(key, own)| (*key, own.peak)).collect();
        let callers = highest.len() as u64;
        highest.sort_by_key(|(key, peak)| (Reverse(*peak), *key));
        highest.truncate(NAMED_OUTLIERS);
        LeftOut { suggested, suggested_with, callers, refused, highest, doubt }
    }

    /// How many another limit would deny; none: it has no window.
    pub(super) fn curve(&self, count: &LimitCount<'_>, name: &str) -> Option<Curve> {
        let window_seconds = count.allowance.window_secs?;
        let present = count.allowance.quota.capacity();
        let is_fixed = matches!(count.allowance.quota, Quota::FixedWindow(_));
        Some(Curve {
            limit: name.to_owned(),
            tier: count.tier_name().to_owned(),
            window_seconds,
            is_exact: is_fixed && count.is_plain && !count.is_shared,
            shares_counters: count.is_shared,
            present,
            suggested: self.suggested,
            suggested_with_outliers: self.suggested_with,
            outliers: self.highest.clone(),
            outlier_callers: self.callers,
            refused_callers: self.refused,
            doubt: self.doubt,
            callers: count.keys.len() as u64,
            requests: count.requests,
            points: count.usage.points(&[present, self.suggested]),
        })
    }
}

/// The windows of one limit, for one tier.
fn group(count: &LimitCount<'_>) -> (usize, usize, u8, bool) {
    let limit = std::ptr::from_ref(count.limit).addr();
    (limit, count.tier, count.mode as u8, count.is_override())
}

/// What all but these have used.
fn others(count: &LimitCount<'_>, keys: &FxHashSet<u128>) -> Usage {
    let peaks = keys.iter().filter_map(|key| count.keys.get(key)).map(|own| own.peak);
    count.usage.without(peaks)
}

/// Why the number may be that of a few callers: there are not many, or too many of them stand apart
/// to be left out.
fn doubt(count: &LimitCount<'_>, keys: &FxHashSet<u128>, others: &Usage) -> Option<Doubt> {
    let all = &count.usage;
    let are_few = all.callers() < LEAST_COMPARED;
    let apart = others.outliers().filter(|_| !are_few);
    let rank = |(key, own): &(&u128, &KeyCount)| (own.requests, Reverse(**key));
    let is_apart =
        |(_, own): &(&u128, &KeyCount)| apart.is_none_or(|apart| own.peak >= apart.least);
    let (busiest, own) = count.keys.iter().filter(is_apart).max_by_key(rank)?;
    let (with, rest) = match apart {
        Some(apart) => {
            let peaks = count.keys.iter().filter(|(key, _)| !keys.contains(*key));
            let peaks = peaks.map(|(_, own)| own.peak).filter(|peak| *peak >= apart.least);
            (all.suggested(others), others.without(peaks))
        }
        None if are_few && keys.contains(busiest) => {
            (all.suggested(all), others.without(std::iter::empty()))
        }
        None if are_few => (all.suggested(others), others.without([own.peak].into_iter())),
        None => return None,
    };
    Some(Doubt {
        apart: apart.map_or(0, |apart| apart.callers),
        busiest: *busiest,
        share: share(own.requests.into(), count.requests),
        with,
        without: (rest.callers() > 0).then(|| all.suggested(&rest)),
    })
}
