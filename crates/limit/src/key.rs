//! Counter keys: 128 bits of a keyed hash, so that no client can write, guess or collide one.
//!
//! The kind and the length precede every part, so the encoding is injective: a user named `1.2.3.4`
//! is not the address, and no text that a client chooses can run into the next part. The hash key
//! is a secret, so keys reveal nothing without it.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// Names one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The owner of the counter: a store keeps all counters of one owner together.
    pub owner: u128,
    /// Which counter.
    pub entry: u128,
}

/// Identifies a limit and its window in every [`Key`]. The rate is not part of it, so a changed
/// rate keeps what was counted; a changed window is another counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitId(u128);

impl LimitId {
    /// The id of a limit of a policy, counted by `algorithm` over `window_micros`.
    pub fn new(policy: &str, limit: &str, algorithm: &str, window_micros: u64) -> Self {
        // No secret is needed here: it is combined with the owner's hash, which has one.
        let mut hash = Tuple(SipHasher13::new());
        hash.part(b'p', policy.as_bytes());
        hash.part(b'l', limit.as_bytes());
        hash.part(b'a', algorithm.as_bytes());
        hash.part(b'w', &window_micros.to_le_bytes());
        LimitId(hash.finish())
    }
}

/// Hashes identities under a secret.
#[derive(Clone)]
pub struct KeyHasher(SipHasher13);

impl KeyHasher {
    /// A hasher with this secret.
    pub fn new(secret: [u8; 16]) -> Self {
        KeyHasher(SipHasher13::new_with_key(&secret))
    }

    /// Hash of a tuple of parts, each a kind and its bytes.
    pub fn hash<'a>(&self, parts: impl IntoIterator<Item = (u8, &'a [u8])>) -> u128 {
        let mut hash = Tuple(self.0);
        for (kind, bytes) in parts {
            hash.part(kind, bytes);
        }
        hash.finish()
    }
}

impl Key {
    /// The counter of `limit` for the tuple that hashed to `entry`, kept with `owner`.
    ///
    /// Both hashes are pseudo-random functions of their input, so their XOR is as good as one hash
    /// over both, and the identity is hashed once for all limits.
    pub fn new(owner: u128, entry: u128, limit: LimitId) -> Self {
        Key { owner, entry: entry ^ limit.0 }
    }

    /// What the tuple hashed to that this counter of `limit` is for: the same in all its windows.
    pub fn tuple(&self, limit: LimitId) -> u128 {
        self.entry ^ limit.0
    }
}

struct Tuple(SipHasher13);

impl Tuple {
    fn part(&mut self, kind: u8, bytes: &[u8]) {
        let mut head = [kind; 9];
        if let Some(length) = head.last_chunk_mut::<8>() {
            *length = (bytes.len() as u64).to_le_bytes();
        }
        self.0.write(&head);
        self.0.write(bytes);
    }

    fn finish(self) -> u128 {
        self.0.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn user_named_like_an_address_is_not_the_address() {
        let hasher = KeyHasher::new([7; 16]);
        assert_ne!(hasher.hash([(b'u', &b"1.2.3.4"[..])]), hasher.hash([(b'i', &b"1.2.3.4"[..])]));
    }

    #[test]
    fn limits_of_one_owner_have_different_entries() {
        let owner = KeyHasher::new([7; 16]).hash([(b'u', &b"42"[..])]);
        let key = |limit| Key::new(owner, owner, LimitId::new("api", limit, "fixed_window", 60));
        assert_ne!(key("core").entry, key("search").entry);
        assert_eq!(key("core").owner, key("search").owner);
    }

    proptest! {
        #[test]
        fn prop_tuples_that_differ_hash_differently(
            left in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..6)), 0..4),
            right in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..6)), 0..4),
        ) {
            let hasher = KeyHasher::new([7; 16]);
            let hash = |parts: &[(u8, Vec<u8>)]| {
                hasher.hash(parts.iter().map(|(kind, bytes)| (*kind, bytes.as_slice())))
            };
            prop_assert_eq!(left == right, hash(&left) == hash(&right));
        }
    }
}
