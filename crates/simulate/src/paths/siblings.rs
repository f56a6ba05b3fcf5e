//! Which of many segments at one place are words of an API, and which are names of things.

/// Of more segments at one place, those that are not frequent count as one that varies.
pub(super) const MOST_SIBLINGS: usize = 24;

/// A segment that keeps its name has this part of all requests, with all that is below it.
const FREQUENT: f64 = 0.01;

/// If so few names have this part of their siblings' requests, the others are strays.
const NEARLY_ALL: f64 = 0.8;

/// Names that are so much more frequent than the next one are not of its kind.
const GAP: u64 = 10;

/// But one thing among thousands may be popular: what is above a gap has this part of all requests.
const ABOVE_GAP: f64 = 0.1;

/// How many of many siblings keep their names: the first ones of `counts`, which are their
/// requests, the most first. `all`: the requests of the log.
///
/// Words of an API are few, and far more frequent than what scanners ask for. Names of users or
/// articles become rarer step by step, even if the first few are frequent (by Zipf's law the second
/// has half of the first one's requests): there the frequent ones have no great part together, and
/// no gap sets them apart.
pub(super) fn kept(counts: &[u64], all: u64) -> usize {
    let least = (all as f64 * FREQUENT).max(1.0);
    let frequent = counts.iter().take_while(|count| **count as f64 >= least).count();
    let siblings: u64 = counts.iter().sum();
    let has_part = |first: usize, part: f64, of: u64| {
        let together: u64 = counts.iter().take(first).sum();
        together as f64 >= of as f64 * part
    };
    if frequent <= MOST_SIBLINGS && has_part(frequent, NEARLY_ALL, siblings) {
        return frequent;
    }
    let is_gap = |first: &usize| {
        let at = |position: usize| counts.get(position).copied().unwrap_or_default();
        at(first.saturating_sub(1)) >= at(*first).saturating_mul(GAP)
    };
    let above = (1..=frequent.min(MOST_SIBLINGS)).rev().find(is_gap);
    above.filter(|first| has_part(*first, ABOVE_GAP, all)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many names, of which the first has `first` requests, by Zipf's law.
    fn zipf(names: usize, first: f64) -> Vec<u64> {
        (1..=names).map(|rank| (first / rank as f64) as u64).collect()
    }

    fn kept_of(mut counts: Vec<u64>) -> usize {
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let all = counts.iter().sum();
        kept(&counts, all)
    }

    #[test]
    fn few_words_that_have_nearly_all_requests_are_kept_among_strays() {
        let strays = vec![1; 33];
        assert_eq!(kept_of([vec![4000; 5], strays.clone()].concat()), 5);
        let declining = vec![9000, 4000, 2000, 900, 300, 100, 40, 10];
        assert_eq!(kept_of([declining, strays].concat()), 5, "those with 1 %");
    }

    #[test]
    fn words_far_above_names_are_kept() {
        let names = vec![2; 3000];
        assert_eq!(kept_of([vec![2000, 1500, 600], names].concat()), 3);
    }

    #[test]
    fn names_vary_even_if_some_are_popular() {
        assert_eq!(kept_of(vec![1; 60]), 0, "all the same");
        assert_eq!(kept_of(zipf(10_000, 100_000.0)), 0);
        assert_eq!(kept_of(zipf(100, 100_000.0)), 0);
        let one_popular = [vec![500], vec![2; 5000]].concat();
        assert_eq!(kept_of(one_popular), 0, "a user who has 5 % of the requests");
    }

    #[test]
    fn names_with_little_of_the_log_vary() {
        let counts = [vec![50; 5], vec![1; 30]].concat();
        assert_eq!(kept(&counts, 100_000), 0);
        let one_popular = [vec![2000], vec![2; 5000]].concat();
        assert_eq!(kept(&one_popular, 40_000), 0, "a user who has 5 % of the requests");
    }
}
