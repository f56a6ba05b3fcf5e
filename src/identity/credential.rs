//! Finding the one token of a request.
//!
//! `Authorization: Bearer`, and a header, a cookie or a query parameter if the policy names one, and
//! the header of API keys. Two credentials are an error and not a choice: two readers could choose
//! differently (RFC 6750 section 3.1).

mod query;

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderName, header};

use super::cookies::{cookie_values, strip_cookie};

/// Where tokens come from, and whether the upstream sees them.
#[derive(Clone, Debug, Default)]
pub struct TokenSources {
    /// A header beside `Authorization`.
    pub header: Option<HeaderName>,
    /// A cookie.
    pub cookie: Option<Box<str>>,
    /// A query parameter.
    pub query: Option<Box<str>>,
    /// The header that carries API keys.
    pub api_key: Option<HeaderName>,
    /// Whether the token stays in the request that is forwarded.
    pub forward: bool,
}

/// A token or a key as it came, not verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential<'r> {
    /// Its bytes.
    pub token: Cow<'r, [u8]>,
    /// Where it was.
    pub place: Place,
}

/// Where a token was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `Authorization: Bearer`.
    Authorization,
    /// The header that the policy names.
    Header,
    /// The cookie that the policy names.
    Cookie,
    /// The query parameter that the policy names.
    Query,
    /// The header of API keys.
    ApiKey,
}

impl fmt::Debug for Credential<'_> {
    /// Does not tell the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({:?})", self.place)
    }
}

/// Why a request's credentials cannot be read as one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// More than one `Authorization` field, or tokens in two places.
    #[error("more than one credential")]
    Several,
    /// `Bearer` and nothing after it.
    #[error("a bearer credential without a token")]
    Empty,
}

impl TokenSources {
    /// The request's token, if it has one.
    ///
    /// # Errors
    /// [`CredentialError`] if there are several, or an empty one.
    pub fn find<'r>(
        &self,
        headers: &'r HeaderMap,
        query: Option<&'r str>,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let found = [
            self.in_authorization(headers)?,
            self.in_header(headers)?,
            self.in_cookie(headers)?,
            self.in_query(query)?,
            self.as_api_key(headers)?,
        ];
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(CredentialError::Several),
            (credential, None) => Ok(credential),
        }
    }

    /// Whether a credential may be in this header.
    pub fn reads(&self, name: &HeaderName) -> bool {
        self.header.iter().chain(&self.api_key).any(|header| header == name)
    }

    /// Takes the token out of a request that goes on to the upstream, unless the policy keeps it.
    pub fn strip(&self, headers: &mut HeaderMap) {
        if self.forward {
            return;
        }
        if let Ok(Some(_)) = self.in_authorization(headers) {
            headers.remove(header::AUTHORIZATION);
        }
        for name in self.header.iter().chain(&self.api_key) {
            headers.remove(name);
        }
        if let Some(name) = &self.cookie {
            strip_cookie(headers, name);
        }
    }

    /// Takes out what is shown to nobody but this proxy, also where it looks at no credentials: those
    /// of other kinds may be the upstream's own.
    pub fn strip_keys(&self, headers: &mut HeaderMap) {
        if let Some(name) = self.api_key.as_ref().filter(|_| !self.forward) {
            headers.remove(name);
        }
    }

    /// The query without the token, if it may have one: URLs are logged wherever they come by.
    pub fn strip_query<'q>(&self, query: &'q str) -> Cow<'q, str> {
        match &self.query {
            Some(name) => query::without(query, name),
            None => Cow::Borrowed(query),
        }
    }

    fn in_authorization<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(value) = only(headers, &header::AUTHORIZATION)? else { return Ok(None) };
        let Some(token) = bearer(value) else { return Ok(None) };
        credential(token, Place::Authorization).map(Some)
    }

    fn in_header<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(name) = self.header.as_ref().filter(|name| *name != header::AUTHORIZATION) else {
            return Ok(None);
        };
        let Some(value) = only(headers, name)? else { return Ok(None) };
        credential(bearer(value).unwrap_or(value), Place::Header).map(Some)
    }

    fn in_cookie<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(name) = &self.cookie else { return Ok(None) };
        let mut values = cookie_values(headers, name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(CredentialError::Several),
            (Some(token), None) => credential(token, Place::Cookie).map(Some),
        }
    }

    fn in_query<'r>(
        &self,
        query: Option<&'r str>,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let (Some(name), Some(query)) = (&self.query, query) else { return Ok(None) };
        let mut values = query::values(query, name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(CredentialError::Several),
            (Some(token), None) => credential(token, Place::Query).map(Some),
        }
    }

    fn as_api_key<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(name) = &self.api_key else { return Ok(None) };
        let Some(key) = only(headers, name)? else { return Ok(None) };
        credential(key, Place::ApiKey).map(Some)
    }
}

fn credential<'r>(
    token: impl Into<Cow<'r, [u8]>>,
    place: Place,
) -> Result<Credential<'r>, CredentialError> {
    let token = token.into();
    if token.is_empty() {
        return Err(CredentialError::Empty);
    }
    Ok(Credential { token, place })
}

fn only<'r>(
    headers: &'r HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'r [u8]>, CredentialError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(CredentialError::Several),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

/// What follows `Bearer` and a run of spaces; none for another scheme.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
    let ends_there = rest.first().is_none_or(|byte| *byte == b' ');
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    (is_bearer && ends_there).then(|| rest.split_at(spaces).1)
}

#[cfg(test)]
mod tests {
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
            forward: false,
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
            (&[("authorization", "Bearerabc")], Ok(None)),
            (&[("authorization", "Bearer")], Err(Empty)),
            (&[("authorization", "Bearer ")], Err(Empty)),
            (&[("authorization", "Bearer \tabc")], Ok(Some("\tabc"))),
            (&[("authorization", "Bearer a"), ("authorization", "Bearer a")], Err(Several)),
            (&[("authorization", "Basic a"), ("authorization", "Bearer a")], Err(Several)),
            (&[("x-token", "abc")], Ok(Some("abc"))),
            (&[("x-token", "Bearer abc")], Ok(Some("abc"))),
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
    fn token_may_be_in_the_query_and_nowhere_else_then() {
        use CredentialError::*;
        let bearer = headers(&[("authorization", "Bearer abc")]);
        let none = headers(&[]);
        for (headers, query, expected) in [
            (&none, "a=1&access_token=abc&b=2", Ok(Some("abc"))),
            (&none, "access%5Ftoken=a%2Bc", Ok(Some("a+c"))),
            (&none, "a=1", Ok(None)),
            (&none, "xaccess_token=abc", Ok(None)),
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
            sources().find(&headers, None).map(|found| found.map(|credential| credential.place))
        };
        assert_eq!(found(&[("x-api-key", "a.b")]), Ok(Some(Place::ApiKey)));
        assert_eq!(found(&[("x-api-key", "")]), Err(CredentialError::Empty));
        let both = [("x-api-key", "a.b"), ("authorization", "Bearer abc")];
        assert_eq!(found(&both), Err(CredentialError::Several));
    }

    #[test]
    fn token_is_taken_out_and_the_rest_stays() {
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
    fn credentials_of_another_scheme_stay() {
        let mut headers = headers(&[("authorization", "Basic abc"), ("cookie", "session=abc")]);
        sources().strip(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["authorization"], "Basic abc");
    }
}
