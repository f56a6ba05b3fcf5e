//! Interim responses (1xx) on their way from a server to a client, both in HTTP/1.1 (RFC 9110
//! section 15.2): beside the protocol engine of the client's connection, which sends none.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use http::{HeaderName, Response};
use tollgate_policy::HeaderEdits;

/// Interim responses that the client's socket is to send before anything else.
#[derive(Default)]
pub struct Interim {
    heads: RefCell<Vec<u8>>,
    /// Whether the engine has nothing left of an earlier response.
    is_between: Cell<bool>,
    /// What the latest request's route changes in them; none: nothing.
    edits: RefCell<Option<InterimEdits>>,
}

/// What is changed in interim responses, as in the response itself.
pub struct InterimEdits {
    /// Fields that are between the server and this proxy.
    pub hidden: Vec<HeaderName>,
    /// What the route says.
    pub edits: Arc<HeaderEdits>,
}

impl Interim {
    /// Takes one that is fit for the client, unless an earlier response is still on its way: a
    /// client may miss it.
    pub(crate) fn push(&self, response: Response<()>) {
        if !self.is_between.get() {
            return;
        }
        let (mut head, ()) = response.into_parts();
        if let Some(InterimEdits { hidden, edits }) = &*self.edits.borrow() {
            for name in hidden {
                head.headers.remove(name);
            }
            edits.apply(&mut head.headers);
        }
        //= rfc9112#section-4
        //# A server MUST send the space that separates the status-code from the reason-phrase even
        //# when the reason-phrase is absent
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

    /// What is changed in those to the next request from now on.
    pub fn set_edits(&self, edits: Option<InterimEdits>) {
        self.edits.replace(edits);
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
