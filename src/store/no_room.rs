//! Why there is no room for another counter, and what can be done about it.

/// Why there is no room for another counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Every counter is in use.
    #[error("every counter is in use")]
    Full,
    /// Counters of those that are kept together with this one fill the part of the store that they may.
    #[error("the part of the store that is for this caller is full")]
    Part,
    /// Counters by address fill the part of the store that they may.
    #[error("counters by address are as many as there may be")]
    Addresses,
    /// Counters by IPv6 network fill the part of the store that they may.
    #[error("counters by IPv6 network are as many as there may be")]
    Networks,
    /// Counters by what clients choose fill the part of the store that they may.
    #[error("counters by what clients choose are as many as there may be")]
    Unverified,
    /// One client has made as many counters by what it chooses as it may.
    #[error("the client has made too many counters by what it chooses")]
    Client,
    /// One client has asked for as many counters by what it chooses, in this minute, as it may.
    #[error("the client has asked for too many counters by what it chooses in a minute")]
    Minute,
}

impl NoRoom {
    /// Every reason.
    pub const ALL: [NoRoom; 7] = [
        NoRoom::Full,
        NoRoom::Part,
        NoRoom::Addresses,
        NoRoom::Networks,
        NoRoom::Unverified,
        NoRoom::Client,
        NoRoom::Minute,
    ];

    /// The reason in a word, for machines.
    pub fn name(self) -> &'static str {
        match self {
            NoRoom::Full => "full",
            NoRoom::Part => "part",
            NoRoom::Addresses => "addresses",
            NoRoom::Networks => "networks",
            NoRoom::Unverified => "unverified",
            NoRoom::Client => "client",
            NoRoom::Minute => "minute",
        }
    }

    /// What can be done about it, for whoever runs the proxy.
    pub(super) fn advice(self) -> &'static str {
        match self {
            NoRoom::Full | NoRoom::Addresses | NoRoom::Networks => "raise store.memory.max_keys",
            NoRoom::Part => {
                "one caller or address has counters without number: what is it counted per?"
            }
            NoRoom::Unverified => {
                "list a limit by client.ip beside limits by what clients choose, or raise \
                 store.unverified_keys.percent or store.memory.max_keys"
            }
            NoRoom::Client => {
                "is it many clients behind one address? see \
                               store.unverified_keys.per_address and trusted_proxies"
            }
            NoRoom::Minute => {
                "is it many clients behind one address? see \
                               store.unverified_keys.new_per_minute and trusted_proxies"
            }
        }
    }

    /// Whether it is for all that there are, and no client can bring it about by what it chooses: a
    /// limit may be open then.
    pub(super) fn is_for_all(self) -> bool {
        match self {
            NoRoom::Full | NoRoom::Addresses | NoRoom::Networks => true,
            NoRoom::Part | NoRoom::Unverified | NoRoom::Client | NoRoom::Minute => false,
        }
    }

    /// Whether the client itself has brought it about, and others are served.
    pub fn is_clients_fault(self) -> bool {
        matches!(self, NoRoom::Client | NoRoom::Minute)
    }
}
