//! How many a limit would deny, were it another one: from what each caller has used in each window.

use std::collections::BTreeMap;

use super::CurvePoint;

/// The most points of a curve that are chosen by peaks.
const MOST_POINTS: usize = 120;

/// Parts of numbers that people write.
const WRITTEN: [u32; 12] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 80, 90];

/// Among fewer callers, none is an outlier.
pub(super) const LEAST_COMPARED: u64 = 10;

/// The least of the outliers has at least so many times the most of the others.
const GAP: u32 = 5;

/// Outliers are at most one caller of so many: more are a kind of callers of their own.
const FEW_OF: u64 = 10;

/// Callers who used far more than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outliers {
    pub(super) callers: u64,
    /// The least peak of theirs.
    pub(super) least: u32,
    /// Whether they are single callers of many: else they may be a kind of callers of their own.
    pub(super) are_few: bool,
}

/// What the callers of a limit have used in its windows.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// How many windows there were in which so many units were used.
    pub(super) windows: BTreeMap<u32, u64>,
    /// How many callers have used so many at most, in one window.
    pub(super) peaks: BTreeMap<u32, u64>,
}

impl Usage {
    /// The number of callers.
    pub(super) fn callers(&self) -> u64 {
        self.peaks.values().sum()
    }

    /// The units of all windows.
    pub(super) fn units(&self) -> u64 {
        self.windows.iter().map(|(used, windows)| u64::from(*used) * windows).sum()
    }

    /// The 99.9th percentile of the callers' peaks, and no more than the most of these others, who
    /// are no outliers; rounded up to a number that people write.
    pub(super) fn suggested(&self, others: &Usage) -> u32 {
        rounded_up(others.peak_at(self.rank().min(others.callers())))
    }

    /// The rank of the caller of whom 99.9 % use no more.
    fn rank(&self) -> u64 {
        (self.callers() as f64 * 0.999).ceil() as u64
    }

    /// What is left without the callers who have these peaks.
    pub(super) fn without(&self, peaks: impl Iterator<Item = u32>) -> Usage {
        let mut others = self.peaks.clone();
        for peak in peaks {
            if let Some(callers) = others.get_mut(&peak) {
                *callers = callers.saturating_sub(1);
            }
        }
        others.retain(|_, callers| *callers > 0);
        Usage { peaks: others, windows: BTreeMap::new() }
    }

    /// The callers who used far more than all others: those whose modified z-score, of the
    /// logarithm of their peak, is above 3.5 (Iglewicz and Hoaglin, How to Detect and Handle
    /// Outliers, 1993), and who used at least ten times as much as the median and five times as
    /// much as anybody else. None: there are none.
    pub(super) fn outliers(&self) -> Option<Outliers> {
        let all = self.callers();
        let log = |peak: u32| f64::from(peak).ln_1p();
        let median = log(self.peak_at(all.div_ceil(2)));
        let mut distances: Vec<(f64, u64)> = self
            .peaks
            .iter()
            .map(|(peak, callers)| ((log(*peak) - median).abs(), *callers))
            .collect();
        distances.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut seen = 0;
        let middle = distances.iter().find(|(_, callers)| {
            seen += callers;
            seen >= all.div_ceil(2)
        });
        let deviation = middle.map_or(0.0, |(distance, _)| *distance);
        let above = median + f64::max(3.5 / 0.6745 * deviation, 10_f64.ln());
        // Heavy users come one after the other; what is no user stands apart.
        let pairs = self.peaks.keys().zip(self.peaks.keys().skip(1));
        let mut apart =
            pairs.filter(|(lower, peak)| log(**peak) > above && **peak / GAP >= (**lower).max(1));
        let least = apart.next().map(|(_, peak)| *peak)?;
        let callers = self.peaks.range(least..).map(|(_, callers)| callers).sum::<u64>();
        let are_few = all >= LEAST_COMPARED && callers.saturating_mul(FEW_OF) <= all;
        Some(Outliers { callers, least, are_few })
    }

    /// The peak of the caller at a rank, from 1 on, in ascending order.
    fn peak_at(&self, rank: u64) -> u32 {
        let mut seen = 0;
        let found = self.peaks.iter().find(|(_, callers)| {
            seen += **callers;
            seen >= rank
        });
        found.map_or(1, |(peak, _)| *peak)
    }

    /// What limits of several sizes would do; those that `marked` names are among them. The last
    /// one denies nothing.
    pub(super) fn points(&self, marked: &[u32]) -> Vec<CurvePoint> {
        let peaks: Vec<u32> = self.peaks.keys().copied().collect();
        let step = peaks.len().div_ceil(MOST_POINTS).max(1);
        let mut sizes: Vec<u32> = peaks.iter().copied().step_by(step).collect();
        sizes.extend(peaks.last());
        sizes.extend(marked);
        sizes.sort_unstable();
        sizes.dedup();
        // Beyond what was used there is nothing to see.
        let most = peaks
            .last()
            .copied()
            .unwrap_or_default()
            .max(marked.iter().copied().max().unwrap_or_default());
        sizes.retain(|size| *size > 0 && *size <= most);
        self.at(&sizes)
    }

    /// What limits of these sizes would do, which are in ascending order.
    pub(super) fn at(&self, sizes: &[u32]) -> Vec<CurvePoint> {
        let (callers, units) = (self.callers(), self.units());
        let mut points = Vec::with_capacity(sizes.len());
        // From the greatest on: each next one adds what lies between.
        let mut windows = self.windows.iter().rev().peekable();
        let mut peaks = self.peaks.iter().rev().peekable();
        let (mut windows_above, mut units_above, mut callers_denied) = (0_u64, 0_u64, 0_u64);
        for size in sizes.iter().rev() {
            while let Some((used, count)) = windows.next_if(|(used, _)| *used > size) {
                windows_above += count;
                units_above += u64::from(*used) * count;
            }
            while let Some((_, count)) = peaks.next_if(|(peak, _)| *peak > size) {
                callers_denied += count;
            }
            let requests_denied = units_above - u64::from(*size) * windows_above;
            points.push(CurvePoint {
                allows: *size,
                callers_denied,
                callers_share: share(callers_denied, callers),
                requests_denied,
                requests_share: share(requests_denied, units),
            });
        }
        points.reverse();
        points
    }
}

/// A part of a whole; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The next number that people write: 1 to 10, 12, 15, 20, 25, and so on.
pub(super) fn rounded_up(number: u32) -> u32 {
    if number <= 10 {
        return number.max(1);
    }
    let mut scale = 1_u32;
    loop {
        let fits = WRITTEN.iter().filter_map(|written| written.checked_mul(scale));
        if let Some(found) = fits.into_iter().find(|written| *written >= number) {
            return found;
        }
        match scale.checked_mul(10) {
            Some(next) => scale = next,
            None => return number,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_rounded_to_those_that_people_write() {
        let rounded = [0, 1, 7, 11, 13, 21, 99, 101, 1001, 4999, 7600].map(rounded_up);
        assert_eq!(rounded, [1, 1, 7, 12, 15, 25, 100, 120, 1200, 5000, 8000]);
        assert!(rounded_up(u32::MAX) == u32::MAX);
    }

    fn usage(peaks: &[(u32, u64)]) -> Usage {
        Usage { peaks: peaks.iter().copied().collect(), ..Usage::default() }
    }

    #[test]
    fn callers_far_beyond_all_others_are_outliers() {
        for (peaks, expected) in [
            (&[(3, 30), (5, 29), (2500, 1)][..], Some((1, 2500, true))),
            (&[(0, 60), (2500, 1)], Some((1, 2500, true))),
            (&[(10, 50), (120, 2), (4000, 1)], Some((3, 120, true))),
            // Too few to compare.
            (&[(3, 5), (2500, 1)], Some((1, 2500, false))),
            // A kind of callers of its own.
            (&[(3, 30), (2500, 10)], Some((10, 2500, false))),
            // Some use more than others, as they do.
            (&[(1, 400), (3, 300), (10, 200), (30, 80), (100, 20), (300, 4)], None),
            (&[(5, 100)], None),
            (&[], None),
        ] {
            let found = usage(peaks).outliers();
            let found = found.map(|own| (own.callers, own.least, own.are_few));
            assert_eq!(found, expected, "{peaks:?}");
        }
    }

    #[test]
    fn suggestion_is_the_most_of_the_others() {
        let all = usage(&[(3, 30), (5, 29), (2500, 1)]);
        assert_eq!(all.suggested(&all), 2500);
        assert_eq!(all.suggested(&all.without([2500].into_iter())), 5);
    }

    proptest! {
        /// Each point is what counting every window by hand gives.
        #[test]
        fn prop_points_are_those_of_brute_force(
            callers in prop::collection::vec(prop::collection::vec(1_u32..50, 1..6), 1..40),
            mut sizes in prop::collection::btree_set(1_u32..60, 1..20),
        ) {
            let mut usage = Usage::default();
            for windows in &callers {
                for used in windows {
                    *usage.windows.entry(*used).or_default() += 1;
                }
                *usage.peaks.entry(*windows.iter().max().unwrap()).or_default() += 1;
            }
            sizes.insert(60);
            let sizes: Vec<u32> = sizes.into_iter().collect();
            for point in usage.at(&sizes) {
                let over = |used: &u32| u64::from(used.saturating_sub(point.allows));
                let denied: u64 = callers.iter().flatten().map(over).sum();
                let hit = callers.iter().filter(|windows| windows.iter().any(|used| over(used) > 0));
                prop_assert_eq!(point.requests_denied, denied);
                prop_assert_eq!(point.callers_denied, hit.count() as u64);
            }
            let suggested = usage.suggested(&usage);
            let points = usage.points(&[7, suggested]);
            prop_assert_eq!(points.last().unwrap().requests_denied, 0);
            prop_assert!(points.iter().any(|point| point.allows == suggested));
        }
    }
}
