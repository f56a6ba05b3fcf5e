//! What a listener says of itself and of its commands.

use std::fmt::Write;

use tollgate_clock::Timestamp;
use tollgate_wire::resp::{Arguments, Protocol, Replies};

use super::{Engine, Session, unknown, wrong_number};

/// The version of Redis that clients may take it for: the first with all that they ask for when
/// they connect.
const REDIS_VERSION: &str = "7.2.0";

/// A command as `COMMAND` describes it.
struct Described {
    name: &'static str,
    /// Words with the name; negative: at least so many.
    arity: i64,
    flags: &'static [&'static str],
    /// Whether its first argument is a key, and whether all are.
    keys: Keys,
    summary: &'static str,
}

#[derive(Clone, Copy)]
enum Keys {
    None,
    First,
    All,
}

const WRITE: &[&str] = &["write", "denyoom", "fast"];
const READ: &[&str] = &["readonly", "fast"];
const CONNECTION: &[&str] = &["loading", "stale", "fast"];

#[rustfmt::skip]
const COMMANDS: &[Described] = &[
    described("rl.get", -4, READ, Keys::First, "What a bucket holds; times in seconds"),
    described("rl.pget", -4, READ, Keys::First, "What a bucket holds; times in milliseconds"),
    described("rl.reduce", -4, WRITE, Keys::First, "Takes from a bucket; times in seconds"),
    described("rl.preduce", -4, WRITE, Keys::First, "Takes from a bucket; times in milliseconds"),
    described("rl.sessionize", -4, WRITE, Keys::First, "Takes, and tells when the session began"),
    described("rl.psessionize", -4, WRITE, Keys::First, "The same; times in milliseconds"),
    described("cl.throttle", -5, WRITE, Keys::First, "Takes from a limit by GCRA"),
    described("tg.charge", -3, WRITE, Keys::None, "Charges a limit of the policy for a key"),
    described("tg.giveback", 2, WRITE, Keys::None, "Gives back what a receipt is for"),
    described("tg.standing", -3, READ, Keys::None, "How a limit stands for a key"),
    described("tg.reset", -3, WRITE, Keys::None, "Makes the counters of a limit and a key as new"),
    described("del", -2, WRITE, Keys::All, "Forgets keys of CL.THROTTLE"),
    described("exists", -2, READ, Keys::All, "How many keys of CL.THROTTLE there are"),
    described("ttl", 2, READ, Keys::First, "Seconds for which a key of CL.THROTTLE stays"),
    described("ping", -1, CONNECTION, Keys::None, "Replies"),
    described("echo", 2, CONNECTION, Keys::None, "Replies with its argument"),
    described("hello", -1, CONNECTION, Keys::None, "Chooses the version of the protocol"),
    described("auth", -2, CONNECTION, Keys::None, "Says the password"),
    described("select", 2, CONNECTION, Keys::None, "Chooses the database: 0"),
    described("reset", 1, CONNECTION, Keys::None, "The connection is as it was when it was made"),
    described("multi", 1, CONNECTION, Keys::None, "Keeps what comes until EXEC"),
    described("exec", 1, CONNECTION, Keys::None, "Replies to all that was kept"),
    described("discard", 1, CONNECTION, Keys::None, "Forgets what was kept"),
    described("unwatch", 1, CONNECTION, Keys::None, "Nothing, as WATCH is an error"),
    described("quit", -1, CONNECTION, Keys::None, "Ends the connection"),
    described("client", -2, CONNECTION, Keys::None, "About the connection"),
    described("command", -1, CONNECTION, Keys::None, "About commands"),
    described("config", -3, CONNECTION, Keys::None, "Settings that clients ask for"),
    described("info", -1, CONNECTION, Keys::None, "About the listener"),
];

const fn described(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: Keys,
    summary: &'static str,
) -> Described {
    Described { name, arity, flags, keys, summary }
}

/// The reply to `HELLO`.
pub(super) fn greeting(session: &Session, replies: &mut Replies) {
    replies.map(7);
    let text = |name: &str, value: &str, replies: &mut Replies| {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    };
    text("server", "tollgate", replies);
    text("version", REDIS_VERSION, replies);
    replies.bulk(b"proto");
    replies.integer(match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    });
    replies.bulk(b"id");
    replies.integer(session.id);
    text("mode", "standalone", replies);
    text("role", "master", replies);
    replies.bulk(b"modules");
    replies.array(0);
}

/// Whether there is such a command with so many words. If not, it replies with an error.
pub(super) fn is_well_formed(arguments: &Arguments<'_>, replies: &mut Replies) -> bool {
    let name = arguments.at(0).unwrap_or_default();
    let known = COMMANDS.iter().find(|own| name.eq_ignore_ascii_case(own.name.as_bytes()));
    let words = i64::try_from(arguments.len()).unwrap_or(i64::MAX);
    match known {
        None => unknown(name, replies),
        Some(own) if words == own.arity || own.arity < 0 && words >= -own.arity => return true,
        Some(_) => wrong_number(arguments, replies),
    }
    false
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND DOCS [name …]` and `COMMAND INFO [name …]`.
pub(super) fn commands(arguments: &Arguments<'_>, replies: &mut Replies) {
    let named = || {
        let names = arguments.from(2);
        names.map(|name| COMMANDS.iter().find(|it| name.eq_ignore_ascii_case(it.name.as_bytes())))
    };
    let names_some = arguments.len() > 2;
    match arguments.at(1) {
        Some(word) if word.eq_ignore_ascii_case(b"count") => {
            replies.integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX));
        }
        Some(word) if word.eq_ignore_ascii_case(b"docs") => {
            let known: Vec<&Described> = match names_some {
                true => named().flatten().collect(),
                false => COMMANDS.iter().collect(),
            };
            replies.map(known.len());
            known.into_iter().for_each(|command| command.document(replies));
        }
        Some(word) if word.eq_ignore_ascii_case(b"info") && names_some => {
            replies.array(arguments.len() - 2);
            named().for_each(|command| match command {
                Some(command) => command.inform(replies),
                None => replies.null(),
            });
        }
        None => inform_of_all(replies),
        Some(word) if word.eq_ignore_ascii_case(b"info") => inform_of_all(replies),
        Some(word) => replies.error_about("ERR unknown subcommand '", word, "' of COMMAND"),
    }
}

fn inform_of_all(replies: &mut Replies) {
    replies.array(COMMANDS.len());
    COMMANDS.iter().for_each(|command| command.inform(replies));
}

impl Described {
    /// Name, arity, flags, places of keys, categories, tips, key specifications, subcommands.
    fn inform(&self, replies: &mut Replies) {
        replies.array(10);
        replies.bulk(self.name.as_bytes());
        replies.integer(self.arity);
        replies.array(self.flags.len());
        self.flags.iter().for_each(|flag| replies.simple(flag));
        let (first, last, step) = match self.keys {
            Keys::None => (0, 0, 0),
            Keys::First => (1, 1, 1),
            Keys::All => (1, -1, 1),
        };
        [first, last, step].into_iter().for_each(|place| replies.integer(place));
        (0..4).for_each(|_| replies.array(0));
    }

    fn document(&self, replies: &mut Replies) {
        replies.bulk(self.name.as_bytes());
        replies.map(2);
        replies.bulk(b"summary");
        replies.bulk(self.summary.as_bytes());
        replies.bulk(b"group");
        replies.bulk(if matches!(self.keys, Keys::None) { b"connection" } else { b"generic" });
    }
}

/// `CONFIG GET name …`: what benchmarks and clients ask for.
pub(super) fn configuration(arguments: &Arguments<'_>, replies: &mut Replies) {
    const KNOWN: [(&str, &str); 4] = [
        ("save", ""),
        ("appendonly", "no"),
        ("databases", "1"),
        ("maxmemory-policy", "volatile-ttl"),
    ];
    let word = arguments.at(1).unwrap_or_default();
    if !word.eq_ignore_ascii_case(b"get") {
        return replies.error_about("ERR unknown subcommand '", word, "' of CONFIG");
    }
    let is_asked = |name: &str| {
        arguments.from(2).any(|asked| asked == b"*" || asked.eq_ignore_ascii_case(name.as_bytes()))
    };
    let matches = KNOWN.iter().filter(|(name, _)| is_asked(name));
    replies.map(matches.clone().count());
    matches.for_each(|(name, value)| {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    });
}

impl Engine {
    /// The reply to `INFO`: the same for every section.
    pub(super) fn described(&self, now: Timestamp) -> String {
        let mut text = String::new();
        let uptime = now.saturating_since(self.started).as_secs();
        let keys = self.buckets.len() + self.arrivals.len();
        let expired = self.buckets.expired() + self.arrivals.expired;
        let evicted = self.buckets.evicted() + self.arrivals.evicted;
        let _ = write!(
            text,
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\n\
             tollgate_version:{}\r\nuptime_in_seconds:{uptime}\r\n\r\n\
             # Clients\r\nconnected_clients:{}\r\n\r\n\
             # Persistence\r\nloading:0\r\n\r\n\
             # Stats\r\ntotal_commands_processed:{}\r\nexpired_keys:{expired}\r\n\
             evicted_keys:{evicted}\r\n\r\n\
             # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
             # Cluster\r\ncluster_enabled:0\r\n\r\n\
             # Keyspace\r\ndb0:keys={keys},expires={keys},avg_ttl=0\r\n",
            env!("CARGO_PKG_VERSION"),
            self.connections,
            self.commands,
        );
        text
    }
}
