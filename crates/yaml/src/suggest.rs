//! "Did you mean": the candidate nearest to a mistyped word.

use strsim::osa_distance;

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

/// The candidate of which `word` is a mistyped form: not one that it is a part of.
pub(super) fn mistyped<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let meant = suggest(word, candidates)?;
    let [word, plain_of_it] = [plain(word)?, plain(meant)?];
    (osa_distance(&word, &plain_of_it) <= allowed(&word)).then_some(meant)
}

/// How many mistakes a word may have.
fn allowed(word: &str) -> usize {
    if word.chars().count() <= 3 { 1 } else { 2 }
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

fn plain(word: &str) -> Option<String> {
    (word.len() <= LONGEST).then(|| word.to_ascii_lowercase().replace('-', "_"))
}

/// The rank of `candidate`: the number of mistakes, or after all of those, a common beginning or
/// end.
fn mistakes(word: &str, candidate: &str) -> Option<usize> {
    let length = word.chars().count();
    let allowed = allowed(word);
    // Swapped neighbours are one mistake: `pre` is `per`.
    let distance = osa_distance(word, candidate);
    if distance <= allowed {
        return Some(distance);
    }
    let is_part = (length >= 2 && candidate.starts_with(word))
        || (candidate.chars().count() >= 3 && word.starts_with(candidate))
        || (length >= 5 && candidate.ends_with(word));
    is_part.then_some(allowed + 1)
}

#[cfg(test)]
mod tests {
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
}
