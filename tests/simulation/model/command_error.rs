//! Why a command was refused, in the words of Redis 7.0.

use super::Address;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandError {
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    UnknownCommand { name: String, arguments: String },
    #[error("ERR unknown subcommand '{subcommand}'. Try {command} HELP.")]
    UnknownSubcommand { command: &'static str, subcommand: String },
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(&'static str),
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(String),
    #[error("ERR XX and NX options at the same time are not compatible")]
    ContraryOptions,
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("ERR min or max is not a float")]
    NotABound,
    #[error("ERR offset is out of range")]
    OffsetOutOfRange,
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpiry(&'static str),
    #[error("ERR Syntax error in HELLO option '{0}'")]
    UnknownGreeting(String),
    #[error("NOPROTO unsupported protocol version")]
    UnsupportedProtocol,

    #[error("NOSCRIPT No matching script. Please use EVAL.")]
    NoScript,
    #[error("ERR Error compiling script (new function): {0}")]
    NotCompiled(String),
    #[error("ERR Number of keys can't be greater than number of args")]
    TooManyKeys,
    #[error("ERR Number of keys can't be negative")]
    NegativeKeys,
    #[error("ERR Unknown Redis command called from script")]
    UnknownInScript,
    #[error("ERR Wrong number of args calling Redis command from script")]
    WrongArityInScript,
    #[error("ERR This Redis command is not allowed from script")]
    NotAllowedInScript,
    #[error("ERR Script attempted to access keys that do not hash to the same slot")]
    CrossSlotInScript,
    #[error("ERR Script attempted to execute a command while the cluster is down")]
    ClusterDownInScript,
    #[error("ERR Script attempted to access a non local key in a cluster node")]
    ForeignKey,
    #[error("ERR Lua redis lib command arguments must be strings or integers")]
    NotAnArgument,
    #[error("ERR Please specify at least one argument for this redis lib call")]
    NoArguments,

    #[error("READONLY You can't write against a read only replica.")]
    ReadOnly,
    #[error("LOADING Redis is loading the dataset in memory")]
    Loading,
    #[error(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
    )]
    Busy,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist \
         to disk. Commands that may modify the data set are disabled, because this instance is \
         configured to report errors during writes if RDB snapshotting fails \
         (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the \
         RDB error."
    )]
    CannotSave,

    #[error("ERR This instance has cluster support disabled")]
    NoCluster,
    #[error("CROSSSLOT Keys in request don't hash to the same slot")]
    CrossSlot,
    #[error("CLUSTERDOWN Hash slot not served")]
    SlotNotServed,
    #[error("CLUSTERDOWN The cluster is down")]
    ClusterDown,
    #[error("TRYAGAIN Multiple keys request during rehashing of slot")]
    TryAgain,
    #[error("MOVED {slot} {to}")]
    Moved { slot: u16, to: Address },
    #[error("ASK {slot} {to}")]
    Ask { slot: u16, to: Address },

    #[error("ERR No such master with that name")]
    NoSuchService,
}

impl CommandError {
    /// No command has this name.
    pub(super) fn unknown(name: &[u8], arguments: &[Vec<u8>]) -> CommandError {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let arguments = arguments.iter().map(|word| format!("'{}' ", text(word))).collect();
        CommandError::UnknownCommand { name: text(name), arguments }
    }
}
