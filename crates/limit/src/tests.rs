//! What the tests of all algorithms share.

pub(crate) mod suite;
