//! What a server says of itself: `HELLO`, `INFO`, `ROLE`.

use super::{
    Reply, Role, Server, Session, command_error::CommandError, replication::Lineage,
    reply::Protocol,
};

/// The version that the model is held to.
pub(super) const VERSION: &str = "7.0.15";

/// The ID of no history.
const NO_ID: &str = "0000000000000000000000000000000000000000";

/// The reply to `HELLO`, which chooses the protocol.
pub(super) fn greeting(
    session: &mut Session,
    words: &[Vec<u8>],
    mode: &str,
    role: Option<&str>,
) -> Result<Reply, CommandError> {
    if let Some(option) = words.get(2) {
        return Err(CommandError::UnknownGreeting(String::from_utf8_lossy(option).into_owned()));
    }
    match words.get(1).map(Vec::as_slice) {
        None => {}
        Some(b"2") => session.protocol = Protocol::Resp2,
        Some(b"3") => session.protocol = Protocol::Resp3,
        Some(_) => return Err(CommandError::UnsupportedProtocol),
    }
    let protocol = match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    let mut fields = vec![
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(VERSION)),
        ("proto", Reply::Integer(protocol)),
        ("id", Reply::Integer(session.id)),
        ("mode", Reply::bulk(mode)),
    ];
    fields.extend(role.map(|role| ("role", Reply::bulk(role))));
    fields.push(("modules", Reply::Array(Vec::new())));
    Ok(Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect()))
}

/// The section `server` of `INFO`.
pub(super) fn server_section(mode: &str, run_id: &str, port: u16) -> String {
    format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{mode}\r\nrun_id:{run_id}\r\n\
         tcp_port:{port}\r\n"
    )
}

impl Server {
    fn mode(&self) -> &'static str {
        if self.cluster.is_some() { "cluster" } else { "standalone" }
    }

    pub(super) fn greet(
        &self,
        session: &mut Session,
        words: &[Vec<u8>],
    ) -> Result<Reply, CommandError> {
        let role = match self.role {
            Role::Primary => "master",
            Role::Replica { .. } => "replica",
        };
        greeting(session, words, self.mode(), Some(role))
    }

    /// The reply to `INFO section…`: the sections that are known.
    pub(super) fn info(&self, words: &[Vec<u8>]) -> Reply {
        let section = |name: &Vec<u8>| match name.to_ascii_lowercase().as_slice() {
            b"server" => server_section(self.mode(), &self.run_id, self.address.port),
            b"replication" => self.replication_section(),
            _ => String::new(),
        };
        Reply::Text(words[1..].iter().map(section).collect::<Vec<_>>().join("\r\n"))
    }

    fn replication_section(&self) -> String {
        let Lineage { current, previous } = &self.lineage;
        let role = match &self.role {
            Role::Primary => "role:master\r\n".to_owned(),
            Role::Replica { primary, is_linked } => format!(
                "role:slave\r\nmaster_host:{}\r\nmaster_port:{}\r\nmaster_link_status:{}\r\n\
                 slave_repl_offset:{}\r\n",
                primary.host,
                primary.port,
                if *is_linked { "up" } else { "down" },
                current.offset,
            ),
        };
        let (second_id, second_offset) = match previous {
            Some(previous) => (&*previous.id, previous.offset as i64 + 1),
            None => (NO_ID, -1),
        };
        format!(
            "# Replication\r\n{role}master_replid:{}\r\nmaster_replid2:{second_id}\r\n\
             master_repl_offset:{}\r\nsecond_repl_offset:{second_offset}\r\n",
            current.id, current.offset,
        )
    }

    /// The reply to `ROLE`. It does not list a primary's replicas.
    pub(super) fn role_reply(&self) -> Reply {
        let offset = self.lineage.current.offset as i64;
        Reply::Array(match &self.role {
            Role::Primary => {
                vec![Reply::bulk("master"), Reply::Integer(offset), Reply::Array(Vec::new())]
            }
            Role::Replica { primary, is_linked } => vec![
                Reply::bulk("slave"),
                Reply::bulk(&*primary.host),
                Reply::Integer(primary.port.into()),
                Reply::bulk(if *is_linked { "connected" } else { "connect" }),
                Reply::Integer(if *is_linked { offset } else { -1 }),
            ],
        })
    }
}
