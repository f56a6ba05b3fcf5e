//! `Via`: the proxies that a message has passed, by which one of them knows that it was there
//! before (RFC 9110 sections 7.6 and 7.6.3).

use http::{HeaderMap, HeaderValue, Version, header};

use crate::media_type::is_token;

/// The longest pseudonym.
pub const MAX_PSEUDONYM_BYTES: usize = 64;

/// What one proxy writes, and finds, in `Via`. The values are made once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    pseudonym: Box<str>,
    of_http10: HeaderValue,
    of_http11: HeaderValue,
    of_http2: HeaderValue,
}

impl Via {
    /// That of a proxy with this name. None: it is no token, or too long.
    pub fn named(pseudonym: &str) -> Option<Via> {
        if !is_token(pseudonym.as_bytes()) || pseudonym.len() > MAX_PSEUDONYM_BYTES {
            return None;
        }
        let of = |version: &str| HeaderValue::try_from(format!("{version} {pseudonym}")).ok();
        Some(Via {
            pseudonym: pseudonym.into(),
            of_http10: of("1.0")?,
            of_http11: of("1.1")?,
            of_http2: of("2")?,
        })
    }

    /// Adds this proxy to the fields of a message that it has received in this version. What is
    /// there already stays before it, on lines of its own.
    pub fn append(&self, headers: &mut HeaderMap, received: Version) {
        let value = match received {
            Version::HTTP_10 => &self.of_http10,
            Version::HTTP_2 => &self.of_http2,
            _ => &self.of_http11,
        };
        headers.append(header::VIA, value.clone());
    }

    /// Whether a message with these fields has passed this proxy before.
    pub fn has_passed(&self, headers: &HeaderMap) -> bool {
        let fields = headers.get_all(header::VIA).iter();
        let mut proxies =
            fields.flat_map(|field| members(field.as_bytes())).filter_map(received_by);
        proxies.any(|name| name.eq_ignore_ascii_case(self.pseudonym.as_bytes()))
    }
}

/// The members of one field. A comma within a comment separates none.
fn members(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    // In a comment that is never closed, a client could hide what proxies put after it.
    let mut whole = Comment::default();
    field.iter().for_each(|byte| whole.read(*byte));
    let has_comments = whole == Comment::default();
    let mut comment = Comment::default();
    field.split(move |byte| {
        if has_comments {
            comment.read(*byte);
        }
        *byte == b',' && comment.depth == 0
    })
}

/// The name of the proxy in a member, after the version in which it was sent the message. None: the
/// member is empty, or malformed.
fn received_by(member: &[u8]) -> Option<&[u8]> {
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'(');
    let mut words = member.split(is_end).filter(|word| !word.is_empty());
    words.nth(1)
}

/// Where in comments a byte is (RFC 9110 section 5.6.5): they may stand within each other.
#[derive(Default, PartialEq, Eq)]
struct Comment {
    depth: usize,
    is_escaped: bool,
}

impl Comment {
    fn read(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'(' => self.depth += 1,
            b')' => self.depth = self.depth.saturating_sub(1),
            b'\\' => self.is_escaped = self.depth > 0,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[&'static str]) -> HeaderMap {
        lines.iter().map(|line| (header::VIA, HeaderValue::from_static(line))).collect()
    }

    #[test]
    fn proxy_finds_itself_in_any_form_of_the_list() {
        let via = Via::named("Edge-1").unwrap();
        for (lines, expected) in [
            (&["1.1 Edge-1"][..], true),
            (&["1.1 eDGE-1"], true),
            (&["HTTP/1.1 edge-1"], true),
            (&["1.0 fred, 1.1 p.example.net", "2 edge-1"], true),
            (&[" , 1.1\t edge-1\t(Tollgate (beta, or so)) , 1.1 other"], true),
            (&["1.1 other (1, 2), 1.1 edge-1"], true),
            (&["1.1 other (a \\) b), 1.1 edge-1"], true),
            (&["1.1 edge-1(no space)"], true),
            (&["1.1 other (never closed, 1.1 edge-1"], true),
            (&["1.1 other )), 1.1 edge-1"], true),
            (&["1.1 other \\(, 1.1 edge-1"], true),
            (&["1.1 other (see, 1.1 edge-1)"], false),
            (&["1.1 other (a (b) c, 1.1 edge-1)"], false),
            (&["1.1 edge-1:8080"], false),
            (&["1.1 edge-10", "1.1 my-edge-1"], false),
            (&["edge-1"], false),
            (&["edge-1 1.1"], false),
            (&["", ","], false),
            (&[], false),
        ] {
            assert_eq!(via.has_passed(&fields(lines)), expected, "{lines:?}");
        }
    }

    #[test]
    fn proxy_is_added_after_the_others_with_the_version_that_it_received() {
        let via = Via::named("edge").unwrap();
        for (received, line) in [
            (Version::HTTP_10, "1.0 edge"),
            (Version::HTTP_11, "1.1 edge"),
            (Version::HTTP_2, "2 edge"),
        ] {
            let mut headers = fields(&["1.0 first, 1.1 second"]);
            via.append(&mut headers, received);
            assert_eq!(headers, fields(&["1.0 first, 1.1 second", line]));
            assert!(via.has_passed(&headers));
        }
    }

    #[test]
    fn pseudonym_is_a_token() {
        let longest = "x".repeat(MAX_PSEUDONYM_BYTES);
        for name in ["edge", "edge-1.example.com", "!#$%&'*+-.^_`|~9", &longest] {
            assert!(Via::named(name).is_some(), "{name}");
        }
        let longer = "x".repeat(MAX_PSEUDONYM_BYTES + 1);
        for name in ["", "a b", "edge:8080", "a,b", "(a)", "[::1]", "\u{e9}", "a\r\n", &longer] {
            assert!(Via::named(name).is_none(), "{name:?}");
        }
    }
}
