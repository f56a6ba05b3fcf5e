//! Which of several servers has the data of a shard that goes on.
//!
//! A server that says that it is primary may have come back empty after another was promoted, or
//! never have heard of the promotion. What tells them apart is where their data come from: Redis
//! gives each line of data a name (`INFO replication`), which a replica takes over from its primary
//! and leaves behind when it is promoted, with the old name as its second. Which line is in use is
//! written down in a roster beside the counters, so that it goes along with them; its epoch grows
//! with each line that takes the place of another.

use std::{
    cmp::{Ordering, Reverse},
    fmt,
};

/// The name of a line of data, as `INFO` tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineId(Box<str>);

/// Where the data of a server come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// What its data are called.
    line: LineId,
    /// What they were called before it was promoted; none if it was not.
    before: Option<LineId>,
    /// How much was ever written, in bytes.
    offset: u64,
}

/// The line of data that was in use when this was written, and how many were before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roster {
    pub(super) epoch: u64,
    pub(super) line: LineId,
}

/// A server that says that it is primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Its place in the configuration.
    pub(super) position: usize,
    pub(super) history: History,
    /// None: it has none.
    pub(super) roster: Option<Roster>,
}

/// How a server's data are related to the line that its roster names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It was started again, or does not tell.
    Unrelated,
    /// They are that line.
    Same,
    /// It followed that line until it was promoted: nobody has written down yet that it is in use.
    Continues,
}

/// No more than this is believed of an epoch: Lua counts exactly so far.
const MAX_EPOCH: u64 = 1 << 53;

/// The longest name of a line that is believed. Those of Redis have 40 digits.
const MAX_LINE: usize = 64;

impl LineId {
    fn parse(text: &str) -> Option<LineId> {
        let is_name = (1..=MAX_LINE).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // Zeros stand for no line.
        let is_none = text.bytes().all(|byte| byte == b'0');
        (is_name && !is_none).then(|| LineId(text.into()))
    }
}

impl fmt::Display for LineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl History {
    pub(super) fn line(&self) -> &LineId {
        &self.line
    }

    /// Whether it followed a server with this line until it was promoted.
    pub(super) fn comes_from(&self, line: &LineId) -> bool {
        self.before.as_ref() == Some(line)
    }

    /// Reads the answer to `INFO replication`; none if it does not tell.
    pub(super) fn parse(info: &str) -> Option<History> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        Some(History {
            line: LineId::parse(field("master_replid")?)?,
            before: field("master_replid2").and_then(LineId::parse),
            offset: field("master_repl_offset")?.parse().ok()?,
        })
    }
}

impl Roster {
    /// Reads what is written down: the epoch and the line, with a blank between them. None if no
    /// proxy wrote this.
    pub(super) fn parse(text: &str) -> Option<Roster> {
        let (epoch, line) = text.split_once(' ')?;
        let is_number = !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
        let epoch = epoch.parse().ok().filter(|epoch| is_number && *epoch <= MAX_EPOCH)?;
        Some(Roster { epoch, line: LineId::parse(line)? })
    }
}

impl Claim {
    /// The epoch of its roster; zero if it has none.
    pub(super) fn epoch(&self) -> u64 {
        self.roster.as_ref().map_or(0, |roster| roster.epoch)
    }

    /// How its data are related to the line of its roster.
    pub(super) fn standing(&self) -> Standing {
        match &self.roster {
            Some(roster) if roster.line == self.history.line => Standing::Same,
            Some(roster) if self.history.comes_from(&roster.line) => Standing::Continues,
            Some(_) | None => Standing::Unrelated,
        }
    }

    /// Orders claims by their histories, the newest being the greatest, alike for all who ask. After
    /// the epoch, a server that was promoted from the line in use comes before that line itself, and
    /// that before one that was started again. Else it is the one that was written to most. Where
    /// that is nothing, it is the first in the configuration if nobody has chosen yet; if somebody
    /// has, configurations that differ must make no difference.
    pub(super) fn compare(&self, other: &Claim) -> Ordering {
        self.rank().cmp(&other.rank())
    }

    fn rank(&self) -> (u64, Standing, u64, Reverse<usize>, &LineId, Reverse<usize>) {
        let History { line, offset, .. } = &self.history;
        let first = if self.epoch() == 0 { self.position } else { 0 };
        (self.epoch(), self.standing(), *offset, Reverse(first), line, Reverse(self.position))
    }

    /// Whether its data are older than the line that was in use, as far as can be told.
    pub(super) fn is_older_than(&self, known: &Roster) -> bool {
        let history = &self.history;
        let goes_on = *history.line() == known.line || history.comes_from(&known.line);
        !goes_on && (self.epoch(), self.standing()) < (known.epoch, Standing::Same)
    }
}

#[cfg(test)]
pub(super) mod arbitrary {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn line(name: &str) -> LineId {
        LineId::parse(name).unwrap()
    }

    pub(in super::super) fn history(name: &str, before: Option<&str>, offset: u64) -> History {
        History { line: line(name), before: before.map(line), offset }
    }

    pub(in super::super) fn roster(epoch: u64, name: &str) -> Roster {
        Roster { epoch, line: line(name) }
    }

    fn any_line() -> impl Strategy<Value = LineId> {
        "[a-d]".prop_map(|name| line(&name))
    }

    /// A line comes from an older one.
    pub(in super::super) fn any_history() -> impl Strategy<Value = History> {
        (any_line(), proptest::option::of(any_line()), 0_u64..3).prop_map(
            |(line, before, offset)| {
                let before = before.filter(|before| *before < line);
                History { line, before, offset }
            },
        )
    }

    pub(in super::super) fn any_roster() -> impl Strategy<Value = Roster> {
        (1_u64..4, any_line()).prop_map(|(epoch, line)| Roster { epoch, line })
    }

    pub(super) fn any_claim() -> impl Strategy<Value = Claim> {
        (0_usize..4, any_history(), proptest::option::of(any_roster()))
            .prop_map(|(position, history, roster)| Claim { position, history, roster })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        arbitrary::{any_claim, any_history, any_roster, history, line, roster},
        *,
    };

    const ID: &str = "8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb";

    fn claim(position: usize, history: History, roster: Option<Roster>) -> Claim {
        Claim { position, history, roster }
    }

    proptest! {
        #[test]
        fn prop_claims_have_one_order(one in any_claim(), two in any_claim(), three in any_claim()) {
            prop_assert_eq!(one.compare(&two), two.compare(&one).reverse());
            prop_assert_eq!(one.compare(&one), Ordering::Equal);
            let mut all = [&one, &two, &three];
            all.sort_by(|one, other| one.compare(other));
            prop_assert!(all[0].compare(all[2]) != Ordering::Greater);
            // Servers have different places: no two of them are alike.
            if one.position != two.position {
                prop_assert_ne!(one.compare(&two), Ordering::Equal);
            }
        }

        #[test]
        fn prop_configurations_that_differ_make_no_difference_once_somebody_has_chosen(
            (one, other) in (any_history(), any_history()),
            (first, second) in (any_roster(), any_roster()),
            places in any::<[u8; 4]>(),
        ) {
            let places = places.map(usize::from);
            let compare = |here: usize, there: usize| {
                let one = claim(here, one.clone(), Some(first.clone()));
                one.compare(&claim(there, other.clone(), Some(second.clone())))
            };
            // Servers whose data are the same can be told apart by nothing else.
            if one.line != other.line {
                prop_assert_eq!(compare(places[0], places[1]), compare(places[2], places[3]));
            }
        }

        #[test]
        fn prop_reading_never_panics(text in "[ -~\r\n]{0,80}") {
            let _ = (History::parse(&text), Roster::parse(&text));
        }
    }

    #[test]
    fn newer_histories_come_after_older_ones() {
        let in_order = [
            // Came back empty, and nobody wrote there.
            claim(1, history("e", None, 0), None),
            // The same, and the first in the configuration.
            claim(0, history("d", None, 0), None),
            // Somebody wrote there.
            claim(2, history("c", None, 9), None),
            // Started again with the data of the line in use.
            claim(0, history("r", None, 99), Some(roster(1, "a"))),
            // That line.
            claim(0, history("a", None, 50), Some(roster(1, "a"))),
            // Promoted from it, however much it was written to since.
            claim(1, history("p", Some("a"), 40), Some(roster(1, "a"))),
            // Two promoted ones: the one that had more of it.
            claim(2, history("q", Some("a"), 41), Some(roster(1, "a"))),
            // Written down as the one in use.
            claim(1, history("p", Some("a"), 40), Some(roster(2, "p"))),
        ];
        assert!(in_order.is_sorted_by(|one, other| one.compare(other) == Ordering::Less));
    }

    #[test]
    fn history_is_read_from_what_redis_tells() {
        let info = format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:{ID}\r\n\
             master_replid2:{}\r\nmaster_repl_offset:1234\r\nsecond_repl_offset:-1\r\n",
            "0".repeat(40)
        );
        assert_eq!(History::parse(&info), Some(history(ID, None, 1234)));
        let promoted = info.replace(&"0".repeat(40), &"b".repeat(40));
        assert_eq!(History::parse(&promoted), Some(history(ID, Some(&"b".repeat(40)), 1234)));
        for name in ["master_replid:", "master_repl_offset"] {
            assert_eq!(History::parse(&info.replace(name, "x")), None, "{name}");
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
    fn data_that_follow_the_line_in_use_are_not_older() {
        let known = roster(3, "a");
        let is_older = |history, roster| claim(0, history, roster).is_older_than(&known);
        assert!(!is_older(history("a", None, 0), None), "its roster was deleted");
        assert!(!is_older(history("p", Some("a"), 0), None), "it was promoted at once");
        assert!(!is_older(history("x", None, 0), Some(roster(4, "x"))));
        assert!(is_older(history("e", None, 0), None), "it came back empty");
        assert!(is_older(history("e", None, 0), Some(roster(2, "e"))));
        assert!(is_older(history("r", None, 0), Some(roster(3, "a"))), "it was started again");
        assert_eq!(line("a").to_string(), "a");
    }
}
