//! The bytes of a reply, read from the front.

use redis::Value;
use tollgate_clock::Timestamp;

use super::NEVER;

/// Why a reply cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadReply {
    /// It is not a string of bytes.
    #[error("the reply is not a string of bytes, which every script returns")]
    Kind,
    /// It is too short or too long for its charges.
    #[error("the reply has an unexpected length: {0} bytes")]
    Length(usize),
    /// It has a number that is negative or not finite.
    #[error("the reply has a number that is negative or not finite")]
    Number,
}

/// The rest of a reply.
pub(super) struct ReplyReader<'r> {
    bytes: &'r [u8],
    /// The length of the whole reply.
    length: usize,
}

impl<'r> ReplyReader<'r> {
    pub(super) fn new(reply: &'r Value) -> Result<Self, BadReply> {
        let Value::BulkString(bytes) = reply else { return Err(BadReply::Kind) };
        Ok(ReplyReader { bytes, length: bytes.len() })
    }

    /// Returns `value` if the whole reply was read.
    pub(super) fn finish<T>(&self, value: T) -> Result<T, BadReply> {
        if self.is_empty() { Ok(value) } else { Err(BadReply::Length(self.length)) }
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn flag(&mut self) -> Result<bool, BadReply> {
        let [byte] = self.take()?;
        Ok(byte == 1)
    }

    /// A number.
    pub(super) fn number(&mut self) -> Result<u64, BadReply> {
        let double = self.double()?;
        (double >= 0.0 && double.is_finite()).then_some(double as u64).ok_or(BadReply::Number)
    }

    /// A number that saturates as the numbers of states do.
    pub(super) fn count(&mut self) -> Result<u32, BadReply> {
        self.number().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// An instant.
    pub(super) fn instant(&mut self) -> Result<Timestamp, BadReply> {
        let micros = self.number()?;
        Ok(Timestamp::from_micros(if micros < NEVER { micros } else { u64::MAX }))
    }

    /// An instant, or -1 for none.
    pub(super) fn some_instant(&mut self) -> Result<Option<Timestamp>, BadReply> {
        if self.bytes.starts_with(&(-1_f64).to_le_bytes()) {
            return self.double().map(|_| None);
        }
        self.instant().map(Some)
    }

    pub(super) fn double(&mut self) -> Result<f64, BadReply> {
        self.take().map(f64::from_le_bytes)
    }

    /// The next bytes.
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], BadReply> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(BadReply::Length(self.length))?;
        self.bytes = rest;
        Ok(*taken)
    }
}
