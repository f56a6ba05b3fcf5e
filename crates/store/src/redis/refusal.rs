//! What an error reply says about a call that was not executed.

use redis::{ServerError, ServerErrorKind};

/// What helps after an error reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal<'e> {
    /// Sending the script itself.
    NoScript,
    /// Sending the call to this address, and all later ones as well.
    Moved(&'e str),
    /// Sending the call to this address, this time only.
    Ask(&'e str),
    /// Finding the primary: this server is a replica.
    ReadOnly,
    /// Trying again soon.
    TryAgain,
    /// Nothing.
    Final,
}

impl<'e> Refusal<'e> {
    pub(super) fn of(error: &'e ServerError) -> Refusal<'e> {
        // `slot host:port`
        let address = || error.details()?.split_ascii_whitespace().nth(1);
        // Before Redis 7, an error inside a script has its code in the text.
        let is_read_only = || error.details().is_some_and(|details| details.contains("-READONLY"));
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Refusal::NoScript,
            Some(ServerErrorKind::Moved) => address().map_or(Refusal::Final, Refusal::Moved),
            Some(ServerErrorKind::Ask) => address().map_or(Refusal::Final, Refusal::Ask),
            Some(ServerErrorKind::ReadOnly) => Refusal::ReadOnly,
            Some(
                ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown,
            ) => Refusal::TryAgain,
            _ if is_read_only() => Refusal::ReadOnly,
            _ => Refusal::Final,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap() {
            redis::Value::ServerError(error) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_error_reply_leads_to_what_helps() {
        for (text, expected) in [
            ("NOSCRIPT No matching script.", Refusal::NoScript),
            ("MOVED 3999 127.0.0.1:6381", Refusal::Moved("127.0.0.1:6381")),
            ("MOVED 3999", Refusal::Final),
            ("ASK 3999 127.0.0.1:6381", Refusal::Ask("127.0.0.1:6381")),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Refusal::TryAgain),
            ("CLUSTERDOWN Hash slot not served", Refusal::TryAgain),
            ("LOADING Redis is loading the dataset in memory", Refusal::TryAgain),
            ("MASTERDOWN Link with MASTER is down", Refusal::TryAgain),
            ("READONLY You can't write against a read only replica.", Refusal::ReadOnly),
            (
                "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write",
                Refusal::ReadOnly,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", Refusal::Final),
            ("NOPERM this user has no permissions", Refusal::Final),
        ] {
            assert_eq!(Refusal::of(&error(text)), expected, "{text}");
        }
    }
}
