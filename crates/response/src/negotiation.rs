//! Which form of error body a client prefers, by its `Accept` fields (RFC 9110 section 12.5.1).
//!
//! Where a client accepts both forms alike, or neither, it gets the default.

use std::cmp::Ordering;

use http::{HeaderMap, request::Parts};
use tollgate_policy::Responses;
use tollgate_wire::accept::{Quality, accepted};

/// A form that error bodies can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`, with a message as GitHub has it.
    Json,
    /// `application/problem+json`, RFC 9457.
    Problem,
    /// A gRPC status, and no body. Not negotiated: a gRPC client understands nothing else.
    Grpc,
    /// An error of JSON-RPC. Not negotiated either: a client that calls by it reads nothing else.
    JsonRpc,
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Format::Json | Format::JsonRpc => "application/json",
            Format::Problem => "application/problem+json",
            Format::Grpc => "application/grpc",
        }
    }
}

/// The form of error bodies that a client prefers that does not call gRPC; the policy's, if it has
/// no preference.
pub fn preferred_format(request: &Parts, responses: &Responses) -> Format {
    let default = match responses.headers.prefers_problems() {
        true => Format::Problem,
        false => Format::Json,
    };
    preferred(&request.headers, default)
}

/// The form that the client prefers; `default` if it has no preference.
///
/// Parameters other than `q` do not matter: there is one version of each form.
fn preferred(headers: &HeaderMap, default: Format) -> Format {
    let mut json = None;
    let mut problem = None;
    for (range, quality) in accepted(headers) {
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

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use proptest::{collection::vec, prelude::*, sample::select};
    use tollgate_wire::accept::MAX_MEMBERS;

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
