//! The URL of a Redis server, checked: its address and the login.

use std::fmt;

use tollgate_wire::target::percent_decoded;

use crate::Secret;

/// A Redis server or a sentinel. Shown as `host:port`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RedisAddress {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    pub(super) is_tls: bool,
    /// The database of the counters. For a sentinel, the database on the servers that it names.
    pub(super) database: u32,
    pub(super) role: Role,
    /// The user and password, if the URL has them.
    pub(super) login: Option<Login>,
}

/// The kind of process at the address. A sentinel has no databases and users of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Server,
    Sentinel,
}

/// A user and its password.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Login {
    /// None: the user `default`.
    pub(super) username: Option<String>,
    pub(super) password: Secret,
}

/// Why a URL names no Redis server. Quotes nothing of it, as any part may be of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadUrl {
    #[error("not the URL of a Redis server")]
    Scheme,
    #[error("Unix sockets are not supported")]
    Unix,
    #[error("a URL without a host")]
    NoHost,
    #[error("not a host")]
    Host,
    #[error("not a port")]
    Port,
    #[error("not a user and a password")]
    Login,
    #[error("not the number of a database")]
    Database,
    #[error("options in a URL are not supported")]
    Options,
}

impl RedisAddress {
    pub(super) fn parse(url: &str, role: Role) -> Result<RedisAddress, BadUrl> {
        if url.starts_with("unix:") || url.starts_with("redis+unix:") {
            return Err(BadUrl::Unix);
        }
        let (scheme, rest) = url.split_once("://").ok_or(BadUrl::Scheme)?;
        let is_tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(BadUrl::Scheme),
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // The password has one of these characters, and so it does not end where it seems to.
        if rest.contains('@') {
            return Err(BadUrl::Login);
        }
        if rest.contains(['?', '#']) {
            return Err(BadUrl::Options);
        }
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(Login::parse(login).ok_or(BadUrl::Login)?), address),
            None => (None, authority),
        };
        let (host, port) = host_and_port(address, role)?;
        let database = match rest.strip_prefix('/') {
            None | Some("") => 0,
            Some(database) => number(database).ok_or(BadUrl::Database)?,
        };
        Ok(RedisAddress { host: host.to_owned(), port, is_tls, database, role, login })
    }

    /// A server without TLS, users and databases.
    pub fn new(host: &str, port: u16) -> RedisAddress {
        let is_tls = false;
        let database = 0;
        let login = None;
        RedisAddress { host: host.to_owned(), port, is_tls, database, role: Role::Server, login }
    }

    /// Its host and port, and its database unless that is 0: together they identify the server.
    pub fn name(&self) -> String {
        match self.database {
            0 => self.to_string(),
            database => format!("{self}/{database}"),
        }
    }

    /// The server at another address, with the same scheme and login. A sentinel names servers,
    /// which do not know the sentinel's own user: so the login of a sentinel is left out.
    #[must_use]
    pub fn at(&self, host: &str, port: u16) -> RedisAddress {
        let login = match self.role {
            Role::Server => self.login.clone(),
            Role::Sentinel => None,
        };
        RedisAddress { host: host.to_owned(), port, role: Role::Server, login, ..*self }
    }

    /// Whether servers at both ([`RedisAddress::at`]) differ only in their addresses.
    pub(super) fn is_like(&self, other: &RedisAddress) -> bool {
        self.at("", 0) == other.at("", 0)
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedisAddress { host, port, .. } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// For display, without the login.
impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{self}/{}", self.database)
    }
}

impl Login {
    /// `user:password` or `:password`, percent-encoded. A user without a password has none of its
    /// own choice, and is as good as no user.
    fn parse(text: &str) -> Option<Login> {
        let (username, password) = text.split_once(':')?;
        let username = percent_decoded(username)?;
        let password = percent_decoded(password)?;
        let username = (!username.is_empty()).then_some(username);
        (!password.is_empty()).then(|| Login { username, password: Secret::new(&password) })
    }
}

impl BadUrl {
    /// What to write instead.
    pub(super) fn help(self) -> &'static str {
        match self {
            BadUrl::Scheme => "write redis://host:6379, or rediss://host:6379 for TLS",
            BadUrl::Unix | BadUrl::NoHost => "write redis://host:6379",
            BadUrl::Host => "write a name or an IP address, IPv6 in brackets: redis://[::1]:6379",
            BadUrl::Port => "write 1 to 65535 after the host: redis://host:6379",
            BadUrl::Login => {
                "write user:password@host, or :password@host; other characters than letters and \
                 digits percent-encoded, such as %2F for a slash"
            }
            BadUrl::Database => "write a number: redis://host:6379/0",
            BadUrl::Options => "remove them; other fields of this section say all else",
        }
    }
}

fn host_and_port(address: &str, role: Role) -> Result<(&str, u16), BadUrl> {
    let default_port = match role {
        Role::Server => 6379,
        Role::Sentinel => 26379,
    };
    let (host, port, is_host): (&str, &str, fn(&str) -> bool) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(BadUrl::Host)?;
            (host, port, |host| host.parse::<std::net::Ipv6Addr>().is_ok())
        }
        None => {
            let (host, port) = address.split_at(address.find(':').unwrap_or(address.len()));
            (host, port, |host| host.bytes().all(is_host_byte))
        }
    };
    if host.is_empty() {
        return Err(BadUrl::NoHost);
    }
    if !is_host(host) {
        return Err(BadUrl::Host);
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        None => return Err(BadUrl::Port),
        Some(port) => number(port).filter(|port| *port != 0).ok_or(BadUrl::Port)?,
    };
    Ok((host, port))
}

/// Names of containers may hold an underscore, which those of the DNS may not.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    // Unlike a number elsewhere, without a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<RedisAddress, BadUrl> {
        RedisAddress::parse(url, Role::Server)
    }

    #[test]
    fn url_says_where_the_server_is() {
        for (url, shown, database) in [
            ("redis://localhost", "localhost:6379", 0),
            ("redis://10.0.0.1:7000/", "10.0.0.1:7000", 0),
            ("rediss://redis-1.cache_net:7000/15", "redis-1.cache_net:7000", 15),
            ("redis://[::1]", "[::1]:6379", 0),
            ("redis://[2001:db8::7]:7000/2", "[2001:db8::7]:7000", 2),
        ] {
            let address = parse(url).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.database, database, "{url}");
            assert_eq!(address.is_tls, url.starts_with("rediss"), "{url}");
        }
        let sentinel = RedisAddress::parse("redis://localhost", Role::Sentinel).unwrap();
        assert_eq!(sentinel.port, 26379);
    }

    #[test]
    fn user_and_password_are_percent_decoded() {
        for (url, username, password) in [
            ("redis://app:pass@h", Some("app"), "pass"),
            ("redis://:pass@h", None, "pass"),
            ("redis://a%40b:p%2f%3A%25%C3%A9@h", Some("a@b"), "p/:%é"),
            ("redis://app:p@ss:w@h", Some("app"), "p@ss:w"),
        ] {
            let login = parse(url).unwrap().login.unwrap();
            assert_eq!(login.username.as_deref(), username, "{url}");
            assert_eq!(login.password.reveal(), password, "{url}");
        }
    }

    #[test]
    fn url_that_names_no_server_is_refused() {
        for (url, expected) in [
            ("localhost:6379", BadUrl::Scheme),
            ("http://localhost", BadUrl::Scheme),
            ("REDIS//localhost", BadUrl::Scheme),
            ("unix:/run/redis.sock", BadUrl::Unix),
            ("redis+unix:///run/redis.sock", BadUrl::Unix),
            ("redis://", BadUrl::NoHost),
            ("redis://:6379", BadUrl::NoHost),
            ("redis://app:pass@", BadUrl::NoHost),
            ("redis:///0", BadUrl::NoHost),
            ("redis://a b", BadUrl::Host),
            ("redis://[::1", BadUrl::Host),
            ("redis://[localhost]", BadUrl::Host),
            ("redis://::1", BadUrl::NoHost),
            ("redis://h:", BadUrl::Port),
            ("redis://h:0", BadUrl::Port),
            ("redis://h:+1", BadUrl::Port),
            ("redis://h:65536", BadUrl::Port),
            ("redis://[::1]7", BadUrl::Port),
            ("redis://h/one", BadUrl::Database),
            ("redis://h/-1", BadUrl::Database),
            ("redis://h/0/1", BadUrl::Database),
            ("redis://h?protocol=resp3", BadUrl::Options),
            ("redis://h/0#x", BadUrl::Options),
            ("redis://app@h", BadUrl::Login),
            ("redis://app:@h", BadUrl::Login),
            ("redis://app:p%4@h", BadUrl::Login),
            ("redis://app:p%zz@h", BadUrl::Login),
            ("redis://app:p%ff@h", BadUrl::Login),
            ("redis://app:pa/ss@h", BadUrl::Login),
            ("redis://app:pa?ss@h", BadUrl::Login),
            ("redis://app:pa#ss@h:6379/0", BadUrl::Login),
        ] {
            assert_eq!(parse(url), Err(expected), "{url}");
        }
    }

    #[test]
    fn another_address_is_reached_in_the_same_way() {
        let address = parse("rediss://app:pass@first:7000/3").unwrap();
        let other = address.at("second", 7001);
        assert_eq!(Ok(other.clone()), parse("rediss://app:pass@second:7001/3"));
        assert!(address.is_like(&other));
        for unlike in ["redis://app:pass@h/3", "rediss://app:pass@h/4", "rediss://h/3"] {
            assert!(!address.is_like(&parse(unlike).unwrap()), "{unlike}");
        }
    }

    #[test]
    fn server_that_a_sentinel_names_does_not_get_the_password_of_the_sentinel() {
        let sentinel = RedisAddress::parse("rediss://:pass@s:26379/3", Role::Sentinel).unwrap();
        assert_eq!(Ok(sentinel.at("h", 6379)), parse("rediss://h:6379/3"));
    }

    #[test]
    fn password_is_never_shown() {
        let address = parse("redis://app:hunter2@h").unwrap();
        for shown in [address.to_string(), format!("{address:?}"), format!("{address:#?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
