//! The commands that a server has: the rights of docs/redis.md, and what clients begin with.

use super::{
    command_error::CommandError, hashes, keyspace::Keys, numbers, reply::Reply, sorted_sets,
    strings,
};

/// A command.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// How many words it has, with its name; if that is negative, at least so many.
    arity: i32,
    keys: KeyPlaces,
    pub(super) action: Action,
}

/// Where the keys are in a command's words.
#[derive(Clone, Copy, Debug)]
enum KeyPlaces {
    Nowhere,
    Second,
    AllAfterTheName,
    /// The third word is how many follow it.
    Counted,
}

/// What a command does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Something with keys.
    Data(Access, DataCommand),
    Asking,
    Cluster,
    /// Runs a script, or one that is known, by its hash.
    Eval,
    EvalSha,
    Hello,
    Info,
    Ping,
    ReadOnly,
    Role,
    Time,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Reads,
    /// It makes them smaller, or leaves them as large.
    Shrinks,
    /// It may need memory.
    Grows,
}

/// A command on keys.
type DataCommand = fn(&mut Keys<'_>, &[Vec<u8>]) -> Result<Reply, CommandError>;

use Access::{Grows, Reads, Shrinks};
use Action::Data;
use KeyPlaces::{AllAfterTheName, Counted, Nowhere, Second};

static COMMANDS: [Spec; 29] = [
    Spec::new("asking", 1, Nowhere, Action::Asking),
    Spec::new("cluster", -2, Nowhere, Action::Cluster),
    Spec::new("del", -2, AllAfterTheName, Data(Shrinks, strings::delete)),
    Spec::new("eval", -3, Counted, Action::Eval),
    Spec::new("evalsha", -3, Counted, Action::EvalSha),
    Spec::new("get", 2, Second, Data(Reads, strings::get)),
    Spec::new("getrange", 4, Second, Data(Reads, strings::get_range)),
    Spec::new("hdel", -3, Second, Data(Shrinks, hashes::delete)),
    Spec::new("hello", -1, Nowhere, Action::Hello),
    Spec::new("hgetall", 2, Second, Data(Reads, hashes::all)),
    Spec::new("hlen", 2, Second, Data(Reads, hashes::length)),
    Spec::new("hset", -4, Second, Data(Grows, hashes::set)),
    Spec::new("info", -1, Nowhere, Action::Info),
    Spec::new("pexpire", -3, Second, Data(Shrinks, strings::expire)),
    Spec::new("ping", 1, Nowhere, Action::Ping),
    Spec::new("readonly", 1, Nowhere, Action::ReadOnly),
    Spec::new("role", 1, Nowhere, Action::Role),
    Spec::new("set", -3, Second, Data(Grows, strings::set)),
    Spec::new("setrange", 4, Second, Data(Grows, strings::set_range)),
    Spec::new("strlen", 2, Second, Data(Reads, strings::length)),
    Spec::new("time", 1, Nowhere, Action::Time),
    Spec::new("zadd", -4, Second, Data(Grows, sorted_sets::add)),
    Spec::new("zcount", 4, Second, Data(Reads, sorted_sets::count)),
    Spec::new("zrange", -4, Second, Data(Reads, sorted_sets::range)),
    Spec::new("zrangebyscore", -4, Second, Data(Reads, sorted_sets::range_by_score)),
    Spec::new("zrem", -3, Second, Data(Shrinks, sorted_sets::remove)),
    Spec::new("zremrangebyrank", 4, Second, Data(Shrinks, sorted_sets::remove_by_rank)),
    Spec::new("zremrangebyscore", 4, Second, Data(Shrinks, sorted_sets::remove_by_score)),
    Spec::new("zscore", 3, Second, Data(Reads, sorted_sets::score)),
];

impl Spec {
    const fn new(name: &'static str, arity: i32, keys: KeyPlaces, action: Action) -> Spec {
        Spec { name, arity, keys, action }
    }

    /// The command with this name, in whatever letters.
    pub(super) fn named(name: &[u8]) -> Option<&'static Spec> {
        COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The command that these words are, as a client sends them.
    pub(super) fn of(words: &[Vec<u8>]) -> Result<&'static Spec, CommandError> {
        let (name, arguments) = words.split_first().ok_or(CommandError::Syntax)?;
        let spec = Spec::named(name).ok_or_else(|| CommandError::unknown(name, arguments))?;
        match spec.takes(words.len()) {
            true => Ok(spec),
            false => Err(CommandError::WrongArity(spec.name)),
        }
    }

    /// Whether it may have so many words.
    pub(super) fn takes(&self, words: usize) -> bool {
        let words = words as i32;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// What it does to its keys; none if it has nothing to do with keys, or leaves that to a
    /// script.
    pub(super) fn access(&self) -> Option<Access> {
        match self.action {
            Data(access, _) => Some(access),
            _ => None,
        }
    }

    /// Whether a server answers it that does not have its data yet.
    pub(super) fn is_answered_while_loading(&self) -> bool {
        matches!(
            self.action,
            Action::Hello | Action::Info | Action::ReadOnly | Action::Role | Action::Time
        )
    }

    /// The keys in its words.
    pub(super) fn keys<'w>(&self, words: &'w [Vec<u8>]) -> &'w [Vec<u8>] {
        match self.keys {
            Nowhere => &[],
            Second => words.get(1..2).unwrap_or_default(),
            AllAfterTheName => words.get(1..).unwrap_or_default(),
            Counted => {
                let count = words.get(2).and_then(|count| numbers::integer(count).ok());
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                words.get(3..3 + count).unwrap_or_default()
            }
        }
    }
}
