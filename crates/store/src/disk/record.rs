//! A counter as it is on disk: what it was counted by, who vouches for its key, and its state.

use tollgate_clock::Timestamp;
use tollgate_limit::{Algorithm, AlgorithmKind, Bytes, State, with_kind};

/// The bytes of a key on disk: what the tables distinguish of it, in big-endian order.
pub(super) const KEY_BYTES: usize = 14;

/// The fields before a state: the algorithm's number and the tag.
const HEAD_BYTES: usize = 3;

/// A counter, read from disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The algorithm that it is counted by.
    pub(crate) kind: AlgorithmKind,
    /// Who vouches for its key, as the tables in memory have it.
    pub(crate) tag: u16,
    /// Its state, encoded.
    pub(crate) state: Vec<u8>,
}

impl Record {
    /// Reads a value; none if it is not one of ours.
    pub(super) fn read(value: &[u8]) -> Option<Record> {
        let (head, state) = value.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, tag @ ..] = head;
        let kind = AlgorithmKind::from_number(*kind)?;
        Some(Record { kind, tag: u16::from_le_bytes(tag.to_owned()), state: state.to_vec() })
    }

    /// Whether it decides as an unused counter does from `now` on, by its algorithm's own rule.
    /// None if its state cannot be read.
    pub(super) fn is_over(&self, now: Timestamp) -> Option<bool> {
        let mut bytes = Bytes(&self.state);
        with_kind!(self.kind, Own => {
            let state = <Own as Algorithm>::State::decode(&mut bytes)?;
            bytes.0.is_empty().then(|| state.is_over(now))
        })
    }
}

/// A key as it is on disk.
pub(super) fn key_bytes(key: u128) -> [u8; KEY_BYTES] {
    let [_, _, rest @ ..] = key.to_be_bytes();
    rest
}

/// The key with these bytes; none if there are more or fewer.
pub(super) fn key_of(bytes: &[u8]) -> Option<u128> {
    let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
    Some(bytes.iter().fold(0, |key, byte| key << 8 | u128::from(*byte)))
}

/// Appends the fields before a state.
pub(super) fn write_head(bytes: &mut Vec<u8>, kind: AlgorithmKind, tag: u16) {
    bytes.push(kind.number());
    bytes.extend(tag.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use tollgate_limit::Window;

    use super::*;

    const END: Timestamp = Timestamp::from_secs(1_790_000_000);

    #[test]
    fn key_is_the_same_after_it_was_written() {
        for key in [0, 1, 0xFF << 100, (1 << 109) - 1] {
            assert_eq!(key_of(&key_bytes(key)), Some(key));
        }
        assert_eq!(key_of(&[0; 13]), None);
    }

    #[test]
    fn record_is_read_and_judged_by_its_own_algorithm() {
        let mut value = Vec::new();
        write_head(&mut value, AlgorithmKind::FixedWindow, 7);
        Window { used: 3, reset: END }.encode(&mut value);
        let record = Record::read(&value).unwrap();
        assert_eq!((record.kind, record.tag), (AlgorithmKind::FixedWindow, 7));
        assert_eq!(record.is_over(Timestamp::from_secs(1_789_999_999)), Some(false));
        assert_eq!(record.is_over(END), Some(true));
    }

    #[test]
    fn what_is_not_a_record_is_not_read() {
        for foreign in [&[][..], &[1, 0], &[0, 0, 0], &[200, 0, 0, 1, 2, 3]] {
            assert_eq!(Record::read(foreign), None);
        }
        let short = Record { kind: AlgorithmKind::Gcra, tag: 0, state: vec![1, 2, 3] };
        assert_eq!(short.is_over(END), None);
    }
}
