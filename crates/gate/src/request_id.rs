//! Request ids: 32 hexadecimal digits that no two requests share, and that reveal nothing about the
//! number of requests between two.

use std::cell::Cell;

use http::{HeaderMap, HeaderValue};

use super::{X_REQUEST_ID, permutation::Permutation};

/// A worker's source of request ids: a counter that is enciphered under the worker's own key. A
/// plain counter would reveal to a client how many requests the others send.
pub struct RequestIds {
    cipher: Permutation,
    next: Cell<u64>,
}

impl Default for RequestIds {
    fn default() -> Self {
        RequestIds { cipher: Permutation::random(), next: Cell::new(0) }
    }
}

/// Longest id of a trusted proxy that is kept.
const MAX_KEPT_BYTES: usize = 200;

impl RequestIds {
    /// The id of a request: the one that a trusted proxy gave it, else a new one.
    pub fn of(&self, headers: &HeaderMap, peer_is_trusted: bool) -> HeaderValue {
        if peer_is_trusted
            && let Some(id) = headers.get(&X_REQUEST_ID)
            && !id.is_empty()
            && id.len() <= MAX_KEPT_BYTES
            && id.as_bytes().iter().all(u8::is_ascii_graphic)
        {
            return id.clone();
        }
        self.fresh()
    }

    /// A new one.
    pub fn fresh(&self) -> HeaderValue {
        let count = self.next.get();
        self.next.set(count.wrapping_add(1));
        let number = self.cipher.permute(count.into());
        let mut id = [0; 32];
        for (at, digit) in id.iter_mut().enumerate() {
            let nibble = (number >> (124 - 4 * at)) as u8 & 15;
            *digit = nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
        }
        HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_32_digits_and_differ() {
        let ids = RequestIds::default();
        let fresh: HashSet<HeaderValue> = (0..1000).map(|_| ids.fresh()).collect();
        assert_eq!(fresh.len(), 1000);
        let is_digit = |byte: &u8| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase();
        assert!(fresh.iter().all(|id| id.len() == 32 && id.as_bytes().iter().all(is_digit)));
    }

    #[test]
    fn only_a_trusted_proxy_names_a_request() {
        let ids = RequestIds::default();
        let mut headers = HeaderMap::new();
        headers.insert(&X_REQUEST_ID, HeaderValue::from_static("theirs"));
        assert_eq!(ids.of(&headers, true), "theirs");
        assert_ne!(ids.of(&headers, false), "theirs");
        headers.insert(&X_REQUEST_ID, HeaderValue::from_static("two words"));
        assert_ne!(ids.of(&headers, true), "two words");
    }
}
