//! The keys that issuers publish, as a running proxy has fetched them for the policies in force.

use std::sync::Arc;

use tollgate_clock::Timestamp;

use super::{
    issuer::{Issuer, IssuerKeys},
    keys::{KeyRing, KeySet, KeysVersion, RemoteKeys},
    rules::IdentityRules,
};

/// The published keys of all issuers of all policies, by [`IssuerKeys::Remote`]'s position. The
/// default has none: every issuer that publishes its keys is unavailable.
#[derive(Clone, Default)]
pub struct PublishedKeys(Vec<Arc<RemoteKeys>>);

impl PublishedKeys {
    /// Takes the keys of these issuers from the ring, which fetches those that it does not have.
    pub fn adopt<'i>(issuers: impl Iterator<Item = &'i Issuer>, ring: &KeyRing) -> PublishedKeys {
        let specs = issuers.filter_map(|issuer| match &issuer.keys {
            IssuerKeys::Fixed(_) => None,
            IssuerKeys::Remote { spec, .. } => Some(spec),
        });
        PublishedKeys(specs.map(|spec| ring.adopt(spec)).collect())
    }

    /// Numbers the issuers that publish their keys, in the order in which [`adopt`](Self::adopt)
    /// takes them.
    pub fn number<'i>(issuers: impl Iterator<Item = &'i mut Issuer>) {
        let positions = issuers.filter_map(|issuer| match &mut issuer.keys {
            IssuerKeys::Fixed(_) => None,
            IssuerKeys::Remote { position, .. } => Some(position),
        });
        positions.enumerate().for_each(|(number, position)| *position = number);
    }
}

/// The keys of issuers at an instant: those in the policy, and those that are published.
#[derive(Clone, Copy)]
pub struct CurrentKeys<'k> {
    /// The published keys.
    pub published: &'k PublishedKeys,
    /// The instant.
    pub now: Timestamp,
}

impl CurrentKeys<'_> {
    /// The keys to verify with. None: they were never fetched, or are too old.
    pub(super) fn of(self, keys: &IssuerKeys) -> Option<Arc<KeySet>> {
        match keys {
            IssuerKeys::Fixed(keys) => Some(Arc::clone(keys)),
            IssuerKeys::Remote { position, .. } => self.published_at(*position)?.current(self.now),
        }
    }

    /// Which set of keys this is: a token that one set has verified may be refused by another.
    pub(super) fn version(self, keys: &IssuerKeys) -> KeysVersion {
        match keys {
            IssuerKeys::Fixed(_) => KeysVersion { generation: 0, are_usable: true },
            IssuerKeys::Remote { position, .. } => self
                .published_at(*position)
                .map_or(KeysVersion::NONE, |keys| keys.version(self.now)),
        }
    }

    /// A number that changes when the keys of any issuer of these rules do.
    pub(super) fn generation(self, rules: &IdentityRules) -> u64 {
        // New keys have a higher generation than all before them, so the sum differs.
        let issuers = rules.issuers.iter();
        issuers.map(|issuer| self.version(&issuer.keys).generation).fold(0, u64::wrapping_add)
    }

    /// Fetches published keys again, unless that was done just now.
    pub(super) async fn refresh(self, keys: &IssuerKeys) {
        if let IssuerKeys::Remote { position, .. } = keys
            && let Some(keys) = self.published_at(*position)
        {
            keys.refresh(self.now).await;
        }
    }

    fn published_at(&self, position: usize) -> Option<&Arc<RemoteKeys>> {
        self.published.0.get(position)
    }
}
