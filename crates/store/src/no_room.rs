//! Why there is no room for another counter, and what can be done about it.

use tollgate_keyword::keywords;

keywords! {
    /// Why there is no room for another counter.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum NoRoom {
        /// Every counter is in use.
        #[error("every counter is in use")]
        Full = "full",
        /// This caller's part of the store is full.
        #[error("the part of the store that is for this caller is full")]
        Part = "part",
        /// Counters by address fill their part of the store.
        #[error("counters by address fill their part of the store")]
        Addresses = "addresses",
        /// Counters by IPv6 network fill their part of the store.
        #[error("counters by IPv6 network fill their part of the store")]
        Networks = "networks",
        /// Counters by client-chosen values fill their part of the store.
        #[error("counters by client-chosen values fill their part of the store")]
        Unverified = "unverified",
        /// One client has created as many counters by values of its own choice as it may.
        #[error("the client has created too many counters by values of its own choice")]
        Client = "client",
        /// One client has used as many counters by values of its own choice in this minute as it
        /// may.
        #[error("the client has used too many counters by values of its own choice in a minute")]
        Minute = "minute",
        /// Marks of used receipts fill the room that they have.
        #[error("marks of used receipts fill the room that they have")]
        Marks = "marks",
    }
}

impl NoRoom {
    /// Advice for the operator.
    pub(super) fn advice(self) -> &'static str {
        match self {
            NoRoom::Full | NoRoom::Addresses | NoRoom::Networks | NoRoom::Marks => {
                "raise store.memory.max_keys"
            }
            NoRoom::Part => {
                "one caller or address has very many counters: check what its limits count `per`"
            }
            NoRoom::Unverified => {
                "list a limit by client.ip beside limits by client-chosen values, or raise \
                 store.unverified_keys.percent or store.memory.max_keys"
            }
            NoRoom::Client => {
                "if many clients are behind one address, see \
                 store.unverified_keys.per_address and trusted_proxies"
            }
            NoRoom::Minute => {
                "if many clients are behind one address, see \
                 store.unverified_keys.new_per_minute and trusted_proxies"
            }
        }
    }

    /// Whether all callers share the cause, and no client can cause it with values that it chooses.
    /// A limit may be open only then.
    pub(super) fn is_for_all(self) -> bool {
        match self {
            NoRoom::Full | NoRoom::Addresses | NoRoom::Networks | NoRoom::Marks => true,
            NoRoom::Part | NoRoom::Unverified | NoRoom::Client | NoRoom::Minute => false,
        }
    }

    /// Whether the client itself has brought it about, and other clients are served.
    pub fn is_clients_fault(self) -> bool {
        matches!(self, NoRoom::Client | NoRoom::Minute)
    }
}
