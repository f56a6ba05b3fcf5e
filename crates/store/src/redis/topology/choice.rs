//! Chooses the server of a shard from the answers of all of them: a pure function, so all proxies
//! with the same answers choose the same server.

use super::lineage::{Claim, Lineage, Roster};

/// What a server reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SelfReport {
    /// Whether it is primary. None: it does not answer.
    pub(super) is_primary: Option<bool>,
    /// None: it does not report it.
    pub(super) lineage: Option<Lineage>,
    pub(super) roster: RosterRead,
}

/// The roster at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum RosterRead {
    /// The server does not respond or does not permit reads, or the value is not a roster.
    #[default]
    Unreadable,
    Missing,
    Written(Roster),
}

/// What is known before the servers answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriorState<'k> {
    /// The position of the server that is used.
    pub(super) current: usize,
    /// Whether that server counts as away. One that has only paused does not.
    pub(super) is_away: bool,
    /// The newest roster that was seen in use, and the position of the server that had it.
    pub(super) newest: Option<(&'k Roster, usize)>,
    /// Whether that server has not answered for so long that it is not waited for.
    pub(super) is_overdue: bool,
    /// Whether the roster cannot be written.
    pub(super) cannot_write: bool,
}

/// The choice, and what follows from it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The server that is used from now on. None: the current one stays, if there is one.
    pub(super) winner: Option<usize>,
    /// Servers that say that they are primary, and are not used.
    pub(super) rivals: Vec<usize>,
    /// The roster to write at the winner, if its own is not right.
    pub(super) entry: Option<Roster>,
    /// The histories cannot be compared: a server that is used stays in use.
    pub(super) is_ambiguous: bool,
}

impl SelfReport {
    fn epoch(&self) -> u64 {
        match &self.roster {
            RosterRead::Written(roster) => roster.epoch,
            RosterRead::Missing | RosterRead::Unreadable => 0,
        }
    }

    /// Its claim; none if it is no primary, or does not report all that is needed.
    fn claim(&self, position: usize, prior: &PriorState<'_>) -> Option<Claim> {
        let lineage = self.lineage.clone().filter(|_| self.is_primary == Some(true))?;
        let mut roster = match &self.roster {
            RosterRead::Unreadable => return None,
            RosterRead::Missing => None,
            RosterRead::Written(roster) => Some(roster.clone()),
        };
        // The roster was deleted: the newest known one still applies, and is written back.
        if let Some((newest, _)) = prior.newest
            && lineage.id == newest.id
            && newest.epoch > self.epoch()
        {
            roster = Some(newest.clone());
        }
        Some(Claim { position, lineage, roster })
    }
}

/// Chooses a shard's server by the answers, in the order of the settings.
pub(super) fn choose(reports: &[SelfReport], prior: PriorState<'_>) -> Choice {
    let is_claimant = |at: usize| reports.get(at).is_some_and(|it| it.is_primary == Some(true));
    let claimants: Vec<usize> = (0..reports.len()).filter(|at| is_claimant(*at)).collect();
    let others = |used: usize| claimants.iter().copied().filter(|at| *at != used).collect();
    let is_silent = |at: usize| reports.get(at).is_some_and(|it| it.is_primary.is_none());
    let keep_current = |is_ambiguous| {
        let rivals = others(prior.current);
        Choice { winner: None, rivals, entry: None, is_ambiguous }
    };

    let claims: Option<Vec<Claim>> =
        claimants.iter().map(|at| reports.get(*at)?.claim(*at, &prior)).collect();
    let newest = claims.as_deref().and_then(newest);
    // Without a primary there is nothing to compare.
    let is_ambiguous = !claimants.is_empty() && (newest.is_none() || prior.cannot_write);
    // A server that has only paused is not replaced: two that both take charges would admit twice
    // the limit.
    if is_silent(prior.current) && !prior.is_away {
        return keep_current(is_ambiguous);
    }
    let Some(first) = claimants.first() else { return keep_current(false) };
    let winner = match newest {
        Some(newest) if !is_ambiguous => newest.position,
        _ if is_claimant(prior.current) => prior.current,
        _ => *first,
    };
    let claim = claims.as_ref().and_then(|all| all.iter().find(|one| one.position == winner));
    // The server with newer data may be back in a moment.
    if let (Some(claim), Some((newest, holder))) = (claim, prior.newest)
        && !is_ambiguous
        && claim.is_older_than(newest)
        && is_silent(holder)
        && !prior.is_overdue
    {
        return keep_current(false);
    }
    let entry = claim.and_then(|claim| entry(claim, reports, &prior));
    Choice { winner: Some(winner), rivals: others(winner), entry, is_ambiguous }
}

/// The claim with the most current data. A server that was promoted from another one's data ranks
/// above that one, even without the roster.
fn newest(claims: &[Claim]) -> Option<&Claim> {
    let mut newest = claims.iter().max_by(|one, other| one.compare(other))?;
    // No ID comes from itself, but servers may report anything.
    for _ in claims {
        let id = &newest.lineage.id;
        let promoted = claims.iter().filter(|claim| claim.lineage.was_promoted_from(id));
        match promoted.max_by(|one, other| one.compare(other)) {
            Some(promoted) => newest = promoted,
            None => break,
        }
    }
    Some(newest)
}

/// The roster to write at the winner, so that its claim ranks above all others; none if it has that
/// roster.
fn entry(claim: &Claim, reports: &[SelfReport], prior: &PriorState<'_>) -> Option<Roster> {
    let id = &claim.lineage.id;
    let is_written =
        |it: &SelfReport| matches!(&it.roster, RosterRead::Written(roster) if roster.id == *id);
    let own = reports.get(claim.position).filter(|own| is_written(own));
    let is_rival =
        |(at, it): &(usize, &SelfReport)| *at != claim.position && it.is_primary == Some(true);
    let highest_rival = reports.iter().enumerate().filter(is_rival).map(|(_, it)| it.epoch()).max();
    let known_epoch = prior.newest.map_or(0, |(newest, _)| newest.epoch);
    let seen = reports.iter().map(SelfReport::epoch).max().unwrap_or(0).max(known_epoch);
    let is_settled = own.is_some_and(|own| own.epoch() == seen) && highest_rival < Some(seen);
    (!is_settled).then(|| Roster { epoch: seen + 1, id: id.clone() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redis::topology::lineage::arbitrary::{any_history, any_roster, lineage, roster};

    const NEW: PriorState<'static> = PriorState {
        current: 0,
        is_away: true,
        newest: None,
        is_overdue: false,
        cannot_write: false,
    };

    fn primary(lineage: Lineage, written: Option<Roster>) -> SelfReport {
        let roster = written.map_or(RosterRead::Missing, RosterRead::Written);
        SelfReport { is_primary: Some(true), lineage: Some(lineage), roster }
    }

    fn replica(lineage: Lineage, written: Option<Roster>) -> SelfReport {
        SelfReport { is_primary: Some(false), ..primary(lineage, written) }
    }

    fn silent() -> SelfReport {
        SelfReport::default()
    }

    fn any_report() -> impl Strategy<Value = SelfReport> {
        let roster = prop_oneof![
            Just(RosterRead::Unreadable),
            Just(RosterRead::Missing),
            any_roster().prop_map(RosterRead::Written),
        ];
        (any::<Option<bool>>(), proptest::option::of(any_history()), roster)
            .prop_map(|(is_primary, lineage, roster)| SelfReport { is_primary, lineage, roster })
    }

    proptest! {
        #[test]
        fn prop_winner_is_a_claimant_and_all_other_claimants_are_rivals(
            reports in proptest::collection::vec(any_report(), 1..5),
            (current, is_away, is_overdue, cannot_write) in any::<(usize, bool, bool, bool)>(),
            newest in proptest::option::of((any_roster(), 0_usize..5)),
        ) {
            let current = current % reports.len();
            let newest = newest.as_ref().map(|(roster, holder)| (roster, *holder));
            let prior = PriorState { current, is_away, newest, is_overdue, cannot_write };
            let choice = choose(&reports, prior);
            let is_claimant = |at: usize| reports[at].is_primary == Some(true);
            prop_assert!(choice.winner.is_none_or(is_claimant));
            let used = choice.winner.unwrap_or(current);
            let rivals: Vec<usize> =
                (0..reports.len()).filter(|at| is_claimant(*at) && *at != used).collect();
            prop_assert_eq!(choice.rivals, rivals);
            prop_assert!(choice.entry.is_none() || choice.winner.is_some());
        }

        /// Where all servers report everything, the choice depends only on the answers: not on the
        /// proxy, nor on the server that was used before.
        #[test]
        fn prop_same_reports_lead_to_the_same_choice(
            histories in proptest::collection::vec((any_history(), any_roster()), 1..5),
            (one, other) in any::<(usize, usize)>(),
        ) {
            let report = |(lineage, roster): (Lineage, Roster)| primary(lineage, Some(roster));
            let reports: Vec<SelfReport> = histories.into_iter().map(report).collect();
            let prior = |current: usize| PriorState { current: current % reports.len(), ..NEW };
            let first = choose(&reports, prior(one));
            let second = choose(&reports, prior(other));
            prop_assert_eq!(first, second);
        }

        /// Once the winner's roster is written, it wins for good, and nothing more is written.
        #[test]
        fn prop_written_roster_is_final(
            histories in proptest::collection::vec(
                (any_history(), proptest::option::of(any_roster())), 1..5),
        ) {
            let report = |(lineage, roster): (Lineage, Option<Roster>)| primary(lineage, roster);
            let mut reports: Vec<SelfReport> = histories.into_iter().map(report).collect();
            let first = choose(&reports, NEW);
            let winner = first.winner.unwrap();
            if let Some(entry) = first.entry {
                reports[winner].roster = RosterRead::Written(entry);
            }
            let second = choose(&reports, NEW);
            prop_assert_eq!((second.winner, second.entry), (Some(winner), None));
        }
    }

    #[test]
    fn promoted_server_wins_over_the_old_one_that_came_back_empty() {
        let promoted = primary(lineage("b", Some("a"), 50), Some(roster(1, "a")));
        let empty = primary(lineage("e", None, 0), None);
        let choice = choose(&[empty, promoted], NEW);
        assert_eq!((choice.winner, choice.rivals), (Some(1), vec![0]));
        assert_eq!(choice.entry, Some(roster(2, "b")));
    }

    #[test]
    fn promoted_server_wins_over_its_old_primary() {
        let old = primary(lineage("a", None, 90), Some(roster(1, "a")));
        for written in [Some(roster(1, "a")), None] {
            let promoted = primary(lineage("b", Some("a"), 50), written);
            let choice = choose(&[old.clone(), promoted], NEW);
            assert_eq!((choice.winner, choice.entry), (Some(1), Some(roster(2, "b"))));
        }
    }

    #[test]
    fn first_in_the_configuration_is_used_where_nothing_was_ever_written() {
        let servers = [primary(lineage("b", None, 0), None), primary(lineage("a", None, 0), None)];
        let choice = choose(&servers, NEW);
        assert_eq!((choice.winner, choice.entry), (Some(0), Some(roster(1, "b"))));
    }

    #[test]
    fn paused_server_is_not_replaced_and_one_that_is_away_is() {
        let written = Some(roster(2, "b"));
        let servers = [silent(), primary(lineage("b", Some("a"), 9), written.clone())];
        let prior = PriorState { is_away: false, ..NEW };
        assert_eq!(choose(&servers, prior).winner, None);
        assert_eq!(choose(&servers, prior).rivals, [1]);
        assert_eq!(choose(&servers, NEW).winner, Some(1));
    }

    #[test]
    fn older_data_are_not_used_while_the_server_with_newer_data_is_silent() {
        let newest = roster(2, "b");
        let servers = [primary(lineage("e", None, 0), None), silent()];
        let prior = PriorState { current: 1, newest: Some((&newest, 1)), ..NEW };
        assert_eq!(choose(&servers, prior).winner, None);
        let overdue = PriorState { is_overdue: true, ..prior };
        let choice = choose(&servers, overdue);
        assert_eq!((choice.winner, choice.entry), (Some(0), Some(roster(3, "e"))));

        // The newer data were its own, and are gone.
        let own = PriorState { newest: Some((&newest, 0)), ..prior };
        assert_eq!(choose(&servers, own).winner, Some(0));
        // The server that had them replicates it now.
        let servers = [servers[0].clone(), replica(lineage("e", None, 0), None)];
        assert_eq!(choose(&servers, prior).winner, Some(0));
    }

    #[test]
    fn roster_that_was_deleted_is_put_back() {
        let newest = roster(5, "a");
        let servers = [
            primary(lineage("a", None, 50), None),
            primary(lineage("e", None, 0), Some(roster(4, "e"))),
        ];
        let prior = PriorState { newest: Some((&newest, 0)), ..NEW };
        let choice = choose(&servers, prior);
        assert_eq!((choice.winner, choice.entry), (Some(0), Some(roster(6, "a"))));
    }

    #[test]
    fn current_server_stays_where_histories_cannot_be_compared() {
        let without_history = SelfReport { is_primary: Some(true), ..silent() };
        let complete = primary(lineage("b", None, 9), Some(roster(9, "b")));
        for (servers, cannot_write) in [
            ([without_history.clone(), complete.clone()], false),
            ([complete.clone(), complete], true),
        ] {
            for current in 0..2 {
                let choice = choose(&servers, PriorState { current, cannot_write, ..NEW });
                assert_eq!((choice.winner, choice.is_ambiguous), (Some(current), true));
            }
        }
        let servers =
            [replica(lineage("a", None, 9), None), without_history.clone(), without_history];
        assert_eq!(choose(&servers, NEW).winner, Some(1), "the first claimant");
    }
}
