//! Fields by which a client has a server take a POST for another method, and parameters of the
//! query that do the same. Frameworks read them: Rails, Symfony, Laravel and Spring on their own,
//! Express and others by a middleware.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, Method};
use tollgate_keyword::keywords;

use crate::query::{Parameter, filtered, parameters};

/// The fields, in the order in which they are looked for.
pub static FIELDS: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// The parameters, in lower case.
const PARAMETERS: [&str; 2] = ["_method", "x-http-method-override"];

/// What is done with a field that overrides the method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodOverride {
    /// It does not go on, so that no server acts on it.
    #[default]
    Drop,
    /// The request is judged by the method that it names, and goes on with it.
    Match,
    /// It goes on, and means nothing here.
    Ignore,
}

keywords! { MethodOverride { Drop = "drop", Match = "match", Ignore = "ignore" } }

/// Why a request that overrides its method is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The proxy that asks about the request would forward the field.
    #[error("method overrides are not allowed")]
    NotDropped,
    /// Two fields that differ, a method that only some servers take a POST for, or a request that
    /// is no POST.
    #[error("the method override is ambiguous")]
    Ambiguous,
}

/// The method by which servers that read the fields, and the `query` if there is one, take a
/// request, in capitals. None: its own.
///
/// # Errors
/// [`OverrideError::Ambiguous`].
pub fn overriding_method(
    method: &Method,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Option<Method>, OverrideError> {
    let fields = FIELDS.iter().flat_map(|name| headers.get_all(name));
    let fields = fields.map(|value| Cow::Borrowed(value.as_bytes()));
    let parameters = query.into_iter().flat_map(parameters).filter(|own| is_override(*own));
    let mut values = fields.chain(parameters.map(Parameter::value));
    let Some(first) = values.next() else { return Ok(None) };
    if !values.all(|value| value.eq_ignore_ascii_case(&first)) {
        return Err(OverrideError::Ambiguous);
    }
    if first.eq_ignore_ascii_case(method.as_str().as_bytes()) {
        return Ok(None);
    }
    // Spring takes only these; Symfony has no GET or HEAD among its own, and Rack passes over what
    // it does not know.
    let taken_by_all = [Method::PUT, Method::PATCH, Method::DELETE];
    let is_named = |own: &Method| first.eq_ignore_ascii_case(own.as_str().as_bytes());
    match taken_by_all.into_iter().find(is_named) {
        Some(other) if *method == Method::POST => Ok(Some(other)),
        _ => Err(OverrideError::Ambiguous),
    }
}

/// Checks that no field overrides the method of a request that goes on as it is.
///
/// # Errors
/// [`OverrideError::NotDropped`] for a field that `mode` would take out.
pub fn check_undropped(headers: &HeaderMap, mode: MethodOverride) -> Result<(), OverrideError> {
    let is_dropped = |name: &HeaderName| match mode {
        MethodOverride::Drop => is_spelled_like_one(name),
        MethodOverride::Match => is_spelled_like_one(name) && !FIELDS.contains(name),
        MethodOverride::Ignore => false,
    };
    match headers.keys().any(is_dropped) {
        true => Err(OverrideError::NotDropped),
        false => Ok(()),
    }
}

/// A query without what overrides the method.
pub fn without_overrides(query: &str) -> Cow<'_, str> {
    filtered(query, |parameter| !is_override(*parameter))
}

/// Whether servers look for such a parameter, or may find one behind a semicolon in it.
fn is_override(parameter: Parameter<'_>) -> bool {
    let is_one = |parameter: Parameter<'_>| PARAMETERS.iter().any(|own| parameter.is_like(own));
    is_one(parameter) || parameter.after_semicolons().any(is_one)
}

/// Whether servers that make a variable of a name (RFC 3875 section 4.1.18) take this for one of
/// the fields.
fn is_spelled_like_one(name: &HeaderName) -> bool {
    let is_like =
        |own: u8, other: u8| own == other || own == b'-' && !other.is_ascii_alphanumeric();
    FIELDS.iter().map(|field| field.as_str().as_bytes()).any(|field| {
        let name = name.as_str().as_bytes();
        field.len() == name.len() && field.iter().zip(name).all(|(own, byte)| is_like(*own, *byte))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        fields.collect()
    }

    #[test]
    fn post_is_taken_for_the_method_that_its_fields_name() {
        for fields in [
            &[("x-http-method-override", "DELETE")][..],
            &[("x-http-method", "delete")],
            &[("x-method-override", "Delete")],
            &[("x-method-override", "DELETE"), ("x-http-method", "delete")],
        ] {
            let found = overriding_method(&Method::POST, &headers(fields), None);
            assert_eq!(found, Ok(Some(Method::DELETE)), "{fields:?}");
        }
        let same = headers(&[("x-http-method", "post")]);
        assert_eq!(overriding_method(&Method::POST, &same, None), Ok(None));
        assert_eq!(overriding_method(&Method::GET, &HeaderMap::new(), None), Ok(None));
    }

    #[test]
    fn override_that_servers_read_differently_is_ambiguous() {
        for (method, fields) in [
            (Method::POST, &[("x-http-method", "PUT"), ("x-method-override", "DELETE")][..]),
            (Method::POST, &[("x-http-method", "PUT"), ("x-http-method", "GET")]),
            (Method::POST, &[("x-http-method", "")]),
            (Method::POST, &[("x-http-method", "PUT, GET")]),
            (Method::POST, &[("x-http-method", "GET")]),
            (Method::POST, &[("x-http-method", "FOO")]),
            (Method::DELETE, &[("x-http-method", "GET")]),
            (Method::GET, &[("x-http-method", "DELETE")]),
        ] {
            let found = overriding_method(&method, &headers(fields), None);
            assert_eq!(found, Err(OverrideError::Ambiguous), "{method} {fields:?}");
        }
    }

    #[test]
    fn parameter_of_the_query_names_the_method_however_it_is_spelled() {
        let none = HeaderMap::new();
        for query in [
            "_method=DELETE",
            "a=b&_method=delete&c",
            "%5Fm%65thod=%44ELETE",
            ".method=DELETE",
            "+_method=DELETE",
            "_method[]=DELETE",
            "[_method]=DELETE",
            "%5B_method%5D[]=DELETE",
            "_method%00x=DELETE",
            "_METHOD=DELETE",
            "X-HTTP-Method-Override=DELETE",
            "_method=DELETE&_method=delete",
        ] {
            let found = overriding_method(&Method::POST, &none, Some(query));
            assert_eq!(found, Ok(Some(Method::DELETE)), "{query}");
            assert!(!without_overrides(query).contains("ethod"), "{query}");
        }
        for query in ["method=DELETE", "a=_method", "__method=DELETE", "_methods=DELETE", ""] {
            let found = overriding_method(&Method::POST, &none, Some(query));
            assert_eq!((found, without_overrides(query)), (Ok(None), query.into()), "{query}");
        }
        // Some servers end a parameter at a semicolon.
        let split = "a=b;_method=DELETE";
        for query in ["_method", "_method=", "_method=DELETE&_method=PUT", "_method=GET", split] {
            let found = overriding_method(&Method::POST, &none, Some(query));
            assert_eq!(found, Err(OverrideError::Ambiguous), "{query}");
        }
        let put = headers(&[("x-http-method", "PUT")]);
        let found = overriding_method(&Method::POST, &put, Some("_method=DELETE"));
        assert_eq!(found, Err(OverrideError::Ambiguous));
        assert_eq!(without_overrides("a=1&_method=PUT&b=%5F"), "a=1&b=%5F");
        assert_eq!(without_overrides("a=1&b;_method=PUT&c"), "a=1&c");
    }

    #[test]
    fn field_that_is_not_dropped_is_refused_in_all_spellings() {
        let dropped = Err(OverrideError::NotDropped);
        for (name, by_drop, by_match) in [
            ("x-http-method-override", dropped, Ok(())),
            ("x_http_method_override", dropped, dropped),
            ("x.method.override", dropped, dropped),
            ("x-http_method", dropped, dropped),
            ("x-http-methods", Ok(()), Ok(())),
            ("accept", Ok(()), Ok(())),
        ] {
            let headers = headers(&[(name, "DELETE")]);
            assert_eq!(check_undropped(&headers, MethodOverride::Drop), by_drop, "{name}");
            assert_eq!(check_undropped(&headers, MethodOverride::Match), by_match, "{name}");
            assert_eq!(check_undropped(&headers, MethodOverride::Ignore), Ok(()), "{name}");
        }
    }
}
