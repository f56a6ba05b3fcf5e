//! Requests of one worker that wait for a connection to one server, first come, first served.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    task::{Context, Waker},
};

/// The waiting requests. Only the first may take a connection that has become free; when it leaves
/// the queue, with a connection or without, the next is woken.
#[derive(Default)]
pub(super) struct WaitQueue {
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

/// A position in the queue; dropping it leaves the queue.
pub(super) struct QueuePosition<'q> {
    queue: &'q WaitQueue,
    waiter: Rc<Waiter>,
}

#[derive(Default)]
struct Waiter(RefCell<Option<Waker>>);

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Joins at the end of the queue.
    pub(super) fn join(&self) -> QueuePosition<'_> {
        let waiter = Rc::<Waiter>::default();
        self.waiters.borrow_mut().push_back(Rc::clone(&waiter));
        QueuePosition { queue: self, waiter }
    }

    /// Wakes the first request: a connection may have become free.
    pub(super) fn wake_first(&self) {
        if let Some(waker) = self.waiters.borrow().front().and_then(|first| first.0.take()) {
            waker.wake();
        }
    }
}

impl QueuePosition<'_> {
    pub(super) fn is_first(&self) -> bool {
        let waiters = self.queue.waiters.borrow();
        waiters.front().is_some_and(|first| Rc::ptr_eq(first, &self.waiter))
    }

    /// Registers the task to be woken when it may be first.
    pub(super) fn wait(&self, context: &Context<'_>) {
        *self.waiter.0.borrow_mut() = Some(context.waker().clone());
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.queue.waiters.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.waiter));
        self.queue.wake_first();
    }
}
