//! How many requests of a connection have no end of their response yet.

use std::{cell::Cell, rc::Rc};

/// Counts a request until its response has ended or was given up.
pub struct InFlight(Rc<Cell<usize>>);

impl InFlight {
    /// One more than `count` says, until this is dropped.
    pub fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        InFlight(Rc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
