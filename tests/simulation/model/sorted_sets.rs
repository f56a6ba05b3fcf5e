//! Sorted sets, and the commands on them.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{
    command_error::CommandError,
    keyspace::{Keys, Value},
    numbers::{self, Bound, positions},
    reply::Reply,
};

/// A sorted set.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedSet {
    scores: BTreeMap<Vec<u8>, f64>,
}

/// A member with its score.
type Member = (Vec<u8>, f64);

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    /// How many bytes its members and scores have.
    pub(super) fn size(&self) -> usize {
        self.scores.keys().map(|member| member.len() + size_of::<f64>()).sum()
    }

    /// All members, by score and then by name.
    fn in_order(&self) -> Vec<Member> {
        self.chosen(|_| true)
    }

    /// Those with a score in a range, in order.
    fn between(&self, low: Bound, high: Bound) -> Vec<Member> {
        self.chosen(|score| low.admits_above(score) && high.admits_below(score))
    }

    fn chosen(&self, is_chosen: impl Fn(f64) -> bool) -> Vec<Member> {
        let chosen = self.scores.iter().filter(|(_, score)| is_chosen(**score));
        let mut members: Vec<Member> =
            chosen.map(|(member, score)| (member.clone(), *score)).collect();
        // The sort is stable, and names are in order already. No score is NaN.
        members.sort_by(|(_, one), (_, other)| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        members
    }
}

/// `ZADD key [NX | XX] (score member)…`.
pub(super) fn add(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let (mut only_new, mut only_known) = (false, false);
    let mut at = 2;
    loop {
        match words[at].to_ascii_uppercase().as_slice() {
            b"NX" => only_new = true,
            b"XX" => only_known = true,
            _ => break,
        }
        at += 1;
        if at == words.len() {
            break;
        }
    }
    let (pairs, rest) = words[at..].as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(CommandError::Syntax);
    }
    if only_new && only_known {
        return Err(CommandError::ContraryOptions);
    }
    let scores: Result<Vec<f64>, _> =
        pairs.iter().map(|[score, _]| numbers::float(score)).collect();
    let scores = scores?;
    let mut set = keys.sorted_set(&words[1])?.cloned().unwrap_or_default();
    let (mut added, mut is_changed) = (0, false);
    for ([_, member], score) in pairs.iter().zip(scores) {
        let known = set.scores.get(member).copied();
        let is_written = if known.is_some() { !only_new } else { !only_known };
        if is_written && known != Some(score) {
            set.scores.insert(member.clone(), score);
            added += usize::from(known.is_none());
            is_changed = true;
        }
    }
    if is_changed {
        keys.replace(&words[1], Value::SortedSet(set));
    }
    Ok(Reply::count(added))
}

/// `ZCOUNT key min max`.
pub(super) fn count(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let (low, high) = (Bound::parse(&words[2])?, Bound::parse(&words[3])?);
    Ok(Reply::count(keys.sorted_set(&words[1])?.map_or(0, |set| set.between(low, high).len())))
}

/// `ZRANGE key first last [WITHSCORES]`.
pub(super) fn range(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let with_scores = match &words[4..] {
        [] => false,
        [option] if option.eq_ignore_ascii_case(b"WITHSCORES") => true,
        _ => return Err(CommandError::Syntax),
    };
    let (first, last) = (numbers::integer(&words[2])?, numbers::integer(&words[3])?);
    let members = keys.sorted_set(&words[1])?.map(SortedSet::in_order).unwrap_or_default();
    let members = members[positions(first, last, members.len())].to_vec();
    Ok(if with_scores { Reply::Scored(members) } else { names(members) })
}

/// `ZRANGEBYSCORE key min max`.
pub(super) fn range_by_score(
    keys: &mut Keys<'_>,
    words: &[Vec<u8>],
) -> Result<Reply, CommandError> {
    let [] = &words[4..] else { return Err(CommandError::Syntax) };
    let (low, high) = (Bound::parse(&words[2])?, Bound::parse(&words[3])?);
    let members = keys.sorted_set(&words[1])?.map(|set| set.between(low, high));
    Ok(names(members.unwrap_or_default()))
}

fn names(members: Vec<Member>) -> Reply {
    Reply::Array(members.into_iter().map(|(member, _)| Reply::Bulk(member)).collect())
}

/// `ZSCORE key member`.
pub(super) fn score(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let score = keys.sorted_set(&words[1])?.and_then(|set| set.scores.get(&words[2]));
    Ok(score.map_or(Reply::Nil, |score| Reply::Score(*score)))
}

/// `ZREM key member…`.
pub(super) fn remove(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    remove_members(keys, &words[1], |_| words[2..].to_vec())
}

/// `ZREMRANGEBYRANK key first last`.
pub(super) fn remove_by_rank(
    keys: &mut Keys<'_>,
    words: &[Vec<u8>],
) -> Result<Reply, CommandError> {
    let (first, last) = (numbers::integer(&words[2])?, numbers::integer(&words[3])?);
    remove_members(keys, &words[1], |set| {
        let members = set.in_order();
        let removed = members[positions(first, last, members.len())].iter();
        removed.map(|(member, _)| member.clone()).collect()
    })
}

/// `ZREMRANGEBYSCORE key min max`.
pub(super) fn remove_by_score(
    keys: &mut Keys<'_>,
    words: &[Vec<u8>],
) -> Result<Reply, CommandError> {
    let (low, high) = (Bound::parse(&words[2])?, Bound::parse(&words[3])?);
    remove_members(keys, &words[1], |set| {
        set.between(low, high).into_iter().map(|(member, _)| member).collect()
    })
}

/// Removes the members that `choose` returns, and replies how many of them there were.
fn remove_members(
    keys: &mut Keys<'_>,
    key: &[u8],
    choose: impl FnOnce(&SortedSet) -> Vec<Vec<u8>>,
) -> Result<Reply, CommandError> {
    let Some(mut set) = keys.sorted_set(key)?.cloned() else { return Ok(Reply::count(0)) };
    let chosen = choose(&set);
    let removed = chosen.iter().filter(|member| set.scores.remove(*member).is_some()).count();
    if removed > 0 {
        keys.replace(key, Value::SortedSet(set));
    }
    Ok(Reply::count(removed))
}
