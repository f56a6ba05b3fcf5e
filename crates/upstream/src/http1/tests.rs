//! The codec beside another: what servers send, read by this one and by hyper.

mod differential;
