//! Whether a response is broken off because its client does not read, which others decide.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
};

use parking_lot::Mutex;

/// Tells the task of a response that is not polled that it is to be broken off. Another worker may
/// have found that out.
#[derive(Debug, Default)]
pub struct CutOff {
    is_cut: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl CutOff {
    /// The task to wake.
    pub(crate) fn watch(&self, context: &Context<'_>) {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    /// Has it broken off.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it is to be broken off.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }
}
