//! Interim responses (1xx) on their way from a server to a client, both in HTTP/1.1 (RFC 9110
//! section 15.2): beside the protocol engine of the client's connection, which sends none.

use std::cell::{Cell, RefCell};

use http::Response;

/// Interim responses that the client's socket is to send before anything else.
#[derive(Default)]
pub struct Interim {
    heads: RefCell<Vec<u8>>,
    /// Whether the engine has nothing left of an earlier response.
    is_between: Cell<bool>,
}

impl Interim {
    /// Takes one that is fit for the client, unless an earlier response is still on its way: a
    /// client may miss it.
    pub(crate) fn push(&self, response: Response<()>) {
        if !self.is_between.get() {
            return;
        }
        let (head, ()) = response.into_parts();
        let reason = head.status.canonical_reason().unwrap_or_default();
        let line = format!("HTTP/1.1 {} {reason}\r\n", head.status.as_u16());
        let mut heads = self.heads.borrow_mut();
        heads.extend_from_slice(line.as_bytes());
        for (name, value) in &head.headers {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                heads.extend_from_slice(piece);
            }
        }
        heads.extend_from_slice(b"\r\n");
    }

    /// What is to be sent.
    pub fn heads(&self) -> &RefCell<Vec<u8>> {
        &self.heads
    }

    /// Whether the engine has nothing left to send.
    pub fn set_between(&self, is_between: bool) {
        self.is_between.set(is_between);
    }
}
