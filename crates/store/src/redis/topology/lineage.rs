//! Which of several servers has the current data of a shard.
//!
//! A server that says that it is primary may have been restarted without data after another one was
//! promoted, or may not know of the promotion. Their replication IDs (`INFO replication`)
//! distinguish them: a replica takes its primary's ID over, and gets a new one when it is promoted,
//! with the old ID as its second. The ID of the data in use is written to a roster beside the
//! counters, so that it is replicated with them. The roster's epoch grows each time that another ID
//! comes into use.

use std::{
    cmp::{Ordering, Reverse},
    fmt,
};

use crate::redis::info::field;

/// A replication ID, as `INFO` reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplicationId(Box<str>);

/// Where the data of a server come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// Its replication ID.
    pub(crate) id: ReplicationId,
    /// The replication ID before it was promoted; none if it was not.
    previous: Option<ReplicationId>,
    /// Its replication offset: how many bytes were ever written.
    offset: u64,
}

/// The replication ID that was in use when this was written, and its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster {
    pub(crate) epoch: u64,
    pub(crate) id: ReplicationId,
}

/// A server that says that it is primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its position in the settings.
    pub(crate) position: usize,
    pub(crate) lineage: Lineage,
    /// None: the server has none.
    pub(crate) roster: Option<Roster>,
}

/// How a server's data are related to the ID in its roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relation {
    /// The server was restarted, or does not report.
    Unrelated,
    /// The data have that ID.
    Same,
    /// The server replicated that ID until it was promoted, and the roster was not updated yet.
    Continues,
}

/// The largest epoch that is accepted: Lua's numbers are exact up to it.
const MAX_EPOCH: u64 = 1 << 53;

/// The longest replication ID that is accepted. Those of Redis have 40 digits.
const MAX_ID: usize = 64;

impl ReplicationId {
    fn parse(text: &str) -> Option<ReplicationId> {
        let is_name = (1..=MAX_ID).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // Redis reports zeros for no ID.
        let is_none = text.bytes().all(|byte| byte == b'0');
        (is_name && !is_none).then(|| ReplicationId(text.into()))
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Lineage {
    /// Whether its server replicated this ID until it was promoted.
    pub(crate) fn was_promoted_from(&self, id: &ReplicationId) -> bool {
        self.previous.as_ref() == Some(id)
    }

    /// Reads the reply to `INFO replication`; none if a field is missing.
    pub(crate) fn parse(info: &str) -> Option<Lineage> {
        let field = |name: &str| field(info, name);
        Some(Lineage {
            id: ReplicationId::parse(field("master_replid")?)?,
            previous: field("master_replid2").and_then(ReplicationId::parse),
            offset: field("master_repl_offset")?.parse().ok()?,
        })
    }
}

impl Roster {
    /// Reads a roster: the epoch and the ID, with a blank between them. None if no proxy wrote it.
    pub(crate) fn parse(text: &str) -> Option<Roster> {
        let (epoch, id) = text.split_once(' ')?;
        let is_number = !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
        let epoch = epoch.parse().ok().filter(|epoch| is_number && *epoch <= MAX_EPOCH)?;
        Some(Roster { epoch, id: ReplicationId::parse(id)? })
    }
}

impl Claim {
    /// The epoch of its roster; zero if it has none.
    pub(crate) fn epoch(&self) -> u64 {
        self.roster.as_ref().map_or(0, |roster| roster.epoch)
    }

    /// How its data are related to the ID in its roster.
    pub(crate) fn relation(&self) -> Relation {
        match &self.roster {
            Some(roster) if roster.id == self.lineage.id => Relation::Same,
            Some(roster) if self.lineage.was_promoted_from(&roster.id) => Relation::Continues,
            Some(_) | None => Relation::Unrelated,
        }
    }

    /// Orders claims by how current their data are, the most current one being the greatest, alike
    /// for all proxies. After the epoch, a server that was promoted from the ID in use ranks above
    /// that ID itself, and that above a server that was restarted. Then the larger offset ranks
    /// higher. Between equal offsets, the first in the settings ranks higher if no roster was
    /// written yet; once there is one, proxies with different settings must still agree.
    pub(crate) fn compare(&self, other: &Claim) -> Ordering {
        self.rank().cmp(&other.rank())
    }

    fn rank(&self) -> (u64, Relation, u64, Reverse<usize>, &ReplicationId, Reverse<usize>) {
        let Lineage { id, offset, .. } = &self.lineage;
        let first = if self.epoch() == 0 { self.position } else { 0 };
        (self.epoch(), self.relation(), *offset, Reverse(first), id, Reverse(self.position))
    }

    /// Whether its data are older than the known roster's, as far as can be determined.
    pub(crate) fn is_older_than(&self, known: &Roster) -> bool {
        let lineage = &self.lineage;
        let continues = lineage.id == known.id || lineage.was_promoted_from(&known.id);
        !continues && (self.epoch(), self.relation()) < (known.epoch, Relation::Same)
    }
}

#[cfg(test)]
pub(crate) mod arbitrary {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn id(name: &str) -> ReplicationId {
        ReplicationId::parse(name).unwrap()
    }

    pub(in super::super) fn lineage(name: &str, previous: Option<&str>, offset: u64) -> Lineage {
        Lineage { id: id(name), previous: previous.map(id), offset }
    }

    pub(in super::super) fn roster(epoch: u64, name: &str) -> Roster {
        Roster { epoch, id: id(name) }
    }

    fn any_id() -> impl Strategy<Value = ReplicationId> {
        "[a-d]".prop_map(|name| id(&name))
    }

    /// The previous ID is an older one.
    pub(in super::super) fn any_history() -> impl Strategy<Value = Lineage> {
        (any_id(), proptest::option::of(any_id()), 0_u64..3).prop_map(|(id, previous, offset)| {
            let previous = previous.filter(|previous| *previous < id);
            Lineage { id, previous, offset }
        })
    }

    pub(in super::super) fn any_roster() -> impl Strategy<Value = Roster> {
        (1_u64..4, any_id()).prop_map(|(epoch, id)| Roster { epoch, id })
    }

    pub(crate) fn any_claim() -> impl Strategy<Value = Claim> {
        (0_usize..4, any_history(), proptest::option::of(any_roster()))
            .prop_map(|(position, lineage, roster)| Claim { position, lineage, roster })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        arbitrary::{any_claim, any_history, any_roster, id, lineage, roster},
        *,
    };

    const ID: &str = "8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb";

    fn claim(position: usize, lineage: Lineage, roster: Option<Roster>) -> Claim {
        Claim { position, lineage, roster }
    }

    proptest! {
        #[test]
        fn prop_claims_have_one_order(one in any_claim(), two in any_claim(), three in any_claim()) {
            prop_assert_eq!(one.compare(&two), two.compare(&one).reverse());
            prop_assert_eq!(one.compare(&one), Ordering::Equal);
            let mut all = [&one, &two, &three];
            all.sort_by(|one, other| one.compare(other));
            prop_assert!(all[0].compare(all[2]) != Ordering::Greater);
            // Servers have different positions: no two of them are equal.
            if one.position != two.position {
                prop_assert_ne!(one.compare(&two), Ordering::Equal);
            }
        }

        #[test]
        fn prop_settings_make_no_difference_once_a_roster_is_written(
            (one, other) in (any_history(), any_history()),
            (first, second) in (any_roster(), any_roster()),
            places in any::<[u8; 4]>(),
        ) {
            let places = places.map(usize::from);
            let compare = |here: usize, there: usize| {
                let one = claim(here, one.clone(), Some(first.clone()));
                one.compare(&claim(there, other.clone(), Some(second.clone())))
            };
            // Servers with the same data differ by nothing else.
            if one.id != other.id {
                prop_assert_eq!(compare(places[0], places[1]), compare(places[2], places[3]));
            }
        }

        #[test]
        fn prop_reading_never_panics(text in "[ -~\r\n]{0,80}") {
            let _ = (Lineage::parse(&text), Roster::parse(&text));
        }
    }

    #[test]
    fn newer_histories_rank_above_older_ones() {
        let in_order = [
            // Restarted without data, and not written to.
            claim(1, lineage("e", None, 0), None),
            // The same, and the first in the settings.
            claim(0, lineage("d", None, 0), None),
            // It was written to.
            claim(2, lineage("c", None, 9), None),
            // Restarted with the data of the ID in use.
            claim(0, lineage("r", None, 99), Some(roster(1, "a"))),
            // That ID.
            claim(0, lineage("a", None, 50), Some(roster(1, "a"))),
            // Promoted from it; its offset does not matter.
            claim(1, lineage("p", Some("a"), 40), Some(roster(1, "a"))),
            // Of two promoted ones, the one that had more.
            claim(2, lineage("q", Some("a"), 41), Some(roster(1, "a"))),
            // In the roster as the one in use.
            claim(1, lineage("p", Some("a"), 40), Some(roster(2, "p"))),
        ];
        assert!(in_order.is_sorted_by(|one, other| one.compare(other) == Ordering::Less));
    }

    #[test]
    fn history_is_read_from_info() {
        let info = format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:{ID}\r\n\
             master_replid2:{}\r\nmaster_repl_offset:1234\r\nsecond_repl_offset:-1\r\n",
            "0".repeat(40)
        );
        assert_eq!(Lineage::parse(&info), Some(lineage(ID, None, 1234)));
        let promoted = info.replace(&"0".repeat(40), &"b".repeat(40));
        assert_eq!(Lineage::parse(&promoted), Some(lineage(ID, Some(&"b".repeat(40)), 1234)));
        for name in ["master_replid:", "master_repl_offset"] {
            assert_eq!(Lineage::parse(&info.replace(name, "x")), None, "{name}");
        }
    }

    #[test]
    fn only_what_a_proxy_writes_is_a_roster() {
        assert_eq!(Roster::parse(&format!("7 {ID}")), Some(roster(7, ID)));
        for text in
            ["", "7", "7 ", " a", "-7 a", "+7 a", "7 a b", "7 0", "7 ü", "9007199254740993 a"]
        {
            assert_eq!(Roster::parse(text), None, "{text}");
        }
    }

    #[test]
    fn data_that_continue_the_id_in_use_are_not_older() {
        let known = roster(3, "a");
        let is_older = |lineage, roster| claim(0, lineage, roster).is_older_than(&known);
        assert!(!is_older(lineage("a", None, 0), None), "its roster was deleted");
        assert!(!is_older(lineage("p", Some("a"), 0), None), "it was promoted at once");
        assert!(!is_older(lineage("x", None, 0), Some(roster(4, "x"))));
        assert!(is_older(lineage("e", None, 0), None), "it came back empty");
        assert!(is_older(lineage("e", None, 0), Some(roster(2, "e"))));
        assert!(is_older(lineage("r", None, 0), Some(roster(3, "a"))), "it was started again");
        assert_eq!(id("a").to_string(), "a");
    }
}
