//! The frame of a message in gRPC over HTTP/2: a byte that says whether it is compressed, four with
//! its length, and the message.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// Bytes before a message.
pub const PREFIX: usize = 5;

/// Why the body of a call is not one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The call did not say how it would compress messages, or in a way that nothing here reads.
    #[error("compressed messages are not read here")]
    Compressed,
    /// It ends too early, or goes on.
    #[error("the body is not one whole message")]
    Length,
    /// It is no message of this kind.
    #[error("the message is malformed: {0}")]
    Malformed(#[from] DecodeError),
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not follow its schema")]
pub struct DecodeError;

/// The one message of a call.
///
/// # Errors
/// [`FrameError`].
pub fn read<M: Message + Default>(body: &[u8]) -> Result<M, FrameError> {
    let (prefix, message) = body.split_at_checked(PREFIX).ok_or(FrameError::Length)?;
    let &[flag, a, b, c, d] = prefix else { return Err(FrameError::Length) };
    if flag != 0 {
        return Err(FrameError::Compressed);
    }
    if usize::try_from(u32::from_be_bytes([a, b, c, d])) != Ok(message.len()) {
        return Err(FrameError::Length);
    }
    M::decode(message).map_err(|_| FrameError::Malformed(DecodeError))
}

/// A message in its frame.
pub fn written(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // There is room for all of it.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::health::HealthCheckRequest;

    #[test]
    fn frames_are_one_whole_message() {
        let asked = HealthCheckRequest { service: "s".to_owned() };
        let frame = written(&asked);
        assert_eq!(frame.as_ref(), b"\0\0\0\0\x03\x0a\x01s");
        assert_eq!(read::<HealthCheckRequest>(&frame), Ok(asked));
        type Read = Result<HealthCheckRequest, FrameError>;
        let broken = |bytes: &[u8]| -> Read { read(bytes) };
        for length in 0..frame.len() {
            assert_eq!(broken(&frame[..length]), Err(FrameError::Length), "{length}");
        }
        assert_eq!(broken(&[&frame[..], b"\0"].concat()), Err(FrameError::Length));
        assert_eq!(broken(b"\x01\0\0\0\0"), Err(FrameError::Compressed));
        let garbage = Err(FrameError::Malformed(DecodeError));
        assert_eq!(broken(b"\0\0\0\0\x03\x0a\x09s"), garbage);
    }
}
