//! What scripts may do: `redis.call`.

use super::{
    Address, ClusterView, Reply, Session,
    command_error::CommandError,
    commands::{Access, Action, Spec},
    keyspace::Keys,
    server::{Rights, time},
};

/// The commands of one script.
pub(super) struct ScriptCommands<'s> {
    pub(super) keys: Keys<'s>,
    pub(super) rights: Rights,
    /// What the server knows of its cluster, where it is, and who has called the script.
    pub(super) cluster: Option<(&'s ClusterView, &'s Address, &'s Session)>,
    /// Whether it has changed something: then it may go on, so that it does not stop half-way.
    pub(super) has_written: bool,
}

impl ScriptCommands<'_> {
    /// Executes a command.
    pub(super) fn call(&mut self, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
        let (name, _) = words.split_first().ok_or(CommandError::NoArguments)?;
        let spec = Spec::named(name).ok_or(CommandError::UnknownInScript)?;
        if !spec.takes(words.len()) {
            return Err(CommandError::WrongArityInScript);
        }
        let (access, run) = match spec.action {
            Action::Data(access, run) => (access, run),
            Action::Time => return Ok(time(self.keys.now)),
            _ => return Err(CommandError::NotAllowedInScript),
        };
        if !self.has_written {
            self.rights.admit(access)?;
        }
        self.has_written |= access != Access::Reads;
        if let Some((cluster, at, session)) = self.cluster {
            let admitted = cluster.admit(at, session, (spec, words), &mut self.keys);
            admitted.map_err(|error| match error {
                CommandError::CrossSlot => CommandError::CrossSlotInScript,
                CommandError::ClusterDown => CommandError::ClusterDownInScript,
                _ => CommandError::ForeignKey,
            })?;
        }
        run(&mut self.keys, words)
    }
}
