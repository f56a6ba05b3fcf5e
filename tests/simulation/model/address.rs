//! Where a server is, and the numbers that it makes up for itself.

use std::fmt;

use crate::chance::Chance;

/// The host and the port of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The identities that a server makes up.
#[derive(Debug)]
pub(super) struct Identities(Chance);

impl Identities {
    pub(super) fn new(seed: u64) -> Identities {
        Identities(Chance::new(seed))
    }

    /// Another identity: 40 hexadecimal digits.
    pub(super) fn next(&mut self) -> String {
        (0..5).map(|_| format!("{:08x}", self.0.draw() as u32)).collect()
    }
}
