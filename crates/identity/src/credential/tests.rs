//! Where credentials are found, and what is removed from the request.

use http::HeaderValue;

use super::*;

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn sources() -> TokenSources {
    TokenSources {
        header: Some(HeaderName::from_static("x-token")),
        cookie: Some("session".into()),
        query: Some("access_token".into()),
        api_key: Some(HeaderName::from_static("x-api-key")),
        ..TokenSources::default()
    }
}

#[test]
fn token_is_found_where_the_policy_looks() {
    use CredentialError::*;
    for (fields, expected) in [
        (&[][..], Ok(None)),
        (&[("authorization", "Bearer abc")], Ok(Some("abc"))),
        (&[("authorization", "bEARER   abc")], Ok(Some("abc"))),
        (&[("authorization", "Basic abc")], Ok(None)),
        (&[("authorization", "Bearerabc")], Err(Malformed)),
        (&[("authorization", "Bearer: abc")], Err(Malformed)),
        (&[("authorization", "Bearer abc def")], Err(Malformed)),
        (&[("authorization", "Beare")], Ok(None)),
        (&[("authorization", "")], Ok(None)),
        (&[("authorization", "Bearer")], Err(Empty)),
        (&[("authorization", "Bearer ")], Err(Empty)),
        (&[("authorization", "Bearer \tabc")], Err(Malformed)),
        (&[("authorization", "Bearer a"), ("authorization", "Bearer a")], Err(Several)),
        (&[("authorization", "Basic a"), ("authorization", "Bearer a")], Err(Several)),
        (&[("x-token", "abc")], Ok(Some("abc"))),
        (&[("x-token", "Bearer abc")], Ok(Some("abc"))),
        (&[("x-token", "bearerabc")], Ok(Some("bearerabc"))),
        (&[("x-token", "Bearer: abc")], Err(Malformed)),
        (&[("x-token", "abc"), ("authorization", "Bearer abc")], Err(Several)),
        (&[("x-token", "abc"), ("authorization", "Basic abc")], Ok(Some("abc"))),
        (&[("cookie", "a=b; session=abc; c=d")], Ok(Some("abc"))),
        (&[("cookie", "session=\"abc\"")], Ok(Some("abc"))),
        (&[("cookie", "Session = abc")], Ok(Some("abc"))),
        (&[("cookie", "xsession=abc")], Ok(None)),
        (&[("cookie", "session=a; session=b")], Err(Several)),
        (&[("cookie", "session=a"), ("cookie", "session=a")], Err(Several)),
        (&[("cookie", "session=")], Err(Empty)),
    ] {
        let headers = headers(fields);
        let found = sources().find(&headers, None).map(|found| found.map(|c| c.token));
        let expected = expected.map(|token| token.map(|token| Cow::from(token.as_bytes())));
        assert_eq!(found, expected, "{fields:?}");
    }
}

#[test]
fn token_in_the_query_is_the_only_credential() {
    use CredentialError::*;
    let bearer = headers(&[("authorization", "Bearer abc")]);
    let none = headers(&[]);
    for (headers, query, expected) in [
        (&none, "a=1&access_token=abc&b=2", Ok(Some("abc"))),
        (&none, "access%5Ftoken=a%2Bc", Ok(Some("a+c"))),
        (&none, "a=1", Ok(None)),
        (&none, "xaccess_token=abc", Ok(None)),
        // Some servers take these for it.
        (&none, "Access_Token=abc", Err(Malformed)),
        (&none, "access.token=abc", Err(Malformed)),
        (&none, "access_token[]=abc", Err(Malformed)),
        (&none, "[access_token]=abc", Err(Malformed)),
        (&none, "a=1;access_token=abc", Err(Malformed)),
        (&none, "access_token=abc&access+token=abc", Err(Malformed)),
        (&none, "access_token=", Err(Empty)),
        (&none, "access_token", Err(Empty)),
        (&none, "access_token=a&access_token=a", Err(Several)),
        (&none, "access_token=a&access%5ftoken=b", Err(Several)),
        (&bearer, "access_token=abc", Err(Several)),
    ] {
        let found = sources().find(headers, Some(query)).map(|found| found.map(|c| c.token));
        let expected = expected.map(|token| token.map(|token| Cow::from(token.as_bytes())));
        assert_eq!(found, expected, "{query}");
    }
}

#[test]
fn api_key_is_a_credential_like_others() {
    let found = |fields| {
        let headers = headers(fields);
        sources().find(&headers, None).map(|found| found.map(|credential| credential.source))
    };
    assert_eq!(found(&[("x-api-key", "a.b")]), Ok(Some(CredentialSource::KeyHeader)));
    assert_eq!(found(&[("x-api-key", "")]), Err(CredentialError::Empty));
    let both = [("x-api-key", "a.b"), ("authorization", "Bearer abc")];
    assert_eq!(found(&both), Err(CredentialError::Several));
}

#[test]
fn token_is_removed_and_the_rest_stays() {
    let mut headers = headers(&[
        ("authorization", "Bearer abc"),
        ("x-token", "abc"),
        ("cookie", "a=b; session=abc; c=d"),
    ]);
    sources().strip(&mut headers);
    assert_eq!(headers.len(), 1);
    assert_eq!(headers["cookie"], "a=b; c=d");
}

#[test]
fn no_spelling_of_the_cookie_is_left_in() {
    let mut headers = headers(&[("cookie", "a=b; SESSION =abc; c=d")]);
    sources().strip(&mut headers);
    assert_eq!(headers["cookie"], "a=b; c=d");
}

#[test]
fn credentials_of_another_scheme_are_removed_unless_the_policy_forwards_them() {
    let fields = [("authorization", "Basic abc"), ("cookie", "session=abc")];
    let mut dropped = headers(&fields);
    sources().strip(&mut dropped);
    assert_eq!(dropped.len(), 0);
    let sources = TokenSources { other_schemes: OtherSchemes::Forward, ..sources() };
    let mut kept = headers(&fields);
    sources.strip(&mut kept);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept["authorization"], "Basic abc");
    let mut malformed = headers(&[("authorization", "Bearer:abc")]);
    sources.strip(&mut malformed);
    assert_eq!(malformed.len(), 0);
}
