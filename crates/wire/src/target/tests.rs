//! Targets, against tables and a literal reading of RFC 3986.

use http::{HeaderMap, HeaderValue, Version, header::HOST};
use proptest::prelude::*;

use super::*;

const ENCODED_SLASH: [EncodedSlash; 3] =
    [EncodedSlash::Reject, EncodedSlash::Keep, EncodedSlash::Decode];

fn normalize(raw: &str) -> Result<String, TargetError> {
    normalize_path(raw, EncodedSlash::Reject).map(Cow::into_owned)
}

#[test]
fn normal_paths_are_borrowed() {
    for path in [
        "/",
        "/repos/tokio-rs/tokio/issues",
        "/.well-known/jwks.json",
        "/...",
        "/..a/.b;c/d..",
        "/a%20b/%C3%A9/%25",
        "/a;v=1/{b}/$&'()*+,=:@!~",
        "/trailing/",
    ] {
        let normal = normalize_path(path, EncodedSlash::Reject);
        assert!(matches!(normal, Ok(Cow::Borrowed(same)) if same == path), "{path}: {normal:?}");
    }
    assert!(matches!(normalize_path("/a%2Fb", EncodedSlash::Keep), Ok(Cow::Borrowed(_))));
}

#[test]
fn spellings_of_one_path_have_one_normal_form() {
    for (raw, expected) in [
        ("//", "/"),
        ("/a//b///c", "/a/b/c"),
        ("/%61%2D%5f%7E", "/a-_~"),
        ("/%c3%a9", "/%C3%A9"),
        ("/%252e%252ea", "/%252e%252ea"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e;x=1/b", "/b"),
        ("/a/..;a=b/.;c/b", "/b"),
        ("/a/..%3B/b", "/b"),
        ("/a/%2e%2e%3bx=1/b", "/b"),
        ("/a/.%3b/b", "/a/b"),
        ("/a/..;%2e./b", "/b"),
        ("/a;/../b", "/b"),
        ("/a/;/../b", "/a/b"),
        ("/a%3B/..", "/"),
        ("/a/...%3B/b", "/a/...%3B/b"),
        ("/../../a", "/a"),
        ("/a/b/..", "/a/"),
        ("/a/b/.", "/a/b/"),
        ("/..", "/"),
        ("/a//../b", "/a/b"),
        ("/a/..//b", "/b"),
        ("//../..//a", "/a"),
    ] {
        assert_eq!(normalize(raw).as_deref(), Ok(expected), "{raw}");
    }
}

#[test]
fn spellings_that_frameworks_take_for_one_path_have_one_plain_form() {
    for (raw, expected) in [
        ("/", "/"),
        ("/users/@me", "/users/@me"),
        ("/users/%40me", "/users/@me"),
        ("/v1/jobs%3acancel", "/v1/jobs:cancel"),
        ("/v1/jobs%3Acancel", "/v1/jobs:cancel"),
        ("/%21%24%26%27%28%29%2A%2b%2C%3B%3d", "/!$&'()*+,;="),
        ("/%7b%22a%22%7C%5E%60%3C%3E%7D", "/{\"a\"|^`<>}"),
        ("/a%20b%25%3F%23/%c3%a9", "/a%20b%25%3F%23/%C3%A9"),
        ("/%2540me", "/%2540me"),
        ("/%40", "/@"),
    ] {
        let normal = normalize(raw).unwrap();
        assert_eq!(plain_form(&normal), expected, "{raw}");
    }
    assert_eq!(plain_form("/a%2Fb%40"), "/a%2Fb@", "where `%2F` is kept");
    assert!(matches!(plain_form("/a@b/%20"), Cow::Borrowed(_)));
    assert_eq!(with_decoded("jobs%3Acancel%3C%7B%20", b":@"), "jobs:cancel%3C%7B%20");
}

#[test]
fn an_escaped_slash_is_refused_kept_or_decoded() {
    for (encoded_slash, raw, expected) in [
        (EncodedSlash::Reject, "/a%2fb", Err(TargetError::EscapedSlash)),
        (EncodedSlash::Reject, "/a%2Fb", Err(TargetError::EscapedSlash)),
        (EncodedSlash::Keep, "/a%2fb", Ok("/a%2Fb")),
        (EncodedSlash::Keep, "/a/..%2fb", Err(TargetError::HiddenDots)),
        (EncodedSlash::Keep, "/a/x;%2f..%2f..", Err(TargetError::HiddenDots)),
        (EncodedSlash::Keep, "/a%2f.b%2f...", Ok("/a%2F.b%2F...")),
        (EncodedSlash::Decode, "/a%2fb", Ok("/a/b")),
        (EncodedSlash::Decode, "/a/%2e%2e%2F%2fb", Ok("/b")),
        (EncodedSlash::Decode, "/a%252fb", Ok("/a%252fb")),
    ] {
        let normal = normalize_path(raw, encoded_slash);
        assert_eq!(normal.as_deref().map_err(|error| *error), expected, "{raw}");
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    for (raw, expected) in [
        ("", TargetError::NotAbsolute),
        ("*", TargetError::NotAbsolute),
        ("a/b", TargetError::NotAbsolute),
        ("%2fa", TargetError::NotAbsolute),
        ("/a b", TargetError::UnescapedByte),
        ("/a\tb", TargetError::UnescapedByte),
        ("/a\u{7f}", TargetError::UnescapedByte),
        ("/é", TargetError::UnescapedByte),
        ("/a?b", TargetError::UnescapedByte),
        ("/a\\b", TargetError::Backslash),
        ("/a%5cb", TargetError::Backslash),
        ("/a%5Cb", TargetError::Backslash),
        ("/a#b", TargetError::Fragment),
        ("/a%00", TargetError::EscapedControl),
        ("/a%0A", TargetError::EscapedControl),
        ("/%0d%0a", TargetError::EscapedControl),
        ("/%1f/b", TargetError::EscapedControl),
        ("/a%7F", TargetError::EscapedControl),
        ("/a\nb", TargetError::UnescapedByte),
        ("/a\u{b}", TargetError::UnescapedByte),
        ("/a%", TargetError::InvalidEscape),
        ("/a%4", TargetError::InvalidEscape),
        ("/a%zz", TargetError::InvalidEscape),
        ("/a%+1", TargetError::InvalidEscape),
        ("/b\\/../c", TargetError::Backslash),
    ] {
        for encoded_slash in ENCODED_SLASH {
            assert_eq!(normalize_path(raw, encoded_slash), Err(expected), "{raw}");
        }
    }
}

/// What is decoded more than once, or folded, by a server behind us must not turn out to be dots.
#[test]
fn dots_in_disguise_are_refused() {
    use TargetError::{Backslash, EscapedControl, HiddenDots, InvalidEscape, Overlong};
    for (raw, expected) in [
        // Encoded twice, or more often, in part or as a whole.
        ("/a/%252e%252e/b", HiddenDots),
        ("/a/%252e/b", HiddenDots),
        ("/a/.%252e", HiddenDots),
        ("/a/%25%32%65%25%32%65/b", HiddenDots),
        ("/a/%25%2532%2565./b", HiddenDots),
        ("/a/%2525252e%25252e;x/b", HiddenDots),
        // What follows the dots is hidden: parameters, a slash, the end of the path.
        ("/a/..%253b/b", HiddenDots),
        ("/a/..%252fb", HiddenDots),
        ("/a/x%252f..%252f..%252fb", HiddenDots),
        ("/a/x;%252f..", HiddenDots),
        ("/a/..%255cb", HiddenDots),
        ("/a/x%255c..", HiddenDots),
        ("/a/..%3fb", HiddenDots),
        ("/a/..%23b", HiddenDots),
        ("/a/..%2500b", HiddenDots),
        // Spaces and controls, which some cut off or skip.
        ("/a/..%2509/b", HiddenDots),
        ("/a/..%20", HiddenDots),
        ("/a/.%250d%250a./b", HiddenDots),
        ("/a/%257f../b", HiddenDots),
        // Look-alikes: fullwidth and small forms, leaders, other slashes, the Greek question mark.
        ("/a/%ef%bc%8e%ef%bc%8e/b", HiddenDots),
        ("/a/.%ef%b9%92/b", HiddenDots),
        ("/a/%e2%80%a4./b", HiddenDots),
        ("/a/%e2%80%a5/b", HiddenDots),
        ("/a/%25ef%25bc%258e./b", HiddenDots),
        ("/a/..%ef%bc%8fb", HiddenDots),
        ("/a/..%ef%bc%bcb", HiddenDots),
        ("/a/..%e2%88%95b", HiddenDots),
        ("/a/..%cd%be/b", HiddenDots),
        ("/a/..%ef%bc%9b/b", HiddenDots),
        // More bytes than a character needs.
        ("/a/%c0%ae%c0%ae/b", Overlong),
        ("/a/..%c0%afb", Overlong),
        ("/a%c1%9cb", Overlong),
        ("/a%e0%80%afb", Overlong),
        ("/a%f0%80%80%afb", Overlong),
        ("/a%25c0%25afb", Overlong),
        // Refused for another reason.
        ("/a/..%00/b", EscapedControl),
        ("/a/..%09/b", EscapedControl),
        ("/a/..\\b", Backslash),
        ("/a/..%5cb", Backslash),
        ("/a%5c../b", Backslash),
        ("/a/%u002e%u002e/b", InvalidEscape),
        ("/a/%%32%65/b", InvalidEscape),
    ] {
        for encoded_slash in ENCODED_SLASH {
            assert_eq!(normalize_path(raw, encoded_slash), Err(expected), "{raw}");
        }
    }
}

/// Names that resemble the above, and lead nowhere.
#[test]
fn what_is_no_dot_segment_however_often_it_is_decoded_stays() {
    for path in [
        "/a/.../b",
        "/a/..b/.b../%252Eb",
        "/a/..%20b/...%20b/.%C3%A9",
        "/a;..%3B/..b%3B/b",
        "/a%3B..%3B/b",
        "/a%252Fb%255Cc%25",
        "/a/%20/%C2%85/%2509",
        "/a/%EF%BC%8E%EF%BC%8E%EF%BC%8E/b%EF%BC%8F.c",
        "/caf%E9/%C0%20/%FF.",
        "/a/..%FF/b",
        "/%E2%80%A6",
    ] {
        let normal = normalize_path(path, EncodedSlash::Reject);
        assert!(matches!(normal, Ok(Cow::Borrowed(same)) if same == path), "{path}: {normal:?}");
    }
}

#[test]
fn a_query_is_checked_but_not_normalised() {
    for (raw, expected) in [
        ("", Ok(())),
        ("q=a/../b//c?d&e=%2e%2f%5c%41+;", Ok(())),
        ("q=a b", Err(TargetError::UnescapedByte)),
        ("q=\u{1}", Err(TargetError::UnescapedByte)),
        ("q=é", Err(TargetError::UnescapedByte)),
        ("q=\\", Err(TargetError::Backslash)),
        ("q#", Err(TargetError::Fragment)),
        ("q=%00", Err(TargetError::EscapedNul)),
        ("q=%", Err(TargetError::InvalidEscape)),
        ("q=%2", Err(TargetError::InvalidEscape)),
        ("q=%g0", Err(TargetError::InvalidEscape)),
    ] {
        assert_eq!(check_query(raw), expected, "{raw}");
    }
}

#[test]
fn a_host_is_lower_case_without_port_and_trailing_dot() {
    for (raw, name, port) in [
        ("api.example.com", "api.example.com", None),
        ("API.Example.COM.:8443", "api.example.com", Some(8443)),
        ("localhost:", "localhost", None),
        ("my_service:00080", "my_service", Some(80)),
        ("192.0.2.1:80", "192.0.2.1", Some(80)),
        ("[::1]", "[::1]", None),
        ("[2001:DB8:0::1]:443", "[2001:db8::1]", Some(443)),
    ] {
        let host = Host::parse(raw.as_bytes()).unwrap();
        assert_eq!((host.as_str(), host.port()), (name, port), "{raw}");
    }
    assert!(matches!(Host::parse(b"a.example:80"), Ok(Host { name: Cow::Borrowed(_), .. })));
    assert!(matches!(Host::parse(b"[::1]:80"), Ok(Host { name: Cow::Borrowed(_), .. })));
}

#[test]
fn what_is_no_host_is_refused() {
    for raw in [
        "",
        ".",
        ":80",
        "a..b",
        ".a",
        "a.:x",
        "a:-1",
        "a:+1",
        "a:65536",
        "a:80:80",
        "a b",
        " a",
        "a/b",
        "a?b",
        "a#b",
        "a,b",
        "a%41",
        "é",
        "::1",
        "2001:db8::1",
        "[::1",
        "::1]",
        "[]",
        "[::1]x",
        "[::1].",
        "[::1]80",
        "[1.2.3.4]",
        "[fe80::1%25eth0]",
        "[v1.a]",
    ] {
        assert_eq!(Host::parse(raw.as_bytes()), Err(TargetError::InvalidHost), "{raw}");
    }
    assert_eq!(Host::parse(b"user:pass@a"), Err(TargetError::Userinfo));
    assert_eq!(Host::parse(b"\xff"), Err(TargetError::InvalidHost));
}

fn host_of(uri: &str, fields: &[&str], version: Version) -> Result<Option<String>, TargetError> {
    let mut headers = HeaderMap::new();
    for field in fields {
        headers.append(HOST, HeaderValue::from_str(field).unwrap());
    }
    let uri = uri.parse().unwrap();
    let host = request_host(&uri, &headers, version)?;
    Ok(host.map(|host| host.as_str().to_owned()))
}

#[test]
fn every_version_but_http_1_0_names_exactly_one_host() {
    let host = || Ok(Some("a.example".to_owned()));
    for (uri, fields, version, expected) in [
        ("/", &["a.example"][..], Version::HTTP_11, host()),
        ("/", &[], Version::HTTP_11, Err(TargetError::MissingHost)),
        ("http://a.example/", &[], Version::HTTP_11, Err(TargetError::MissingHost)),
        ("/", &[""], Version::HTTP_11, Err(TargetError::InvalidHost)),
        ("http://a.example/", &[""], Version::HTTP_11, Err(TargetError::InvalidHost)),
        ("/", &["a.example", "a.example"], Version::HTTP_11, Err(TargetError::RepeatedHost)),
        ("*", &["a.example"], Version::HTTP_11, host()),
        ("/", &[], Version::HTTP_10, Ok(None)),
        ("/", &["a.example"], Version::HTTP_10, host()),
        ("http://a.example/", &[], Version::HTTP_10, host()),
        ("/", &["a.example", "b.example"], Version::HTTP_10, Err(TargetError::RepeatedHost)),
        ("/", &["a/b"], Version::HTTP_10, Err(TargetError::InvalidHost)),
        ("https://a.example/", &[], Version::HTTP_2, host()),
        ("/", &["a.example"], Version::HTTP_2, host()),
        ("/", &[], Version::HTTP_2, Err(TargetError::MissingHost)),
    ] {
        assert_eq!(host_of(uri, fields, version), expected, "{uri} {fields:?} {version:?}");
    }
}

#[test]
fn target_and_host_field_agree_or_the_request_is_refused() {
    for (uri, field, agree) in [
        ("http://a.example/", "A.Example.", true),
        ("http://a.example/", "a.example:80", true),
        ("http://a.example:80/", "a.example", true),
        ("https://a.example/", "a.example:443", true),
        ("https://a.example:8443/", "a.example:8443", true),
        ("http://[::1]/", "[0:0::1]:80", true),
        ("http://a.example/", "b.example", false),
        ("http://a.example/", "a.example:8080", false),
        ("https://a.example/", "a.example:80", false),
        ("https://a.example:8443/", "a.example", false),
    ] {
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            let host = host_of(uri, &[field], version);
            assert_eq!(host.is_ok(), agree, "{uri} {field}: {host:?}");
            assert!(agree || host == Err(TargetError::HostMismatch), "{uri} {field}: {host:?}");
        }
    }
}

#[test]
fn authorities_with_userinfo_or_without_scheme_are_refused() {
    for (uri, expected) in [
        ("http://user@a.example/", TargetError::Userinfo),
        ("http://user:pass@a.example/", TargetError::Userinfo),
        ("a.example:443", TargetError::AuthorityForm),
        ("a.example", TargetError::AuthorityForm),
    ] {
        assert_eq!(host_of(uri, &["a.example"], Version::HTTP_11), Err(expected), "{uri}");
    }
}

#[test]
fn targets_have_one_of_four_forms() {
    for (method, uri, expected) in [
        (Method::GET, "/a?b", Form::Origin),
        (Method::GET, "//a.example/b", Form::Origin),
        (Method::GET, "http://a.example/b", Form::Absolute),
        (Method::OPTIONS, "*", Form::Asterisk),
        (Method::GET, "*", Form::Origin),
        (Method::CONNECT, "a.example:443", Form::Authority),
        (Method::GET, "a.example:443", Form::Authority),
    ] {
        assert_eq!(form(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
    }
    let http2 = Uri::builder().scheme("https").authority("a.example").path_and_query("*");
    assert_eq!(form(&Method::OPTIONS, &http2.build().unwrap()), Form::Asterisk);
}

/// RFC 3986 taken literally, a copy of the path for each step.
fn reference(raw: &str, encoded_slash: EncodedSlash) -> Option<String> {
    if !raw.starts_with('/') || raw.chars().any(|c| !c.is_ascii_graphic() || "\\#?".contains(c)) {
        return None;
    }
    let mut unescaped = String::new();
    for (nth, piece) in raw.split('%').enumerate() {
        if nth == 0 {
            unescaped += piece;
            continue;
        }
        let digits = piece.get(..2).filter(|two| two.chars().all(|c| c.is_ascii_hexdigit()))?;
        let escape = format!("%{}", digits.to_uppercase());
        let plain = char::from(u8::from_str_radix(digits, 16).ok()?);
        match (plain, encoded_slash) {
            ('\0'..='\x1f' | '\x7f' | '\\', _) | ('/', EncodedSlash::Reject) => return None,
            ('/', EncodedSlash::Decode) => unescaped.push('/'),
            ('-' | '.' | '_' | '~', _) => unescaped.push(plain),
            _ if plain.is_ascii_alphanumeric() => unescaped.push(plain),
            _ => unescaped += &escape,
        }
        unescaped += &piece[2..];
    }
    let bare_dots: Vec<&str> = unescaped
        .split('/')
        .map(|segment| match segment.split(';').next().and_then(|name| name.split("%3B").next()) {
            Some(dots @ ("." | "..")) => dots,
            _ => segment,
        })
        .collect();
    let mut merged = remove_dot_segments(bare_dots.join("/"));
    while merged.contains("//") {
        merged = merged.replace("//", "/");
    }
    (!reads_as_dots(merged.as_bytes())).then_some(merged)
}

/// Whether a segment is dots after any number of rounds of decoding, ASCII alone; one round at a
/// time. The texts of [`arbitrary`] hold nothing else in disguise.
fn reads_as_dots(path: &[u8]) -> bool {
    let mut decoded = Vec::new();
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        let escaped = (*byte == b'%').then(|| escaped_byte(tail).ok()).flatten();
        decoded.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    if decoded != path {
        return reads_as_dots(&decoded);
    }
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
        let name = segment.split(|byte| b";?#\0".contains(byte)).next().unwrap_or_default();
        let mut name = name.to_vec();
        name.retain(|byte| !matches!(byte, 0..=0x20 | 0x7f));
        matches!(name.as_slice(), b"." | b"..")
    })
}

/// Section 5.2.4, steps B to E; step A is for relative paths.
fn remove_dot_segments(mut input: String) -> String {
    let mut output = String::new();
    while !input.is_empty() {
        if input.starts_with("/./") {
            input.replace_range(..3, "/");
        } else if input == "/." {
            input = "/".to_owned();
        } else if input.starts_with("/../") || input == "/.." {
            input.replace_range(..input.len().min(4), "/");
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |slash| slash + 1);
            output.extend(input.drain(..end));
        }
    }
    output
}

mod arbitrary {
    use super::*;

    /// Paths made of what normalising is about, most of them valid.
    pub(super) fn path() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "/", "/", "/", "//", ".", "..", "...", "%2e", "%2E", "/../", "/./", ";", ";a=b", "a",
            "b", "~", "%41", "%7e", "%2f", "%2F", "%25", "%252e", "%c3%A9", "%0a", "%3b", "{", ":",
            "%25%32", "2e", "%253B", "%252F", "%20",
        ]);
        let pieces = prop::collection::vec(piece, 0..16);
        pieces.prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    /// As above, with something that may have to be refused in between.
    pub(super) fn doubtful_path() -> impl Strategy<Value = String> {
        (path(), "[ -~]?\\PC?%?[0-9a-f]{0,2}", path()).prop_map(|(a, b, c)| a + &b + &c)
    }

    pub(super) fn encoded_slash() -> impl Strategy<Value = EncodedSlash> {
        prop::sample::select(ENCODED_SLASH.to_vec())
    }
}

proptest! {
    #[test]
    fn prop_normalising_agrees_with_rfc_3986_taken_literally(
        path in prop_oneof![arbitrary::path(), arbitrary::doubtful_path(), ".*"],
        encoded_slash in arbitrary::encoded_slash(),
    ) {
        let normal = normalize_path(&path, encoded_slash).ok().map(Cow::into_owned);
        prop_assert_eq!(normal, reference(&path, encoded_slash));
    }

    #[test]
    fn prop_a_normal_path_stays_as_it_is(
        path in arbitrary::path(),
        encoded_slash in arbitrary::encoded_slash(),
    ) {
        if let Ok(normal) = normalize_path(&path, encoded_slash) {
            let again = normalize_path(&normal, encoded_slash);
            prop_assert!(
                matches!(again, Ok(Cow::Borrowed(same)) if same == normal),
                "{} became {:?}", normal, again
            );
        }
    }

    #[test]
    fn prop_a_plain_form_has_the_same_segments_and_is_one_for_all_spellings(
        path in arbitrary::path(),
        encoded_slash in arbitrary::encoded_slash(),
    ) {
        if let Ok(normal) = normalize_path(&path, encoded_slash) {
            let plain = plain_form(&normal);
            prop_assert_eq!(plain.matches('/').count(), normal.matches('/').count());
            // Whatever is escaped in addition, it is the same path.
            let escaped: String = plain
                .chars()
                .map(|c| match c {
                    // Digits may be those of an escape that stays.
                    '/' | '%' | '0'..='9' | 'a'..='f' | 'A'..='F' => c.to_string(),
                    _ => format!("%{:02x}", u32::from(c)),
                })
                .collect();
            let again = normalize_path(&escaped, encoded_slash);
            let again = again.as_deref().map(|again| plain_form(again).into_owned());
            prop_assert_eq!(again.as_deref(), Ok(&*plain));
        }
    }

    #[test]
    fn prop_a_normal_path_holds_nothing_to_dispute(
        path in arbitrary::doubtful_path(),
        encoded_slash in arbitrary::encoded_slash(),
    ) {
        if let Ok(normal) = normalize_path(&path, encoded_slash) {
            prop_assert!(normal.starts_with('/') && !normal.contains("//"));
            prop_assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(!normal.contains(['\\', '#', '?']));
            for segment in normal.split('/') {
                prop_assert!(!matches!(segment.split(';').next(), Some("." | "..")));
            }
        }
    }

    #[test]
    fn prop_a_host_is_a_fixed_point_or_refused(
        field in prop_oneof!["[a-zA-Z0-9.:_-]{0,20}", "\\[[0-9a-f:.]{0,20}\\](:[0-9]{0,6})?"],
    ) {
        if let Ok(host) = Host::parse(field.as_bytes()) {
            let again = Host::parse(host.as_str().as_bytes());
            let again = again.as_ref().map(Host::as_str);
            prop_assert_eq!(again, Ok(host.as_str()));
        }
    }

    #[test]
    fn prop_arbitrary_bytes_are_a_host_or_an_error(field in any::<Vec<u8>>()) {
        if let Ok(host) = Host::parse(&field) {
            prop_assert!(!host.as_str().is_empty());
            prop_assert!(!host.as_str().bytes().any(|byte| byte.is_ascii_uppercase()));
        }
    }

    #[test]
    fn prop_check_query_never_panics(query in ".*") {
        let _ = check_query(&query);
    }
}
