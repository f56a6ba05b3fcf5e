//! How much the heads of an HTTP/2 connection grow when they are decompressed.
//!
//! What a client has sent once it names by a single byte after that, and by another one if it is to
//! be there twice (RFC 7541 section 6.1). So 22 bytes can become a head of 28,000, which goes on to
//! a server that speaks HTTP/1.1 as it is. Here a connection has room for what its heads are larger
//! than what came for them, and is over when there is none left.
//!
//! A head that names nothing twice takes no room, however often it is sent: the table of what was
//! sent before holds 4,096 bytes (section 4.2), so a cookie or a token that comes again is smaller
//! than what every head may grow by. A ratio could not separate the two, since such a cookie, too,
//! makes a hundred bytes of one.

/// Room for heads to grow.
#[derive(Debug)]
pub(super) struct Growth {
    /// Bytes that heads may still have.
    room: u32,
    most: u32,
}

/// Room at the beginning.
const ROOM: u32 = 1024 * 1024;

/// What each head may grow by: what the table holds, and names of the static table (appendix A).
const A_HEAD: u32 = 6 * 1024;

/// Huffman's shortest code has five bits for a byte (appendix B).
const A_BYTE: u32 = 2;

/// What is reserved for each head whose size is not known yet: its growth, and a usual size.
const A_WAITING_HEAD: u32 = A_HEAD + 2 * 1024;

impl Growth {
    /// Of a connection that may have so many streams: the engine may read as many heads before it
    /// hands on the first.
    pub(super) fn new(streams: u32) -> Self {
        Growth { room: ROOM, most: ROOM.saturating_add(streams.saturating_mul(A_WAITING_HEAD)) }
    }

    /// A head begins with so many compressed bytes.
    pub(super) fn begin_head(&mut self, length: u32) {
        self.give(A_HEAD);
        self.continue_head(length);
    }

    /// It goes on with so many.
    pub(super) fn continue_head(&mut self, length: u32) {
        self.give(length.saturating_mul(A_BYTE));
    }

    /// Takes the room of a head that is this large; false if there is not as much.
    #[must_use]
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.room.checked_sub(bytes));
        self.room = left.unwrap_or(0);
        left.is_some()
    }

    fn give(&mut self, bytes: u32) {
        self.room = self.room.saturating_add(bytes).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many heads of `large` bytes, of which `small` came, a connection takes.
    fn most(small: u32, large: usize) -> usize {
        let mut growth = Growth::new(100);
        (0..100_000)
            .take_while(|_| {
                growth.begin_head(small);
                growth.take(large)
            })
            .count()
    }

    #[test]
    fn heads_that_name_nothing_twice_are_not_bounded() {
        // A cookie that the table just holds; a head in Huffman's code; one that is just large.
        for (small, large) in [(13, 4096 + 200), (20_000, 32_000), (32_000, 32_768), (13, 60)] {
            assert_eq!(most(small, large), 100_000, "{small} to {large}");
        }
    }

    #[test]
    fn heads_that_name_it_seven_times_are_few() {
        assert_eq!(most(13, 7 * 4005), 47);
        assert_eq!(most(13, 2 * 4096), 518);
    }

    #[test]
    fn room_is_not_saved_up() {
        let mut growth = Growth::new(100);
        (0..100_000).for_each(|_| growth.begin_head(16_384));
        assert!(growth.take(1024 * (1024 + 100 * 8)));
        assert!(!growth.take(1));
    }

    #[test]
    fn heads_that_come_at_once_are_no_more_than_one_after_the_other() {
        for streams in [1, 100, 10_000] {
            let mut growth = Growth::new(streams);
            for _ in 0..10 {
                (0..streams).for_each(|_| growth.begin_head(40));
                assert!((0..streams).all(|_| growth.take(5000)), "{streams}");
            }
        }
    }
}
