//! The commands of one listener: bytes and an instant in, replies out. No sockets here.

mod client;
mod described;
#[cfg(test)]
mod tests;
mod transaction;

use std::time::Duration;

use aws_lc_rs::{constant_time, digest};
use tollgate_clock::{Throttle, Timestamp};
use tollgate_limit::KeyHasher;
use tollgate_observe::metrics::CommandTotals;
use tollgate_wire::resp::{Arguments, Bounds, Decoded, Protocol, Replies, decode, parse_integer};

use self::transaction::Transaction;
use super::{
    buckets::Buckets,
    named::{NamedCommand, is_named},
    refill::{Request, Unit, Verb},
    table::{Fading, Table},
    throttle,
};

/// What all connections of a listener share.
pub struct Engine {
    hasher: KeyHasher,
    buckets: Buckets,
    arrivals: Table<Arrival>,
    /// Its hash: comparing hashes in constant time does not tell even its length.
    password: Option<digest::Digest>,
    started: Timestamp,
    evictions_logged: Throttle,
    /// Commands that were replied to.
    pub(super) commands: u64,
    /// Connections that there are, for `INFO`.
    pub(super) connections: usize,
}

/// What is known of a connection.
#[derive(Debug, Default)]
pub struct Session {
    id: i64,
    protocol: Protocol,
    is_authenticated: bool,
    failed_passwords: u8,
    name: Vec<u8>,
    /// What came after `MULTI`.
    transaction: Option<Transaction>,
    /// The commands of a transaction whose reply has begun: they are to be served before all else.
    begun: Vec<u8>,
}

impl Session {
    /// A connection that was made just now; clients may ask for its number.
    pub fn new(id: i64) -> Session {
        Session { id, ..Session::default() }
    }

    /// As at its beginning; wrong passwords stay counted.
    fn anew(&self) -> Session {
        Session { failed_passwords: self.failed_passwords, ..Session::new(self.id) }
    }

    /// Takes the commands of a transaction that are to be served next.
    pub(super) fn take_begun(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }

    /// What its client speaks.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }
}

/// What became of some input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Bytes that are done with.
    pub taken: usize,
    /// What remains begins with a command that has not come whole; else there may be more to do
    /// when the replies were sent.
    pub is_partial: bool,
    /// What remains begins with commands about limits of the policies.
    pub is_named: bool,
    /// The connection ends when the replies were sent.
    pub ends: bool,
}

/// The theoretical arrival time of a key of `CL.THROTTLE`, in nanoseconds.
struct Arrival(i64);

impl Fading for Arrival {
    fn faded_at(&self) -> i64 {
        self.0
    }
}

/// Bytes of replies that wait, from which on no further command is begun.
pub(super) const MAX_REPLIES: usize = 64 * 1024;

pub(super) const BOUNDS: Bounds = Bounds {
    arguments: tollgate_wire::resp::MAX_ARGUMENTS,
    argument_bytes: 64 * 1024,
    command_bytes: 64 * 1024,
};

/// Commands of one client that the policies decide about together.
const MAX_TOGETHER: usize = 128;

/// For clients that have not authenticated yet.
pub(super) const BOUNDS_BEFORE_PASSWORD: Bounds =
    Bounds { arguments: 16, argument_bytes: 512, command_bytes: 1024 };

/// A connection that guesses passwords is closed after so many.
const MAX_FAILED_PASSWORDS: u8 = 3;

/// What the hashes of names of `CL.THROTTLE` begin with: they have a space of their own.
const THROTTLED: u8 = b't';

/// Entries of each table that are looked at with each [`Engine::tick`].
const SWEPT: usize = 512;

/// How often it is logged that entries were removed that still said something.
const EVICTIONS_PAUSE: Duration = Duration::from_secs(60);

impl Engine {
    /// With room for `max_keys` of each kind; `secret` hashes the names.
    pub fn new(
        secret: [u8; 16],
        max_keys: usize,
        password: Option<&str>,
        now: Timestamp,
    ) -> Engine {
        let hasher = KeyHasher::new(secret);
        Engine {
            buckets: Buckets::new(hasher.clone(), max_keys),
            hasher,
            arrivals: Table::new(max_keys),
            password: password.map(|password| hashed(password.as_bytes())),
            started: now,
            evictions_logged: Throttle::new(EVICTIONS_PAUSE),
            commands: 0,
            connections: 0,
        }
    }

    /// Replies to the commands of `input`, as long as replies do not pile up.
    pub fn serve(
        &mut self,
        session: &mut Session,
        input: &[u8],
        replies: &mut Replies,
        now: Timestamp,
    ) -> Served {
        let mut taken = 0;
        loop {
            let rest = input.get(taken..).unwrap_or_default();
            if rest.is_empty() || replies.len() >= MAX_REPLIES {
                return Served { taken, ..Served::default() };
            }
            let bounds = match self.may_ask(session) {
                true => &BOUNDS,
                false => &BOUNDS_BEFORE_PASSWORD,
            };
            match decode(rest, bounds) {
                Ok(Decoded::Command(arguments, length))
                    if self.may_ask(session) && transaction::is_for(session, &arguments) =>
                {
                    taken += length;
                    self.commands = self.commands.wrapping_add(1);
                    replies.speak(session.protocol);
                    let bytes = rest.get(..length).unwrap_or_default();
                    transaction::reply(session, &arguments, bytes, replies);
                    if !session.begun.is_empty() {
                        return Served { taken, ..Served::default() };
                    }
                }
                Ok(Decoded::Command(arguments, _))
                    if is_named(&arguments) && self.may_ask(session) =>
                {
                    return Served { taken, is_named: true, ..Served::default() };
                }
                Ok(Decoded::Command(arguments, length)) => {
                    taken += length;
                    self.commands = self.commands.wrapping_add(1);
                    replies.speak(session.protocol);
                    if self.reply(session, &arguments, replies, now).is_none() {
                        return Served { taken: input.len(), ends: true, ..Served::default() };
                    }
                }
                Ok(Decoded::Partial(skipped)) => {
                    return Served {
                        taken: taken + skipped,
                        is_partial: true,
                        ..Served::default()
                    };
                }
                Err(error) => {
                    replies.error(&error.to_string());
                    return Served { taken: input.len(), ends: true, ..Served::default() };
                }
            }
        }
    }

    /// The commands about limits of the policies that `input` begins with, and their bytes.
    pub(super) fn named(&mut self, input: &[u8]) -> (Vec<NamedCommand>, usize) {
        let (mut commands, mut taken) = (Vec::new(), 0);
        while commands.len() < MAX_TOGETHER
            && let Ok(Decoded::Command(arguments, length)) =
                decode(input.get(taken..).unwrap_or_default(), &BOUNDS)
            && is_named(&arguments)
        {
            taken += length;
            self.commands = self.commands.wrapping_add(1);
            commands.push(NamedCommand::read(&arguments));
        }
        (commands, taken)
    }

    /// Removes some of what says nothing any more. To be called again and again.
    pub fn tick(&mut self, now: Timestamp) {
        self.buckets.sweep_some(SWEPT, in_millis(now));
        self.arrivals.sweep_some(SWEPT, in_nanos(now));
        let evicted = self.buckets.evicted() + self.arrivals.evicted;
        if evicted > 0 && self.evictions_logged.take(now) {
            tracing::warn!(evicted, "decisions: more keys than `max_keys`; some were forgotten");
        }
    }

    /// What it has counted so far.
    pub(super) fn totals(&self) -> CommandTotals {
        CommandTotals {
            commands: self.commands,
            connections: self.connections as u64,
            keys: (self.buckets.len() + self.arrivals.len()) as u64,
            evicted: self.buckets.evicted() + self.arrivals.evicted,
        }
    }

    /// Whether it has said the password, if there is one.
    pub(super) fn may_ask(&self, session: &Session) -> bool {
        self.password.is_none() || session.is_authenticated
    }

    /// None: the connection ends.
    fn reply(
        &mut self,
        session: &mut Session,
        arguments: &Arguments<'_>,
        replies: &mut Replies,
        now: Timestamp,
    ) -> Option<()> {
        let mut lowered = [0; MAX_NAME];
        let name = lower(arguments.at(0).unwrap_or_default(), &mut lowered);
        if !self.may_ask(session) && !matches!(name, b"auth" | b"hello" | b"quit" | b"reset") {
            replies.error("NOAUTH Authentication required.");
            return Some(());
        }
        use Unit::{Milliseconds, Seconds};
        match name {
            b"rl.reduce" => self.refill(arguments, Verb::Reduce, Seconds, replies, now),
            b"rl.preduce" => self.refill(arguments, Verb::Reduce, Milliseconds, replies, now),
            b"rl.get" => self.refill(arguments, Verb::Peek, Seconds, replies, now),
            b"rl.pget" => self.refill(arguments, Verb::Peek, Milliseconds, replies, now),
            b"rl.sessionize" => self.refill(arguments, Verb::Sessionize, Seconds, replies, now),
            b"rl.psessionize" => {
                self.refill(arguments, Verb::Sessionize, Milliseconds, replies, now);
            }
            b"cl.throttle" => self.throttle(arguments, replies, now),
            b"del" | b"exists" => self.count_keys(name == b"del", arguments, replies, now),
            b"ttl" => self.time_to_live(arguments, replies, now),
            b"info" => replies.bulk(self.described(now).as_bytes()),
            _ => return self.reply_to_client(session, name, arguments, replies),
        }
        Some(())
    }

    fn refill(
        &mut self,
        arguments: &Arguments<'_>,
        verb: Verb,
        unit: Unit,
        replies: &mut Replies,
        now: Timestamp,
    ) {
        let name = arguments.at(0).unwrap_or_default();
        if !verb.arguments().contains(&(arguments.len() - 1)) {
            let name = name.to_ascii_lowercase();
            return replies.error_about("Wrong number of arguments for '", &name, "' command");
        }
        let request = match Request::parse(arguments, verb, unit) {
            Ok(request) => request,
            Err(mistake) => return replies.error(&mistake.to_string()),
        };
        let bucket_name = arguments.at(1).unwrap_or_default();
        let taken = self.buckets.take(bucket_name, verb, &request, in_millis(now));
        if verb == Verb::Sessionize {
            replies.array(2);
            replies.integer(taken.before);
            replies.integer(taken.session_started);
        } else {
            replies.integer(taken.before);
        }
    }

    fn throttle(&mut self, arguments: &Arguments<'_>, replies: &mut Replies, now: Timestamp) {
        let now = in_nanos(now);
        let key = self.throttled_key(arguments.at(1).unwrap_or_default());
        let stored = self.arrivals.find(key).map(|arrival| arrival.0);
        let throttled =
            throttle::Request::parse(arguments).and_then(|request| request.throttle(stored, now));
        let throttled = match throttled {
            Ok(throttled) => throttled,
            Err(mistake) => {
                let (text, about) = mistake.text();
                return replies.error_about(text, about, "");
            }
        };
        if let Some(arrival) = throttled.arrival {
            self.arrivals.put(key, Arrival(arrival), now);
        }
        replies.array(5);
        replies.integer(throttled.is_limited.into());
        replies.integer(throttled.limit);
        replies.integer(throttled.remaining);
        replies.integer(throttled.retry_after.map_or(-1, throttle::in_seconds));
        replies.integer(throttle::in_seconds(throttled.reset_after));
    }

    /// Of `CL.THROTTLE`: the other keys are more than a name.
    fn count_keys(
        &mut self,
        removes: bool,
        arguments: &Arguments<'_>,
        replies: &mut Replies,
        now: Timestamp,
    ) {
        if arguments.len() < 2 {
            return wrong_number(arguments, replies);
        }
        let mut count = 0;
        for name in arguments.from(1) {
            let key = self.throttled_key(name);
            let is_there = self.time_left(key, now).is_some();
            if removes {
                self.arrivals.remove(key);
            }
            count += i64::from(is_there);
        }
        replies.integer(count);
    }

    fn time_to_live(&mut self, arguments: &Arguments<'_>, replies: &mut Replies, now: Timestamp) {
        let (Some(name), 2) = (arguments.at(1), arguments.len()) else {
            return wrong_number(arguments, replies);
        };
        const NO_KEY: i64 = -2;
        let left = self.time_left(self.throttled_key(name), now);
        replies.integer(
            left.map_or(NO_KEY, |nanos| {
                nanos / 1_000_000_000 + i64::from(nanos % 1_000_000_000 > 0)
            }),
        );
    }

    fn throttled_key(&self, name: &[u8]) -> u128 {
        self.hasher.hash([(THROTTLED, name)])
    }

    /// Nanoseconds until a key of `CL.THROTTLE` says nothing any more.
    fn time_left(&self, key: u128, now: Timestamp) -> Option<i64> {
        let left = self.arrivals.find(key)?.0.saturating_sub(in_nanos(now));
        Some(left).filter(|left| *left > 0)
    }

    fn is_password(&self, password: &[u8]) -> bool {
        let given = hashed(password);
        self.password.is_some_and(|own| {
            constant_time::verify_slices_are_equal(own.as_ref(), given.as_ref()).is_ok()
        })
    }
}

/// The longest name of a command has fewer bytes.
const MAX_NAME: usize = 16;

/// In lower case. A longer name is none that there is.
fn lower<'l>(name: &[u8], lowered: &'l mut [u8; MAX_NAME]) -> &'l [u8] {
    let Some(lowered) = lowered.get_mut(..name.len()) else { return b"" };
    lowered.copy_from_slice(name);
    lowered.make_ascii_lowercase();
    lowered
}

fn hashed(password: &[u8]) -> digest::Digest {
    digest::digest(&digest::SHA256, password)
}

fn wrong_number(arguments: &Arguments<'_>, replies: &mut Replies) {
    let name = arguments.at(0).unwrap_or_default().to_ascii_lowercase();
    replies.error_about("ERR wrong number of arguments for '", &name, "' command");
}

/// The original's text for commands in its name; that of Redis for others.
fn unknown(name: &[u8], replies: &mut Replies) {
    if name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"rl.")) {
        replies.error_about("Unknown command: '", &name.to_ascii_lowercase(), "'");
    } else {
        replies.error_about("ERR unknown command '", name, "'");
    }
}

/// Whether a client's argument is this integer.
fn is_integer(argument: &[u8], number: i64) -> bool {
    parse_integer(argument) == Some(number)
}

fn in_millis(now: Timestamp) -> i64 {
    i64::try_from(now.as_micros() / 1000).unwrap_or(i64::MAX)
}

fn in_nanos(now: Timestamp) -> i64 {
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX).saturating_mul(1000)
}
