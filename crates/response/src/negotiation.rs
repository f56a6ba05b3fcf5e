//! Which form of error body a client prefers, by its `Accept` fields (RFC 9110 section 12.5.1).
//!
//! Where a client accepts both forms alike, or neither, it gets the default.

use std::cmp::Ordering;

use http::{HeaderMap, header, request::Parts};
use tollgate_policy::{HeaderProfile, Responses};

/// A form that error bodies can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`, with a message as GitHub has it.
    Json,
    /// `application/problem+json`, RFC 9457.
    Problem,
    /// A gRPC status, and no body. Not negotiated: a gRPC client understands nothing else.
    Grpc,
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Problem => "application/problem+json",
            Format::Grpc => "application/grpc",
        }
    }
}

/// Members of `Accept` that are read; what a browser sends has ten.
const MAX_MEMBERS: usize = 64;

/// The form of error bodies that a client prefers that does not call gRPC; the policy's, if it has
/// no preference.
pub fn preferred_format(request: &Parts, responses: &Responses) -> Format {
    let default = match responses.headers {
        HeaderProfile::Ietf => Format::Problem,
        HeaderProfile::Github | HeaderProfile::Both | HeaderProfile::None => Format::Json,
    };
    preferred(&request.headers, default)
}

/// The form that the client prefers; `default` if it has no preference.
///
/// Members that are malformed say nothing. Parameters other than `q` do not matter: there is one
/// version of each form.
fn preferred(headers: &HeaderMap, default: Format) -> Format {
    let mut json = None;
    let mut problem = None;
    let fields = headers.get_all(header::ACCEPT).iter();
    let members = fields.flat_map(|field| split_unquoted(field.as_bytes(), b','));
    for member in members.take(MAX_MEMBERS) {
        let Some((range, quality)) = read_member(member) else { continue };
        for (format, best) in [(Format::Json, &mut json), (Format::Problem, &mut problem)] {
            // The most specific range that matches decides, and of equals the kindest.
            *best = (*best).max(Precision::of(range, format).map(|precision| (precision, quality)));
        }
    }
    let quality = |best: Option<(Precision, Quality)>| best.map_or(0, |(_, quality)| quality);
    match quality(json).cmp(&quality(problem)) {
        Ordering::Greater => Format::Json,
        Ordering::Less => Format::Problem,
        Ordering::Equal => default,
    }
}

/// How closely a media range describes what it matches, the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    Anything,
    Type,
    Exact,
}

impl Precision {
    /// None if the range does not match.
    fn of(range: &[u8], format: Format) -> Option<Precision> {
        if range == b"*/*" {
            Some(Precision::Anything)
        } else if range.eq_ignore_ascii_case(b"application/*") {
            Some(Precision::Type)
        } else {
            range.eq_ignore_ascii_case(format.media_type().as_bytes()).then_some(Precision::Exact)
        }
    }
}

/// Thousandths, from none to 1000.
type Quality = u16;

/// The media range and its quality; none if the member is malformed.
fn read_member(member: &[u8]) -> Option<(&[u8], Quality)> {
    let mut parts = split_unquoted(member, b';').map(<[u8]>::trim_ascii);
    let range = parts.next()?;
    let mut quality = None;
    // Parameters may be left out between semicolons (section 5.6.6).
    for parameter in parts.filter(|parameter| !parameter.is_empty()) {
        let equals = parameter.iter().position(|byte| *byte == b'=')?;
        let name = parameter.get(..equals)?;
        let value = parameter.get(equals + 1..)?;
        if !is_token(name) || !(is_token(value) || is_quoted(value)) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"q") && quality.replace(read_quality(value)?).is_some() {
            return None;
        }
    }
    Some((range, quality.unwrap_or(1000)))
}

/// A `qvalue` (section 12.4.2): from 0 to 1 with at most three decimals.
fn read_quality(text: &[u8]) -> Option<Quality> {
    let (whole, decimals) = match text {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| Quality::from(byte - b'0'));
    let mut quality = digit(*whole)?;
    for decimal in 0..3 {
        quality = quality * 10 + digit(decimals.get(decimal).copied().unwrap_or(b'0'))?;
    }
    (quality <= 1000).then_some(quality)
}

/// The pieces between separators that are not within a quoted string.
fn split_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    text.split(move |byte| {
        if is_escaped {
            is_escaped = false;
        } else if *byte == b'"' {
            is_quoted = !is_quoted;
        } else if is_quoted {
            is_escaped = *byte == b'\\';
        } else {
            return *byte == separator;
        }
        false
    })
}

fn is_token(text: &[u8]) -> bool {
    let is_token_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_token_byte)
}

/// Whether a quoted string is all there is, closed by its last byte.
fn is_quoted(text: &[u8]) -> bool {
    let Some(inner) = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else {
        return false;
    };
    let mut is_escaped = false;
    for byte in inner {
        if *byte == b'"' && !is_escaped {
            return false;
        }
        is_escaped = *byte == b'\\' && !is_escaped;
    }
    !is_escaped
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::{Format::*, *};

    fn accept(fields: &[&str]) -> HeaderMap {
        let field = |text: &&str| (header::ACCEPT, HeaderValue::from_str(text).unwrap());
        fields.iter().map(field).collect()
    }

    /// What is preferred where the default is JSON, and where it is the problem; both are the same
    /// if the client has a preference.
    fn both(headers: &HeaderMap) -> (Format, Format) {
        (preferred(headers, Json), preferred(headers, Problem))
    }

    #[test]
    fn the_form_of_higher_quality_wins() {
        for (fields, expected) in [
            (&["application/json"][..], Json),
            (&["application/problem+json"], Problem),
            (&["APPLICATION/Problem+JSON"], Problem),
            (&["application/problem+json, application/json;q=0.9"], Problem),
            (&["application/problem+json;q=0.899, application/json;Q=0.9"], Json),
            (&["application/problem+json;q=0.001"], Problem),
            (&["application/json;q=0.5", "text/html", "application/problem+json;q=0.6"], Problem),
            (&["text/html,application/json\t;\tq=1.000,application/*;q=0.999"], Json),
            (&["application/problem+json ; profile=\"a,b;q=0\\\"\" ; q=0.5"], Problem),
            (&["application/problem+json;;q=0.5;"], Problem),
            (&[", ,application/problem+json,"], Problem),
        ] {
            assert_eq!(both(&accept(fields)), (expected, expected), "{fields:?}");
        }
    }

    #[test]
    fn the_most_specific_range_decides() {
        for (field, expected) in [
            ("*/*, application/json;q=0.5", Problem),
            ("*/*, application/json;q=0", Problem),
            ("application/*, application/problem+json;q=0.5", Json),
            ("*/*;q=0.1, application/json", Json),
            ("application/problem+json;q=0.2, application/*;q=0.1, */*", Problem),
            ("application/json;q=0.2, application/*;q=0.1, */*", Json),
        ] {
            assert_eq!(both(&accept(&[field])), (expected, expected), "{field}");
        }
    }

    #[test]
    fn without_a_preference_the_default_stands() {
        for fields in [
            &[][..],
            &[""],
            &["*/*"],
            &["application/*;q=0.3"],
            &["text/html"],
            &["application/vnd.github+json"],
            &["application/json, application/problem+json"],
            &["application/json;q=0.50", "application/problem+json;q=0.5"],
            // Of the same range twice, the kinder counts.
            &["application/json;q=0.3, application/problem+json, application/json"],
            // What is not wanted is no better than what is not mentioned.
            &["application/json;q=0"],
            &["application/problem+json;q=0, application/json;q=0.000"],
        ] {
            assert_eq!(both(&accept(fields)), (Json, Problem), "{fields:?}");
        }
    }

    #[test]
    fn malformed_members_say_nothing() {
        for member in [
            "application/json;q=1.001",
            "application/json;q=0.1234",
            "application/json;q=2",
            "application/json;q=.5",
            "application/json;q=-1",
            "application/json;q=",
            "application/json;q=\"1\"",
            "application/json;q=0.5;q=0.6",
            "application/json;q =1",
            "application/json;level",
            "application/json;=1",
            "application/json;a=\"b\"c",
            "application/json q=1",
            "application / json",
            "*/json",
            "*",
        ] {
            assert_eq!(both(&accept(&[member])), (Json, Problem), "{member}");
            let beside = [member, ", application/problem+json;q=0.1"].concat();
            assert_eq!(both(&accept(&[&beside])), (Problem, Problem), "{beside}");
        }
        let unclosed =
            ["application/json;a=\"b, application/json", "application/problem+json;q=0.1"];
        assert_eq!(both(&accept(&unclosed)), (Problem, Problem));
    }

    #[test]
    fn only_so_many_members_are_read() {
        let after =
            |count| ["text/html,".repeat(count), "application/problem+json".into()].concat();
        assert_eq!(preferred(&accept(&[&after(MAX_MEMBERS - 1)]), Json), Problem);
        assert_eq!(preferred(&accept(&[&after(MAX_MEMBERS)]), Json), Json);
    }

    proptest! {
        #[test]
        fn prop_no_field_makes_it_panic(
            fields in vec(vec(prop_oneof![Just(b'\t'), 32..127_u8, 128..=255_u8], 0..80), 0..4)
        ) {
            let field = |bytes: &Vec<u8>| (header::ACCEPT, HeaderValue::from_bytes(bytes).unwrap());
            let _ = both(&fields.iter().map(field).collect());
        }

        /// Ranges in any order and spelling, against a table that is searched by precision.
        #[test]
        fn prop_it_agrees_with_a_naive_reading(
            ranges in vec((select(RANGES), 0..=1000_u16, any::<bool>()), 0..12)
        ) {
            let write = |(range, quality, in_capitals): &(&str, u16, bool)| {
                let range = if *in_capitals { range.to_uppercase() } else { (*range).to_owned() };
                format!("{range};v=\"1,2\";q={}.{:03}", quality / 1000, quality % 1000)
            };
            let fields: Vec<String> = ranges.iter().map(write).collect();
            let joined = accept(&[&fields.join(" , ")]);
            let apart = accept(&fields.iter().map(String::as_str).collect::<Vec<_>>());

            let quality = |exact| {
                let best = |wanted| {
                    let same = ranges.iter().filter(|(range, ..)| *range == wanted);
                    same.map(|(_, quality, _)| *quality).max()
                };
                best(exact).or_else(|| best("application/*")).or_else(|| best("*/*")).unwrap_or(0)
            };
            let json = quality("application/json");
            let expected = match json.cmp(&quality("application/problem+json")) {
                Ordering::Greater => (Json, Json),
                Ordering::Less => (Problem, Problem),
                Ordering::Equal => (Json, Problem),
            };
            prop_assert_eq!(both(&joined), expected);
            prop_assert_eq!(both(&apart), expected);
        }
    }

    const RANGES: &[&str] =
        &["*/*", "application/*", "application/json", "application/problem+json", "text/html"];
}
