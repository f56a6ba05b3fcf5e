//! Requests of one worker that wait for a connection to one server, in the order in which they came.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    task::{Context, Waker},
};

/// Who waits. Only the first may take what has become free; when he leaves, with it or without, the
/// next is woken.
#[derive(Default)]
pub(super) struct Line {
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

/// A place in the line, left when it is dropped.
pub(super) struct InLine<'l> {
    line: &'l Line,
    waiter: Rc<Waiter>,
}

#[derive(Default)]
struct Waiter(RefCell<Option<Waker>>);

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Goes to the end of it.
    pub(super) fn join(&self) -> InLine<'_> {
        let waiter = Rc::<Waiter>::default();
        self.waiters.borrow_mut().push_back(Rc::clone(&waiter));
        InLine { line: self, waiter }
    }

    /// Something may have become free.
    pub(super) fn wake_first(&self) {
        if let Some(waker) = self.waiters.borrow().front().and_then(|first| first.0.take()) {
            waker.wake();
        }
    }
}

impl InLine<'_> {
    pub(super) fn is_first(&self) -> bool {
        let waiters = self.line.waiters.borrow();
        waiters.front().is_some_and(|first| Rc::ptr_eq(first, &self.waiter))
    }

    /// Has the task woken when it may be its turn.
    pub(super) fn wait(&self, context: &Context<'_>) {
        *self.waiter.0.borrow_mut() = Some(context.waker().clone());
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.line.waiters.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.waiter));
        self.line.wake_first();
    }
}
