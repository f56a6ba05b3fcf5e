//! A server: what it is made of, and how it answers a command.

use tollgate_clock::Timestamp;

use super::{
    Address, ClusterView, Reply, Role, Session,
    address::Identities,
    command_error::CommandError,
    commands::{Access, Action, Spec},
    disk::Disk,
    keyspace::{Keys, Keyspace},
    numbers,
    replication::{Backlog, Lineage},
    script_commands::ScriptCommands,
    scripts::Scripts,
};

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) address: Address,
    pub(super) identities: Identities,
    /// The identity of its process.
    pub(super) run_id: String,
    pub(super) role: Role,
    pub(super) lineage: Lineage,
    /// What its replicas can still catch up with; none: it never had one.
    pub(super) backlog: Option<Backlog>,
    pub(super) keyspace: Keyspace,
    pub(super) scripts: Scripts,
    pub(super) disk: Disk,
    sessions: i64,
    /// Whether it can serve; the world changes it.
    pub(crate) condition: Condition,
    /// What it knows of its cluster, if it is in one; the world changes it.
    pub(crate) cluster: Option<ClusterView>,
}

/// Whether a server can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    #[default]
    Serving,
    /// It reads its data.
    Loading,
    /// A script takes long.
    Busy,
    /// It has as much in memory as it may.
    OutOfMemory,
    /// Its disk does not take a snapshot.
    CannotSave,
}

impl Server {
    /// A primary without data. All that it makes up follows from `seed`.
    pub(crate) fn new(address: Address, seed: u64) -> Server {
        let mut identities = Identities::new(seed);
        Server {
            address,
            run_id: identities.next(),
            role: Role::Primary,
            lineage: Lineage::new(&mut identities),
            identities,
            backlog: None,
            keyspace: Keyspace::default(),
            scripts: Scripts::new(),
            disk: Disk::default(),
            sessions: 0,
            condition: Condition::default(),
            cluster: None,
        }
    }

    /// A client connects.
    pub(crate) fn connect(&mut self) -> Session {
        self.sessions += 1;
        Session::new(self.sessions)
    }

    /// Answers a command at the instant `now` of the server's own clock.
    pub(crate) fn handle(
        &mut self,
        now: Timestamp,
        session: &mut Session,
        words: &[Vec<u8>],
    ) -> Reply {
        let was_asking = session.is_asking;
        let reply = Spec::of(words).and_then(|spec| {
            self.admit(now, session, (spec, words))?;
            self.execute(now, session, (spec, words))
        });
        // `ASKING` holds for one command.
        session.is_asking &= !was_asking;
        self.record();
        reply.unwrap_or_else(Reply::from)
    }

    /// Removes all keys that have expired, as a primary does from time to time.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        if self.role == Role::Primary {
            self.keyspace.sweep(now);
            self.record();
        }
    }

    /// How many keys it has, with those that have expired and were not removed yet.
    pub(crate) fn keys(&self) -> usize {
        self.keyspace.entries().len()
    }

    /// When a key expires, in milliseconds since the epoch; none: never, or it is not there.
    pub(crate) fn expires_at(&self, key: &[u8]) -> Option<i64> {
        self.keyspace.entries().get(key)?.expires_at()
    }

    /// Which commands its state permits.
    fn rights(&self) -> Rights {
        Rights { condition: self.condition, is_primary: self.role == Role::Primary }
    }

    /// Whether a command can be executed, in the order in which Redis asks.
    fn admit(
        &mut self,
        now: Timestamp,
        session: &Session,
        (spec, words): (&Spec, &[Vec<u8>]),
    ) -> Result<(), CommandError> {
        let rights = self.rights();
        if let Some(cluster) = &self.cluster {
            let mut keys = Keys::new(&mut self.keyspace, now, &self.role);
            cluster.admit(&self.address, session, (spec, words), &mut keys)?;
        }
        match spec.action {
            Action::Data(access, _) => rights.admit(access)?,
            // A primary that cannot save does not even answer this.
            Action::Ping if self.condition == Condition::CannotSave && rights.is_primary => {
                return Err(CommandError::CannotSave);
            }
            _ => {}
        }
        match self.condition {
            Condition::Loading if !spec.is_answered_while_loading() => Err(CommandError::Loading),
            Condition::Busy if !matches!(spec.action, Action::Hello) => Err(CommandError::Busy),
            _ => Ok(()),
        }
    }

    fn execute(
        &mut self,
        now: Timestamp,
        session: &mut Session,
        (spec, words): (&Spec, &[Vec<u8>]),
    ) -> Result<Reply, CommandError> {
        match spec.action {
            Action::Data(_, run) => run(&mut Keys::new(&mut self.keyspace, now, &self.role), words),
            Action::Eval | Action::EvalSha => self.evaluate(now, session, (spec, words)),
            Action::Asking => {
                self.cluster()?;
                session.is_asking = true;
                Ok(Reply::ok())
            }
            Action::ReadOnly => {
                self.cluster()?;
                session.reads_replica = true;
                Ok(Reply::ok())
            }
            Action::Cluster => self.cluster()?.answer(words),
            Action::Hello => self.greet(session, words),
            Action::Info => Ok(self.info(words)),
            Action::Ping => Ok(Reply::Status("PONG".to_owned())),
            Action::Role => Ok(self.role_reply()),
            Action::Time => Ok(time(now)),
        }
    }

    fn cluster(&self) -> Result<&ClusterView, CommandError> {
        self.cluster.as_ref().ok_or(CommandError::NoCluster)
    }

    /// `EVAL script count key… argument…`, and the same with the script's hash.
    fn evaluate(
        &mut self,
        now: Timestamp,
        session: &Session,
        (spec, words): (&Spec, &[Vec<u8>]),
    ) -> Result<Reply, CommandError> {
        let count = numbers::integer(&words[2])?;
        let count = usize::try_from(count).map_err(|_| CommandError::NegativeKeys)?;
        let (keys, arguments) =
            words[3..].split_at_checked(count).ok_or(CommandError::TooManyKeys)?;
        let sha = match spec.action {
            Action::Eval => self.scripts.load(&words[1])?,
            _ => String::from_utf8_lossy(&words[1]).to_ascii_lowercase(),
        };
        let mut commands = ScriptCommands {
            rights: self.rights(),
            keys: Keys::new(&mut self.keyspace, now, &self.role),
            cluster: self.cluster.as_ref().map(|cluster| (cluster, &self.address, session)),
            has_written: false,
        };
        self.scripts.run(&sha, [keys, arguments], &mut |words| commands.call(words))
    }
}

/// Which commands the state of a server permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    condition: Condition,
    is_primary: bool,
}

impl Rights {
    /// Whether it permits this.
    pub(super) fn admit(self, access: Access) -> Result<(), CommandError> {
        match (access, self.condition) {
            (Access::Reads, _) => Ok(()),
            _ if !self.is_primary => Err(CommandError::ReadOnly),
            (Access::Grows, Condition::OutOfMemory) => Err(CommandError::OutOfMemory),
            (_, Condition::CannotSave) => Err(CommandError::CannotSave),
            _ => Ok(()),
        }
    }
}

/// The reply to `TIME`.
pub(super) fn time(now: Timestamp) -> Reply {
    let micros = now.as_micros();
    let parts = [micros / 1_000_000, micros % 1_000_000];
    Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).to_vec())
}
