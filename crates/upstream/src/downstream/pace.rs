//! The pace of an HTTP/2 response: whether its client grants it room, and what it gives back to the
//! client's budget of frames.
//!
//! A stream without send window is not polled, so nothing of the upstream's response is read
//! meanwhile; but its task, its upstream connection and the bytes already read are held for as long
//! as the client likes. So a client that grants no window for too long, or too little for the bytes
//! that wait, has that stream reset. Its other streams go on.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
};

use http::HeaderMap;
use tollgate_wire::{frames::Frames, head_limits::fields_bytes};

use super::CutOff;

/// Largest part of a response that is given to the protocol engine at once: what a stream holds
/// when its client stops reading. It is the largest frame that every client takes.
pub const PART_BYTES: usize = 16 * 1024;

/// The pace of one response.
#[derive(Debug)]
pub struct Pace {
    frames: Rc<RefCell<Frames>>,
    /// Parts that the client was given.
    parts: Cell<u64>,
    /// Bytes of them.
    bytes: Cell<u64>,
    /// Whether it is the client's turn: the engine has a part and does not ask for more.
    is_waiting: Cell<bool>,
    /// Made for a response that waits.
    cut_off: OnceCell<Arc<CutOff>>,
}

impl Pace {
    /// That of a stream of the connection whose frames are counted in `frames`.
    pub fn new(frames: &Rc<RefCell<Frames>>) -> Self {
        Pace {
            frames: Rc::clone(frames),
            parts: Cell::new(0),
            bytes: Cell::new(0),
            is_waiting: Cell::new(false),
            cut_off: OnceCell::new(),
        }
    }

    /// Largest part that may be given at once.
    pub fn part_bytes(&self) -> usize {
        PART_BYTES
    }

    /// Records that a part of the response was given to the engine.
    pub fn give(&self, bytes: usize) {
        self.frames.borrow_mut().pay_part(bytes);
        self.parts.set(self.parts.get().wrapping_add(1));
        self.bytes.set(self.bytes.get().wrapping_add(bytes as u64));
        self.is_waiting.set(true);
    }

    /// Records that the engine wants the next part, which the upstream has not sent yet.
    pub fn ask(&self) {
        self.is_waiting.set(false);
    }

    /// Records the end of the response.
    pub fn end(&self) {
        self.frames.borrow_mut().pay_response();
        self.is_waiting.set(false);
    }

    /// Counts trailers of the request; false if the connection must be closed.
    #[must_use]
    pub fn take_trailers(&self, trailers: &HeaderMap) -> bool {
        self.frames.borrow_mut().take_fields(fields_bytes(trailers));
        !self.is_over()
    }

    /// Whether the connection is being closed for a fault of its client.
    pub fn is_over(&self) -> bool {
        self.frames.borrow().fault().is_some()
    }

    /// Bytes that the engine was given so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// How the response is broken off by others.
    pub fn cut_off(&self) -> &Arc<CutOff> {
        self.cut_off.get_or_init(Arc::default)
    }

    /// Whether others have it broken off.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.get().is_some_and(|cut_off| cut_off.is_cut())
    }

    /// The number of the part that waits for the client, if one does.
    pub fn waiting_part(&self) -> Option<u64> {
        self.is_waiting.get().then(|| self.parts.get())
    }
}
