//! Which server of a shard is used, by what all of them say: pure, and the same for all who hear the
//! same.

use super::history::{Claim, History, Roster};

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hearing {
    /// Whether it is primary. None: it does not answer.
    pub(super) is_primary: Option<bool>,
    /// None: it does not tell.
    pub(super) history: Option<History>,
    pub(super) roster: RosterRead,
}

/// What is written down at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum RosterRead {
    /// It does not answer, or not let us look, or no proxy wrote what is there.
    #[default]
    Unreadable,
    Missing,
    Written(Roster),
}

/// What is known before the servers are heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'k> {
    /// The place of the server that is used.
    pub(super) present: usize,
    /// Whether it counts as away: one that only hesitates does not.
    pub(super) is_away: bool,
    /// The newest line of data that was seen in use, and the place of the server that had it.
    pub(super) newest: Option<(&'k Roster, usize)>,
    /// Whether that server has been silent for too long to wait for it.
    pub(super) is_overdue: bool,
    /// Whether nothing can be written down.
    pub(super) is_mute: bool,
}

/// What follows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The server that is used from now on. None: the one that is used now, if any.
    pub(super) winner: Option<usize>,
    /// Servers that say that they are primary, and are not used.
    pub(super) rivals: Vec<usize>,
    /// What is to be written down at the winner, as it does not say so itself.
    pub(super) entry: Option<Roster>,
    /// Histories cannot be told apart: a server that is used stays in use.
    pub(super) is_blind: bool,
}

impl Hearing {
    fn epoch(&self) -> u64 {
        match &self.roster {
            RosterRead::Written(roster) => roster.epoch,
            RosterRead::Missing | RosterRead::Unreadable => 0,
        }
    }

    /// What it claims; none if it is no primary, or does not tell all.
    fn claim(&self, position: usize, known: &Known<'_>) -> Option<Claim> {
        let history = self.history.clone().filter(|_| self.is_primary == Some(true))?;
        let mut roster = match &self.roster {
            RosterRead::Unreadable => return None,
            RosterRead::Missing => None,
            RosterRead::Written(roster) => Some(roster.clone()),
        };
        // A roster that was deleted is put back, and the server is what it was.
        if let Some((newest, _)) = known.newest
            && *history.line() == newest.line
            && newest.epoch > self.epoch()
        {
            roster = Some(newest.clone());
        }
        Some(Claim { position, history, roster })
    }
}

/// Which of a shard's servers is used, by what each of them says, in the order of the configuration.
pub(super) fn judge(hearings: &[Hearing], known: Known<'_>) -> Verdict {
    let is_claimant = |at: usize| hearings.get(at).is_some_and(|it| it.is_primary == Some(true));
    let claimants: Vec<usize> = (0..hearings.len()).filter(|at| is_claimant(*at)).collect();
    let others = |used: usize| claimants.iter().copied().filter(|at| *at != used).collect();
    let is_silent = |at: usize| hearings.get(at).is_some_and(|it| it.is_primary.is_none());
    let stay = |is_blind| {
        let rivals = others(known.present);
        Verdict { winner: None, rivals, entry: None, is_blind }
    };

    let claims: Option<Vec<Claim>> =
        claimants.iter().map(|at| hearings.get(*at)?.claim(*at, &known)).collect();
    let newest = claims.as_deref().and_then(newest);
    // With nobody to compare, there is nothing to be blind to.
    let is_blind = !claimants.is_empty() && (newest.is_none() || known.is_mute);
    // A server that only hesitates is not replaced: two that both take charges would be twice the
    // limit.
    if is_silent(known.present) && !known.is_away {
        return stay(is_blind);
    }
    let Some(first) = claimants.first() else { return stay(false) };
    let winner = match newest {
        Some(newest) if !is_blind => newest.position,
        _ if is_claimant(known.present) => known.present,
        _ => *first,
    };
    let claim = claims.as_ref().and_then(|all| all.iter().find(|one| one.position == winner));
    // Who has newer data may be back in a moment.
    if let (Some(claim), Some((newest, holder))) = (claim, known.newest)
        && !is_blind
        && claim.is_older_than(newest)
        && is_silent(holder)
        && !known.is_overdue
    {
        return stay(false);
    }
    let entry = claim.and_then(|claim| entry(claim, hearings, &known));
    Verdict { winner: Some(winner), rivals: others(winner), entry, is_blind }
}

/// The claim with the newest history. A server that was promoted from the data of another comes after
/// that one, also where it does not have the roster yet.
fn newest(claims: &[Claim]) -> Option<&Claim> {
    let mut newest = claims.iter().max_by(|one, other| one.compare(other))?;
    // No line comes from itself, but servers may say anything.
    for _ in claims {
        let line = newest.history.line();
        let promoted = claims.iter().filter(|claim| claim.history.comes_from(line));
        match promoted.max_by(|one, other| one.compare(other)) {
            Some(promoted) => newest = promoted,
            None => break,
        }
    }
    Some(newest)
}

/// What is to be written down at the winner, so that its claim is before all others: none if that is
/// what is written there.
fn entry(claim: &Claim, hearings: &[Hearing], known: &Known<'_>) -> Option<Roster> {
    let line = claim.history.line();
    let is_written =
        |it: &Hearing| matches!(&it.roster, RosterRead::Written(roster) if roster.line == *line);
    let own = hearings.get(claim.position).filter(|own| is_written(own));
    let is_rival =
        |(at, it): &(usize, &Hearing)| *at != claim.position && it.is_primary == Some(true);
    let greatest_rival =
        hearings.iter().enumerate().filter(is_rival).map(|(_, it)| it.epoch()).max();
    let known_epoch = known.newest.map_or(0, |(newest, _)| newest.epoch);
    let seen = hearings.iter().map(Hearing::epoch).max().unwrap_or(0).max(known_epoch);
    let is_settled = own.is_some_and(|own| own.epoch() == seen) && greatest_rival < Some(seen);
    (!is_settled).then(|| Roster { epoch: seen + 1, line: line.clone() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::history::arbitrary::{any_history, any_roster, history, roster},
        *,
    };

    const NEW: Known<'static> =
        Known { present: 0, is_away: true, newest: None, is_overdue: false, is_mute: false };

    fn primary(history: History, written: Option<Roster>) -> Hearing {
        let roster = written.map_or(RosterRead::Missing, RosterRead::Written);
        Hearing { is_primary: Some(true), history: Some(history), roster }
    }

    fn replica(history: History, written: Option<Roster>) -> Hearing {
        Hearing { is_primary: Some(false), ..primary(history, written) }
    }

    fn silent() -> Hearing {
        Hearing::default()
    }

    fn any_hearing() -> impl Strategy<Value = Hearing> {
        let roster = prop_oneof![
            Just(RosterRead::Unreadable),
            Just(RosterRead::Missing),
            any_roster().prop_map(RosterRead::Written),
        ];
        (any::<Option<bool>>(), proptest::option::of(any_history()), roster)
            .prop_map(|(is_primary, history, roster)| Hearing { is_primary, history, roster })
    }

    proptest! {
        #[test]
        fn prop_winner_says_so_and_all_others_who_do_are_rivals(
            hearings in proptest::collection::vec(any_hearing(), 1..5),
            (present, is_away, is_overdue, is_mute) in any::<(usize, bool, bool, bool)>(),
            newest in proptest::option::of((any_roster(), 0_usize..5)),
        ) {
            let present = present % hearings.len();
            let newest = newest.as_ref().map(|(roster, holder)| (roster, *holder));
            let known = Known { present, is_away, newest, is_overdue, is_mute };
            let verdict = judge(&hearings, known);
            let is_claimant = |at: usize| hearings[at].is_primary == Some(true);
            prop_assert!(verdict.winner.is_none_or(is_claimant));
            let used = verdict.winner.unwrap_or(present);
            let rivals: Vec<usize> =
                (0..hearings.len()).filter(|at| is_claimant(*at) && *at != used).collect();
            prop_assert_eq!(verdict.rivals, rivals);
            prop_assert!(verdict.entry.is_none() || verdict.winner.is_some());
        }

        /// All that is known of a shard whose servers tell all is what they say: whoever asks, and
        /// whichever was used before, the same one is used.
        #[test]
        fn prop_all_who_hear_the_same_use_the_same(
            histories in proptest::collection::vec((any_history(), any_roster()), 1..5),
            (one, other) in any::<(usize, usize)>(),
        ) {
            let hear = |(history, roster): (History, Roster)| primary(history, Some(roster));
            let hearings: Vec<Hearing> = histories.into_iter().map(hear).collect();
            let known = |present: usize| Known { present: present % hearings.len(), ..NEW };
            let (first, second) = (judge(&hearings, known(one)), judge(&hearings, known(other)));
            prop_assert_eq!(first, second);
        }

        /// Once the winner's claim is written down, it wins for good and there is no more to write.
        #[test]
        fn prop_what_is_written_down_settles_it(
            histories in proptest::collection::vec(
                (any_history(), proptest::option::of(any_roster())), 1..5),
        ) {
            let hear = |(history, roster): (History, Option<Roster>)| primary(history, roster);
            let mut hearings: Vec<Hearing> = histories.into_iter().map(hear).collect();
            let first = judge(&hearings, NEW);
            let winner = first.winner.unwrap();
            if let Some(entry) = first.entry {
                hearings[winner].roster = RosterRead::Written(entry);
            }
            let second = judge(&hearings, NEW);
            prop_assert_eq!((second.winner, second.entry), (Some(winner), None));
        }
    }

    #[test]
    fn promoted_server_wins_over_the_old_one_that_came_back_empty() {
        let promoted = primary(history("b", Some("a"), 50), Some(roster(1, "a")));
        let empty = primary(history("e", None, 0), None);
        let verdict = judge(&[empty, promoted], NEW);
        assert_eq!((verdict.winner, verdict.rivals), (Some(1), vec![0]));
        assert_eq!(verdict.entry, Some(roster(2, "b")));
    }

    #[test]
    fn promoted_server_wins_over_its_primary_that_goes_on() {
        let old = primary(history("a", None, 90), Some(roster(1, "a")));
        for written in [Some(roster(1, "a")), None] {
            let promoted = primary(history("b", Some("a"), 50), written);
            let verdict = judge(&[old.clone(), promoted], NEW);
            assert_eq!((verdict.winner, verdict.entry), (Some(1), Some(roster(2, "b"))));
        }
    }

    #[test]
    fn first_in_the_configuration_is_used_where_nothing_was_ever_written() {
        let servers = [primary(history("b", None, 0), None), primary(history("a", None, 0), None)];
        let verdict = judge(&servers, NEW);
        assert_eq!((verdict.winner, verdict.entry), (Some(0), Some(roster(1, "b"))));
    }

    #[test]
    fn server_that_hesitates_is_not_replaced_and_one_that_is_away_is() {
        let written = Some(roster(2, "b"));
        let servers = [silent(), primary(history("b", Some("a"), 9), written.clone())];
        let known = Known { is_away: false, ..NEW };
        assert_eq!(judge(&servers, known).winner, None);
        assert_eq!(judge(&servers, known).rivals, [1]);
        assert_eq!(judge(&servers, NEW).winner, Some(1));
    }

    #[test]
    fn older_data_wait_for_newer_ones_that_are_silent_for_a_while() {
        let newest = roster(2, "b");
        let servers = [primary(history("e", None, 0), None), silent()];
        let known = Known { present: 1, newest: Some((&newest, 1)), ..NEW };
        assert_eq!(judge(&servers, known).winner, None);
        let overdue = Known { is_overdue: true, ..known };
        let verdict = judge(&servers, overdue);
        assert_eq!((verdict.winner, verdict.entry), (Some(0), Some(roster(3, "e"))));

        // The newer ones were its own, and are gone.
        let own = Known { newest: Some((&newest, 0)), ..known };
        assert_eq!(judge(&servers, own).winner, Some(0));
        // Who had them follows it.
        let servers = [servers[0].clone(), replica(history("e", None, 0), None)];
        assert_eq!(judge(&servers, known).winner, Some(0));
    }

    #[test]
    fn roster_that_was_deleted_is_put_back() {
        let newest = roster(5, "a");
        let servers = [
            primary(history("a", None, 50), None),
            primary(history("e", None, 0), Some(roster(4, "e"))),
        ];
        let known = Known { newest: Some((&newest, 0)), ..NEW };
        let verdict = judge(&servers, known);
        assert_eq!((verdict.winner, verdict.entry), (Some(0), Some(roster(6, "a"))));
    }

    #[test]
    fn present_server_stays_where_histories_cannot_be_told_apart() {
        let dumb = Hearing { is_primary: Some(true), ..silent() };
        let told = primary(history("b", None, 9), Some(roster(9, "b")));
        for (servers, is_mute) in
            [([dumb.clone(), told.clone()], false), ([told.clone(), told], true)]
        {
            for present in 0..2 {
                let verdict = judge(&servers, Known { present, is_mute, ..NEW });
                assert_eq!((verdict.winner, verdict.is_blind), (Some(present), true));
            }
        }
        let servers = [replica(history("a", None, 9), None), dumb.clone(), dumb];
        assert_eq!(judge(&servers, NEW).winner, Some(1), "the first that says so");
    }
}
