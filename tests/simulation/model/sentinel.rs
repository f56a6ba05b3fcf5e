//! A Sentinel, as it answers clients: who watches a service and whom it holds for its primary is
//! for the world to say.

use std::collections::BTreeMap;

use super::{
    Address, Reply, Session,
    address::Identities,
    command_error::CommandError,
    report::{self, greeting},
};

/// A Sentinel.
#[derive(Debug)]
pub(crate) struct Sentinel {
    address: Address,
    run_id: String,
    /// What it knows of each service that it watches, by name; the world changes it.
    pub(crate) services: BTreeMap<String, Watched>,
    sessions: i64,
}

/// What a Sentinel knows of a service.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) primary: Address,
    /// The epoch of the failover that made it primary.
    pub(crate) epoch: u64,
}

impl Sentinel {
    /// One that watches nothing yet.
    pub(crate) fn new(address: Address, seed: u64) -> Sentinel {
        let run_id = Identities::new(seed).next();
        Sentinel { address, run_id, services: BTreeMap::new(), sessions: 0 }
    }

    /// A client connects.
    pub(crate) fn connect(&mut self) -> Session {
        self.sessions += 1;
        Session::new(self.sessions)
    }

    /// Answers a command.
    pub(crate) fn handle(&self, session: &mut Session, words: &[Vec<u8>]) -> Reply {
        self.execute(session, words).unwrap_or_else(Reply::from)
    }

    fn execute(&self, session: &mut Session, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
        let (name, arguments) = words.split_first().ok_or(CommandError::Syntax)?;
        match name.to_ascii_uppercase().as_slice() {
            b"HELLO" => greeting(session, words, "sentinel", None),
            b"PING" => Ok(Reply::Status("PONG".to_owned())),
            b"INFO" => Ok(Reply::bulk(self.info(arguments))),
            b"SENTINEL" => self.sentinel(arguments),
            _ => Err(CommandError::unknown(name, arguments)),
        }
    }

    fn info(&self, sections: &[Vec<u8>]) -> String {
        let is_server = sections.iter().any(|section| section.eq_ignore_ascii_case(b"server"));
        let section = || report::server_section("sentinel", &self.run_id, self.address.port);
        is_server.then(section).unwrap_or_default()
    }

    fn sentinel(&self, arguments: &[Vec<u8>]) -> Result<Reply, CommandError> {
        let [subcommand, service] = arguments else {
            return Err(CommandError::WrongArity("sentinel"));
        };
        let name = String::from_utf8_lossy(service);
        let watched = self.services.get(&*name);
        match subcommand.to_ascii_lowercase().as_slice() {
            b"get-master-addr-by-name" => Ok(watched.map_or(Reply::Nil, |watched| {
                let Address { host, port } = &watched.primary;
                Reply::Array(vec![Reply::bulk(&**host), Reply::bulk(port.to_string())])
            })),
            b"master" => {
                watched.map(|watched| watched.fields(&name)).ok_or(CommandError::NoSuchService)
            }
            _ => Err(CommandError::UnknownSubcommand {
                command: "SENTINEL",
                subcommand: String::from_utf8_lossy(subcommand).into_owned(),
            }),
        }
    }
}

impl Watched {
    fn fields(&self, name: &str) -> Reply {
        let Address { host, port } = &self.primary;
        let fields = [
            ("name", name.to_owned()),
            ("ip", host.clone()),
            ("port", port.to_string()),
            ("flags", "master".to_owned()),
            ("config-epoch", self.epoch.to_string()),
        ];
        Reply::Map(fields.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).to_vec())
    }
}
