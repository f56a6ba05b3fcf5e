//! What clients say about their connection, and what they ask before they begin.

use tollgate_wire::resp::{Arguments, Protocol, Replies};

use super::{
    Engine, MAX_FAILED_PASSWORDS, Session, described, is_integer, lower, unknown, wrong_number,
};

/// Bytes of the name that a client may give its connection.
const MAX_CLIENT_NAME: usize = 128;

/// The only user there is.
const USER: &[u8] = b"default";

pub(super) const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled.";
pub(super) const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
                           otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
                           authenticate the client and select the RESP protocol version at the \
                           same time";

impl Engine {
    /// None: the connection ends.
    pub(super) fn reply_to_client(
        &mut self,
        session: &mut Session,
        name: &[u8],
        arguments: &Arguments<'_>,
        replies: &mut Replies,
    ) -> Option<()> {
        match (name, arguments.len()) {
            (b"ping", 1) => replies.simple("PONG"),
            (b"ping" | b"echo", 2) => replies.bulk(arguments.at(1).unwrap_or_default()),
            (b"quit", _) => {
                replies.simple("OK");
                return None;
            }
            (b"reset", 1) => {
                *session = session.anew();
                replies.simple("RESET");
            }
            (b"select", 2) => match is_integer(arguments.at(1).unwrap_or_default(), 0) {
                true => replies.simple("OK"),
                false => replies.error("ERR DB index is out of range"),
            },
            (b"auth", 2) => {
                let password = arguments.at(1).unwrap_or_default();
                return self.authenticate(session, USER, password, replies);
            }
            (b"auth", 3) => {
                let user = arguments.at(1).unwrap_or_default();
                let password = arguments.at(2).unwrap_or_default();
                return self.authenticate(session, user, password, replies);
            }
            (b"hello", _) => return self.greet(session, arguments, replies),
            (b"client", 2..) => set_client(session, arguments, replies),
            (b"command", _) => described::commands(arguments, replies),
            (b"config", 3..) => described::configuration(arguments, replies),
            (b"ping" | b"echo" | b"reset" | b"select" | b"auth" | b"client" | b"config", _) => {
                wrong_number(arguments, replies)
            }
            _ => unknown(arguments.at(0).unwrap_or_default(), replies),
        }
        Some(())
    }

    /// Replies, and ends the connection of who guesses.
    fn authenticate(
        &self,
        session: &mut Session,
        user: &[u8],
        password: &[u8],
        replies: &mut Replies,
    ) -> Option<()> {
        if self.password.is_none() {
            replies.error(NO_PASSWORD);
            return Some(());
        }
        self.check_password(session, user, password, replies)?;
        if session.is_authenticated {
            replies.simple("OK");
        }
        Some(())
    }

    /// Replies only if it is wrong. None: the connection ends.
    fn check_password(
        &self,
        session: &mut Session,
        user: &[u8],
        password: &[u8],
        replies: &mut Replies,
    ) -> Option<()> {
        session.is_authenticated = self.is_password(password) && user == USER;
        if session.is_authenticated {
            session.failed_passwords = 0;
            return Some(());
        }
        replies.error(WRONG_PASSWORD);
        session.failed_passwords += 1;
        (session.failed_passwords < MAX_FAILED_PASSWORDS).then_some(())
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`. None: the connection ends.
    fn greet(
        &self,
        session: &mut Session,
        arguments: &Arguments<'_>,
        replies: &mut Replies,
    ) -> Option<()> {
        let protocol = match arguments.at(1) {
            None => session.protocol,
            Some(version) if is_integer(version, 2) => Protocol::Resp2,
            Some(version) if is_integer(version, 3) => Protocol::Resp3,
            Some(_) => {
                replies.error("NOPROTO unsupported protocol version");
                return Some(());
            }
        };
        let mut client_name = None;
        let mut credentials = None;
        let mut place = 2;
        while let Some(option) = arguments.at(place) {
            let rest = arguments.len() - place - 1;
            if option.eq_ignore_ascii_case(b"auth") && rest >= 2 {
                credentials = arguments.at(place + 1).zip(arguments.at(place + 2));
                place += 3;
            } else if option.eq_ignore_ascii_case(b"setname") && rest >= 1 {
                client_name = arguments.at(place + 1);
                place += 2;
            } else {
                replies.error_about("ERR Syntax error in HELLO option '", option, "'");
                return Some(());
            }
        }
        if let Some((user, password)) = credentials.filter(|_| self.password.is_some()) {
            self.check_password(session, user, password, replies)?;
            if !session.is_authenticated {
                return Some(());
            }
        }
        if !self.may_ask(session) {
            replies.error(HELLO_FIRST);
            return Some(());
        }
        if let Some(name) = client_name
            && !rename(session, name, replies)
        {
            return Some(());
        }
        session.protocol = protocol;
        replies.speak(protocol);
        described::greeting(session, replies);
        Some(())
    }
}

fn set_client(session: &mut Session, arguments: &Arguments<'_>, replies: &mut Replies) {
    let mut lowered = [0; super::MAX_NAME];
    let subcommand = lower(arguments.at(1).unwrap_or_default(), &mut lowered);
    match (subcommand, arguments.len()) {
        (b"id", 2) => replies.integer(session.id),
        (b"getname", 2) if session.name.is_empty() => replies.null(),
        (b"getname", 2) => replies.bulk(&session.name),
        (b"setname", 3) => {
            if rename(session, arguments.at(2).unwrap_or_default(), replies) {
                replies.simple("OK");
            }
        }
        // What library it is, and what it wants of an eviction that is not of clients here.
        (b"setinfo", 4) | (b"no-evict" | b"no-touch", 3) => replies.simple("OK"),
        (b"id" | b"getname" | b"setname" | b"setinfo" | b"no-evict" | b"no-touch", _) => {
            let subcommand = [b"client|", subcommand].concat();
            replies.error_about("ERR wrong number of arguments for '", &subcommand, "' command");
        }
        _ => {
            let subcommand = arguments.at(1).unwrap_or_default();
            replies.error_about("ERR unknown subcommand '", subcommand, "' of CLIENT");
        }
    }
}

/// Replies only if it cannot be the name.
fn rename(session: &mut Session, name: &[u8], replies: &mut Replies) -> bool {
    let is_name = name.len() <= MAX_CLIENT_NAME && name.iter().all(u8::is_ascii_graphic);
    match is_name {
        true => session.name = name.to_owned(),
        false => replies.error(
            "ERR Client names are at most 128 bytes, without spaces, newlines or special characters",
        ),
    }
    is_name
}
