use super::*;

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nvia: HTTP/1.1 103\r\ncontent-length: 4\r\n\r\n";

/// The head that comes in pieces of this size, and how much was left of them; none if it is not
/// complete.
fn read_by(
    text: &str,
    size: usize,
    expected: Expected,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    let mut reader = HeadReader::default();
    let mut read = BytesMut::new();
    let mut left = text.len();
    for piece in text.as_bytes().chunks(size) {
        read.extend_from_slice(piece);
        left -= piece.len();
        while let Some(head) = reader.take(&mut read, expected)? {
            if !head.is_interim() {
                return Ok(Some((head, left + read.len())));
            }
        }
    }
    Ok(None)
}

/// The same however it is cut, in words: status, length of the body, whether the connection is
/// kept, and what is left.
fn read(text: &str, expected: Expected) -> String {
    let words = |size| match read_by(text, size, expected) {
        Ok(Some((head, left))) => {
            let length = match head.length {
                BodyLength::Bytes(bytes) => bytes.to_string(),
                BodyLength::Chunked(_) => "chunked".into(),
                BodyLength::UntilClose => "close".into(),
            };
            let kept = if head.is_persistent { "kept" } else { "closed" };
            format!("{} {length} {kept} {left}", head.response.status().as_u16())
        }
        Ok(None) => "incomplete".into(),
        Err(HeadError::Malformed(_)) => "malformed".into(),
        Err(HeadError::Unsound) => "unsound".into(),
    };
    let whole = words(usize::MAX);
    for size in 1..20 {
        assert_eq!(words(size), whole, "{text:?} in pieces of {size}");
    }
    whole
}

#[test]
fn heads_are_read_however_they_are_cut() {
    for (text, expected) in [
        (format!("{OK}body"), "200 4 kept 4"),
        (format!("{OK}\n\nbody"), "200 4 kept 6"),
        (format!("{HINT}{HINT}{OK}"), "200 4 kept 0"),
        (format!("\r\n\r\n{HINT}\r\n{OK}"), "200 4 kept 0"),
        (HINT.repeat(3), "incomplete"),
        (HINT.repeat(32) + OK, "200 4 kept 0"),
        (HINT.repeat(33) + OK, "unsound"),
        ("HTTP/1.1 101 x\r\n\r\n\n\n".to_owned(), "unsound"),
        ("HTTP/1.1 200 OK\r\n\n".to_owned(), "unsound"),
        ("HTTP/1.1 200 OK\n\r\n".to_owned(), "unsound"),
        ("HTTP/1.1 200 OK\r\nx: \r\n\n".to_owned(), "unsound"),
        ("\nHTTP/1.1 200 OK\r\n\r\n".to_owned(), "unsound"),
        (format!("{HINT}\n"), "unsound"),
        ("HTTP/1.1 200 OK\r\nx: \r\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/1.1 200 OK\r\nx : a\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/1.1 200 OK\r\nx: \x01\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/1.1 20 OK\r\n\r\n".to_owned(), "malformed"),
        ("HTTP/2.0 200 OK\r\n\r\n".to_owned(), "malformed"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "malformed"),
        ("220 mail.example ESMTP\r\n".to_owned(), "malformed"),
        ("\0\0\x12\x04\0\0\0\0\0".to_owned(), "malformed"),
        ("HTTP/1".to_owned(), "incomplete"),
        ("HTTP/1.1 099 x\r\n\r\n".to_owned(), "unsound"),
        ("HTTP/1.1 600 x\r\n\r\n".to_owned(), "unsound"),
    ] {
        assert_eq!(read(&text, Expected::default()), expected, "{text:?}");
    }
}

#[test]
fn framing_is_read_as_the_rfc_has_it() {
    const HEAD: Expected = Expected { is_head: true, may_switch: false };
    const GET: Expected = Expected { is_head: false, may_switch: false };
    for (request, start, fields, expected) in [
        (GET, "1.1 200", "", "200 close closed 0"),
        (GET, "1.1 200", "content-length: 0\r\n", "200 0 kept 0"),
        (GET, "1.1 200", "content-length: 5, 5\r\ncontent-length: 5\r\n", "200 5 kept 0"),
        (GET, "1.1 200", "content-length: 5\r\ncontent-length: 6\r\n", "unsound"),
        (GET, "1.1 200", "content-length: 5, 6\r\n", "unsound"),
        (GET, "1.1 200", "content-length: 5, 05\r\n", "unsound"),
        (GET, "1.1 200", "content-length: +5\r\n", "unsound"),
        (GET, "1.1 200", "content-length: 0x5\r\n", "unsound"),
        (GET, "1.1 200", "content-length: \r\n", "unsound"),
        (GET, "1.1 200", "content-length: 99999999999999999999\r\n", "unsound"),
        (GET, "1.1 200", "transfer-encoding: Chunked\r\n", "200 chunked kept 0"),
        (GET, "1.1 200", "transfer-encoding: gzip, chunked\r\n", "unsound"),
        (GET, "1.1 200", "transfer-encoding: gzip\r\n", "unsound"),
        (GET, "1.1 200", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "unsound"),
        (GET, "1.1 200", "transfer-encoding: chunked\r\ncontent-length: 5\r\n", "unsound"),
        (GET, "1.1 204", "transfer-encoding: chunked\r\ncontent-length: 5\r\n", "unsound"),
        (GET, "1.0 200", "transfer-encoding: chunked\r\n", "unsound"),
        (HEAD, "1.1 200", "content-length: 5\r\n", "200 0 kept 0"),
        (HEAD, "1.1 200", "transfer-encoding: chunked\r\n", "200 0 kept 0"),
        (HEAD, "1.1 200", "", "200 0 kept 0"),
        (GET, "1.1 204", "", "204 0 kept 0"),
        (GET, "1.1 204", "content-length: 0\r\n", "204 0 kept 0"),
        (GET, "1.1 204", "content-length: 5\r\n", "204 0 closed 0"),
        (GET, "1.1 204", "transfer-encoding: chunked\r\n", "204 0 closed 0"),
        (GET, "1.1 103", "content-length: 5\r\n", "unsound"),
        (GET, "1.1 304", "content-length: 5\r\n", "304 0 kept 0"),
        (GET, "1.1 205", "content-length: 5\r\n", "205 5 kept 0"),
        (GET, "1.1 200", "content-length: 0\r\nconnection: a, Close\r\n", "200 0 closed 0"),
        (GET, "1.0 200", "content-length: 0\r\n", "200 0 closed 0"),
        (GET, "1.0 200", "content-length: 0\r\nconnection: Keep-Alive\r\n", "200 0 kept 0"),
        (GET, "1.0 200", "connection: keep-alive\r\n", "200 close closed 0"),
    ] {
        let text = format!("HTTP/{start} x\r\n{fields}\r\n");
        assert_eq!(read(&text, request), expected, "{text:?}");
    }
}

#[test]
fn heads_are_bounded() {
    let head = |fields: String| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{fields}\r\n");
    let long = |bytes| format!("x: {}\r\n", "a".repeat(bytes));
    let hints = |bytes: usize| format!("HTTP/1.1 103 x\r\n{}\r\n", long(bytes)).repeat(4);
    for (text, expected) in [
        (head(long(60_000)), "200 0 kept 0"),
        (head(long(70_000)), "unsound"),
        (head("x: a\r\n".repeat(255)), "200 0 kept 0"),
        (head("x: a\r\n".repeat(256)), "malformed"),
        (hints(30_000) + OK, "200 4 kept 0"),
        (hints(60_000) + OK, "unsound"),
        (long(200_000), "malformed"),
        ("\r\n".repeat(100_000), "unsound"),
    ] {
        for size in [8192, text.len()] {
            let found = match read_by(&text, size, Expected::default()) {
                Ok(Some((head, left))) => {
                    let BodyLength::Bytes(length) = head.length else { panic!("a length") };
                    format!("{} {length} kept {left}", head.response.status().as_u16())
                }
                Ok(None) => "incomplete".into(),
                Err(HeadError::Malformed(_)) => "malformed".into(),
                Err(HeadError::Unsound) => "unsound".into(),
            };
            assert_eq!(found, expected, "{} bytes by {size}", text.len());
        }
    }
}

#[test]
fn reason_phrase_goes_on_where_it_is_not_the_usual_one() {
    for (text, expected) in [("200 OK", None), ("200 Fine", Some("Fine")), ("299 x", Some("x"))] {
        let text = format!("HTTP/1.1 {text}\r\n\r\n");
        let (head, _) = read_by(&text, 100, Expected::default()).unwrap().unwrap();
        let reason = head.response.extensions().get::<ReasonPhrase>();
        assert_eq!(reason.map(ReasonPhrase::as_bytes), expected.map(str::as_bytes), "{text:?}");
    }
}
