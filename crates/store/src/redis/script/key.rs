//! The names of counters in Redis: `<prefix>:{<owner>}<entry>`.
//!
//! The part in braces determines the slot, so all counters of an owner share one. It is half of the
//! owner's hash. Two owners are unlikely to have the same half, and this would do no harm, because
//! the entry by itself is unique for each counter. Both are base64url, so that no name has another
//! brace or a control character.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use smallvec::SmallVec;
use tollgate_limit::Key;

/// The name of a counter.
pub(super) type KeyName = SmallVec<[u8; 64]>;

/// The tag that determines the slot of all counters of an owner.
pub(in crate::redis) fn slot_tag(owner: u128) -> [u8; 11] {
    let [half, _] = halves(owner);
    base64(&half)
}

/// The name of a counter.
pub(super) fn key_name(prefix: &str, key: Key) -> KeyName {
    let mut name = KeyName::with_capacity(prefix.len() + 36);
    name.extend_from_slice(prefix.as_bytes());
    name.extend_from_slice(b":{");
    name.extend_from_slice(&slot_tag(key.owner));
    name.push(b'}');
    name.extend_from_slice(&base64::<22>(&key.entry.to_be_bytes()));
    name
}

/// The name of the marker that a counter was reset lately, in the counter's slot: its name with an
/// exclamation mark, which no counter's name has.
pub(super) fn reset_marker(prefix: &str, key: Key) -> KeyName {
    let mut name = key_name(prefix, key);
    name.push(b'!');
    name
}

fn halves(number: u128) -> [[u8; 8]; 2] {
    [(number >> 64) as u64, number as u64].map(u64::to_be_bytes)
}

/// The text of `bytes`, which is of length `N`.
fn base64<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut text = [b'A'; N];
    // A length that does not fit would be a mistake of this file, which its test finds.
    let _ = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(owner: u128, entry: u128) -> String {
        String::from_utf8(key_name("tollgate", Key { owner, entry }).to_vec()).unwrap()
    }

    #[test]
    fn name_has_the_owner_in_braces_and_the_entry_after() {
        assert_eq!(text(0, 0), "tollgate:{AAAAAAAAAAA}AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(text(u128::MAX, u128::MAX), "tollgate:{__________8}_____________________w");
        assert_eq!(&slot_tag(u128::MAX), b"__________8");
    }

    proptest! {
        #[test]
        fn prop_entries_have_names_of_their_own(owner: u128, left: u128, right: u128) {
            prop_assert_eq!(text(owner, left) == text(owner, right), left == right);
            prop_assert_eq!(text(owner, left).matches(['{', '}']).count(), 2);
        }
    }
}
