//! Any bytes to a listener of the Redis protocol, in any pieces: it never panics, takes no more than
//! there is, keeps no more than a command, and replies the same however the bytes are split.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_clock::Timestamp;
use tollgate::decisions::{Engine, Session};
use tollgate_wire::resp::Replies;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fuzz_target!(|input: (u8, &[u8])| {
    let (split, bytes) = input;
    let (whole, ended) = talk(bytes, bytes.len().max(1));
    let (pieces, ended_in_pieces) = talk(bytes, usize::from(split).max(1));
    assert_eq!(ended, ended_in_pieces);
    assert_eq!(whole, pieces);
});

/// What is replied to bytes that come in pieces of this length, and whether the connection ended.
fn talk(bytes: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut engine = Engine::new([7; 16], 1000, None, NOW);
    let mut session = Session::new(1);
    let mut waiting = Vec::new();
    let mut said = Vec::new();
    for piece in bytes.chunks(piece) {
        waiting.extend_from_slice(piece);
        loop {
            let mut replies = Replies::default();
            let served = engine.serve(&mut session, &waiting, &mut replies, NOW);
            said.extend_from_slice(replies.as_bytes());
            assert!(served.taken <= waiting.len());
            waiting.drain(..served.taken);
            // The policies would decide about the next command; there are none here.
            if served.ends || served.is_named {
                return (said, true);
            }
            if served.is_partial || waiting.is_empty() {
                break;
            }
        }
    }
    (said, false)
}
