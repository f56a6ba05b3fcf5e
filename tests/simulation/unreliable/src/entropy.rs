//! What the standard library takes for randomness, decided by a seed on the threads of a
//! simulation: the order of a `HashMap`, and all that comes from a `RandomState`.
//!
//! The standard library asks the C library's `getrandom`, and lets a program have its own: that is
//! the one function here. Other threads get randomness of the system as before.

use std::{cell::Cell, fs::File, io::Read, slice};

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Decides what this thread gets from now on. The thread must be new: what it has taken for its
/// first `HashMap` stays.
pub fn seed_thread(seed: u64) {
    STATE.set(Some(seed));
}

/// Fills `buffer` as the function of this name in the C library does.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller says so.
    let bytes = unsafe { slice::from_raw_parts_mut(buffer, length) };
    match STATE.get() {
        Some(state) => STATE.set(Some(fill(bytes, state))),
        None => {
            let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
            if read.is_err() {
                return -1;
            }
        }
    }
    length.cast_signed()
}

/// Fills `bytes` from a state (xorshift64*), and returns the next one.
fn fill(bytes: &mut [u8], mut state: u64) -> u64 {
    for byte in bytes {
        state = state.max(1);
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        *byte = (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8;
    }
    state
}
