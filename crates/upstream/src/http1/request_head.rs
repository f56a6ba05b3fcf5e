//! The head of a request, as it is written.

use bytes::BytesMut;
use http::request::Parts;

/// Appends a head in HTTP/1.1. Names and values were checked when they were made, so that none has
/// a line's end in it.
pub fn write_head(head: &Parts, buffer: &mut BytesMut) {
    //= rfc9112#section-3.2.1
    //# a client MUST send only the absolute path and query components of the target URI as the
    //# request-target
    //= rfc9112#section-3.2.1
    //# the client MUST send "/" as the path within the origin-form of request-target
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let bytes: usize =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    //= rfc9110#section-2.2
    //# A sender MUST NOT generate protocol elements that do not match the grammar
    //= rfc9112#section-2.2
    //# A sender MUST NOT generate a bare CR
    //= rfc9112#section-5.2
    //# A sender MUST NOT generate a message that includes line folding
    buffer.reserve(head.method.as_str().len() + target.len() + bytes + 16);
    //= rfc9110#section-6.2
    //# A client SHOULD send a request version equal to the highest version to which the client is
    //# conformant
    //= rfc9110#section-6.2
    //# A client MUST NOT send a version to which it is not conformant
    //= rfc9112#section-2.2
    //# A sender MUST NOT send whitespace between the start-line and the first header field
    for text in [head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        buffer.extend_from_slice(text.as_bytes());
    }
    for (name, value) in &head.headers {
        buffer.extend_from_slice(name.as_str().as_bytes());
        //= rfc9110#section-5.6.3
        //# a sender SHOULD generate the optional whitespace as a single SP
        //= rfc9110#section-5.6.3
        //# A sender MUST NOT generate BWS in messages
        buffer.extend_from_slice(b": ");
        buffer.extend_from_slice(value.as_bytes());
        buffer.extend_from_slice(b"\r\n");
    }
    buffer.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    #[test]
    fn head_has_a_line_for_each_field() {
        let mut request = Request::post("/a?b=c").body(()).unwrap();
        for value in ["1", "2"] {
            request.headers_mut().append("x-a", HeaderValue::from_static(value));
        }
        request.headers_mut().append("host", HeaderValue::from_static("h"));
        let mut written = BytesMut::new();
        write_head(&request.into_parts().0, &mut written);
        let lines = "POST /a?b=c HTTP/1.1\r\nx-a: 1\r\nx-a: 2\r\nhost: h\r\n\r\n";
        assert_eq!(str::from_utf8(&written).unwrap(), lines);
    }
}
