//! "Did you mean": the candidate nearest to a mistyped word.

/// How long a word may be before its distance to the candidates is no longer worked out: the cost
/// is the product of the lengths, and words come from files.
const LONGEST: usize = 64;

/// The candidate that `word` was probably meant to be: at most two typing mistakes away (one, for
/// words of up to three characters), or its beginning or end. Case and `-` for `_` do not count as
/// mistakes.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word)?;
    candidates
        .into_iter()
        .filter_map(|candidate| Some((mistakes(&word, &plain(candidate)?)?, candidate)))
        .min_by_key(|(mistakes, _)| *mistakes)
        .map(|(_, candidate)| candidate)
}

/// The help that goes with an unknown name: the likely candidate, else all of them.
pub(super) fn advice(word: &str, candidates: &[&str]) -> String {
    match suggest(word, candidates.iter().copied()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => one_of(candidates),
    }
}

/// All candidates, as a help.
pub(super) fn one_of(candidates: &[&str]) -> String {
    match candidates {
        [] => "nothing can be set here".to_owned(),
        _ => format!("one of: {}", candidates.join(", ")),
    }
}

fn plain(word: &str) -> Option<Vec<char>> {
    let plain = |c: char| if c == '-' { '_' } else { c.to_ascii_lowercase() };
    (word.len() <= LONGEST).then(|| word.chars().map(plain).collect())
}

/// The rank of `candidate`: the number of mistakes, or after all of those, a common beginning or end.
fn mistakes(word: &[char], candidate: &[char]) -> Option<usize> {
    let allowed = if word.len() <= 3 { 1 } else { 2 };
    let distance = distance(word, candidate);
    if distance <= allowed {
        return Some(distance);
    }
    let is_part = (word.len() >= 2 && candidate.starts_with(word))
        || (candidate.len() >= 3 && word.starts_with(candidate))
        || (word.len() >= 5 && candidate.ends_with(word));
    is_part.then_some(allowed + 1)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `from` to `to`
/// (optimal string alignment). `per` and `pre` are one mistake apart, not two.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut left = None;
    for (row, &a) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        let mut above = None;
        for (column, &b) in to.iter().enumerate() {
            let at = |line: &[usize], column: usize| line.get(column).copied().unwrap_or(LONGEST);
            let mut cost = (at(&last, column) + usize::from(a != b))
                .min(at(&last, column + 1) + 1)
                .min(at(&current, column) + 1);
            if left == Some(b) && above == Some(a) {
                cost = cost.min(at(&before_last, column.wrapping_sub(1)) + 1);
            }
            current.push(cost);
            above = Some(b);
        }
        left = Some(a);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: [&str; 7] =
        ["per", "rate", "algorithm", "burst", "refund", "on_store_error", "concurrent"];

    #[test]
    fn nearest_candidate_is_suggested() {
        for (word, expected) in [
            ("rat", Some("rate")),
            ("pre", Some("per")),
            ("Rate", Some("rate")),
            ("algo", Some("algorithm")),
            ("algoritm", Some("algorithm")),
            ("bursts", Some("burst")),
            ("burst_size", Some("burst")),
            ("on-store-error", Some("on_store_error")),
            ("concurrency", Some("concurrent")),
            ("key", None),
            ("x", None),
            ("", None),
            ("timezone", None),
        ] {
            assert_eq!(suggest(word, FIELDS), expected, "{word}");
        }
    }

    #[test]
    fn fewest_mistakes_win_over_order() {
        assert_eq!(suggest("headers", ["header", "headers"]), Some("headers"));
    }

    #[test]
    fn all_candidates_are_listed_when_none_is_near() {
        assert_eq!(advice("zzzz", &["open", "closed"]), "one of: open, closed");
        assert_eq!(advice("zzzz", &[]), "nothing can be set here");
    }

    proptest! {
        #[test]
        fn prop_distance_is_symmetric_and_bounded(a in "[abc]{0,8}", b in "[abc]{0,8}") {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let there = distance(&a, &b);
            prop_assert_eq!(there, distance(&b, &a));
            prop_assert_eq!(there == 0, a == b);
            prop_assert!(there >= a.len().abs_diff(b.len()) && there <= a.len().max(b.len()));
        }
    }
}
