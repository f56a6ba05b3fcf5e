//! What the tests of reports share.

pub(super) mod example;
