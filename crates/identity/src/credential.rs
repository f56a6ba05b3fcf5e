//! Finds the one credential of a request.
//!
//! It may be in `Authorization`, by the schemes that the policy lists, in a header, cookie or query
//! parameter that the policy names, or in the header of API keys. Two credentials are an error,
//! since two servers could choose differently between them (RFC 6750 section 3.1).

mod authorization;
mod query;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt};

use http::{HeaderMap, HeaderName, header};
use tollgate_keyword::keywords;

pub(super) use self::authorization::BASE64;
pub use self::authorization::{KNOWN_SCHEME_NAMES, Scheme};
use self::authorization::{SchemeCredential, known_name, read_scheme};
use super::{
    api_keys::is_like_a_key,
    cookies::{only_cookie, strip_cookie},
};

/// Where a request may carry a credential, and whether the upstream receives it.
#[derive(Clone, Debug)]
pub struct TokenSources {
    /// The schemes of `Authorization` that carry a token.
    pub schemes: Vec<Scheme>,
    /// The schemes of `Authorization` that carry an API key.
    pub key_schemes: Vec<Scheme>,
    /// A header besides `Authorization`.
    pub header: Option<HeaderName>,
    /// A cookie.
    pub cookie: Option<Box<str>>,
    /// A query parameter.
    pub query: Option<Box<str>>,
    /// The header that carries API keys.
    pub api_key: Option<HeaderName>,
    /// Whether a valid token is forwarded to the upstream.
    pub forward: bool,
    /// What is done with an `Authorization` field of another scheme.
    pub other_schemes: OtherSchemes,
}

impl Default for TokenSources {
    fn default() -> Self {
        TokenSources {
            schemes: vec![Scheme::Bearer],
            key_schemes: Vec::new(),
            header: None,
            cookie: None,
            query: None,
            api_key: None,
            forward: false,
            other_schemes: OtherSchemes::Drop,
        }
    }
}

/// What is done with an `Authorization` field that has no credential for this proxy, on routes that
/// read credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherSchemes {
    /// It is removed: the upstream might find a credential in it that this proxy has not verified.
    #[default]
    Drop,
    /// It is forwarded unchanged.
    Forward,
}

keywords! { OtherSchemes { Drop = "drop", Forward = "forward" } }

/// A token or an API key of a request, not verified.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential<'r> {
    /// Its bytes.
    pub token: Cow<'r, [u8]>,
    /// Where it was found.
    pub source: CredentialSource,
    /// Whether it is read as a token or as an API key.
    pub kind: CredentialKind,
}

/// How a credential is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// As a token of an issuer.
    Token,
    /// As an API key of the policy.
    ApiKey,
}

keywords! {
    /// Where a token was found, as policies name it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum TokenPlace {
        /// In `Authorization`.
        Authorization = "authorization",
        /// In the header that the policy names.
        Header = "header",
        /// In the cookie that the policy names.
        Cookie = "cookie",
        /// In the query parameter that the policy names.
        Query = "query",
    }
}

/// Where a credential was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// `Authorization`, with this scheme.
    Authorization(Scheme),
    /// The header that the policy names.
    Header,
    /// The cookie that the policy names.
    Cookie,
    /// The query parameter that the policy names.
    Query,
    /// The header of API keys.
    KeyHeader,
}

impl CredentialSource {
    /// The place of a token. None: only API keys are there.
    pub(super) fn place(self) -> Option<TokenPlace> {
        match self {
            CredentialSource::Authorization(_) => Some(TokenPlace::Authorization),
            CredentialSource::Header => Some(TokenPlace::Header),
            CredentialSource::Cookie => Some(TokenPlace::Cookie),
            CredentialSource::Query => Some(TokenPlace::Query),
            CredentialSource::KeyHeader => None,
        }
    }
}

impl fmt::Debug for Credential<'_> {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({:?})", self.source)
    }
}

/// Why a request's credentials cannot be read as one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// More than one `Authorization` field, or credentials from two sources.
    #[error("more than one credential")]
    Several,
    /// A scheme with nothing after it, or a header, cookie or parameter without a value.
    #[error("a credential without a token")]
    Empty,
    /// A malformed scheme, or bytes that no token has. Other servers may still read a token from
    /// it.
    #[error("a malformed credential")]
    Malformed,
}

impl TokenSources {
    /// The request's credential, if it has one.
    ///
    /// # Errors
    /// [`CredentialError`] if there are several, or one that is empty or malformed.
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
            //= rfc6750#section-2
            //# Clients MUST NOT use more than one method to transmit the token in each request
            (_, Some(_)) => Err(CredentialError::Several),
            (credential, None) => Ok(credential),
        }
    }

    /// All schemes of `Authorization` that carry a credential, those of tokens first.
    pub fn all_schemes(&self) -> impl Iterator<Item = Scheme> {
        let only_keys = self.key_schemes.iter().filter(|scheme| !self.schemes.contains(scheme));
        self.schemes.iter().chain(only_keys).copied()
    }

    /// The scheme of an `Authorization` field that has no credential for this proxy: its position
    /// among the [`KNOWN_SCHEME_NAMES`], and its name. An unknown scheme has no name, since a part
    /// of the value that looks like a scheme may be a secret.
    pub fn unread_scheme(&self, headers: &HeaderMap) -> Option<(usize, Option<&'static str>)> {
        let value = headers.get(header::AUTHORIZATION)?;
        if !matches!(self.in_authorization(headers), Ok(None)) {
            return None;
        }
        let known = known_name(value.as_bytes());
        Some(known.map_or((KNOWN_SCHEME_NAMES, None), |(at, name)| (at, Some(name))))
    }

    /// The headers besides `Authorization` that may carry a credential.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.header.iter().chain(&self.api_key)
    }

    /// Whether this header may carry a credential.
    pub fn reads(&self, name: &HeaderName) -> bool {
        self.headers().any(|header| header == name)
    }

    /// Removes all tokens and API keys, valid or not, from a request to the upstream.
    //= rfc6750#section-5.2
    //# sufficient measures MUST be employed to ensure confidentiality of the token between the
    //# front-end and back-end servers
    pub fn strip(&self, headers: &mut HeaderMap) {
        // Only a field without a credential for this proxy may go on.
        if self.other_schemes == OtherSchemes::Drop
            || !matches!(self.in_authorization(headers), Ok(None))
        {
            headers.remove(header::AUTHORIZATION);
        }
        for name in self.header.iter().chain(&self.api_key) {
            headers.remove(name);
        }
        if let Some(name) = &self.cookie {
            strip_cookie(headers, name);
        }
    }

    /// Removes an `Authorization` field of another scheme unless the policy forwards it, from a
    /// request whose valid token is forwarded.
    pub fn strip_others(&self, headers: &mut HeaderMap) {
        if self.other_schemes == OtherSchemes::Drop
            && !matches!(self.in_authorization(headers), Ok(Some(_)))
        {
            headers.remove(header::AUTHORIZATION);
        }
    }

    /// Removes API keys, which are for this proxy only, from a request to a route that reads no
    /// credentials. Other credentials may be for the upstream, so they stay.
    pub fn strip_keys(&self, headers: &mut HeaderMap) {
        if self.forward {
            return;
        }
        if let Some(name) = &self.api_key {
            headers.remove(name);
        }
        let is_key = |credential: Credential<'_>| credential.kind == CredentialKind::ApiKey;
        if !self.key_schemes.is_empty()
            && self.in_authorization(headers).is_ok_and(|found| found.is_some_and(is_key))
        {
            headers.remove(header::AUTHORIZATION);
        }
    }

    /// Whether a request with this query, whose credential was taken, had it there.
    pub fn found_in(&self, query: Option<&str>) -> bool {
        matches!(self.in_query(query), Ok(Some(_)))
    }

    /// The names in a query that are those of the policy's parameter, as they are written.
    pub fn query_names<'q>(&'q self, query: &'q str) -> impl Iterator<Item = &'q str> {
        self.query.iter().flat_map(move |name| query::spellings(query, name))
    }

    /// Whether some server may find a token in what this proxy does not read as the query.
    pub fn may_be_in(&self, query: &str) -> bool {
        matches!(self.strip_query(query), Cow::Owned(_))
    }

    /// The query without the token, if the policy names a parameter: upstreams and others log URLs.
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
        let Some(SchemeCredential { scheme, token }) = read_scheme(value, self.all_schemes())?
        else {
            return Ok(None);
        };
        let is_for = |schemes: &[Scheme]| schemes.contains(&scheme);
        let kind = match (is_for(&self.schemes), is_for(&self.key_schemes)) {
            (true, false) => CredentialKind::Token,
            // No token of an issuer has the form of an API key.
            (true, true) if !is_like_a_key(&token) => CredentialKind::Token,
            _ => CredentialKind::ApiKey,
        };
        credential(token, CredentialSource::Authorization(scheme), kind).map(Some)
    }

    fn in_header<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(name) = self.header.as_ref().filter(|name| *name != header::AUTHORIZATION) else {
            return Ok(None);
        };
        let Some(value) = only(headers, name)? else { return Ok(None) };
        // The header may have a token without a scheme, which may begin like the name of a scheme.
        let schemes = self.schemes.iter().copied().filter(|scheme| *scheme != Scheme::Basic);
        let token = match read_scheme(value, schemes) {
            Ok(Some(found)) => found.token,
            Ok(None) | Err(_) => Cow::Borrowed(value),
        };
        credential(token, CredentialSource::Header, CredentialKind::Token).map(Some)
    }

    fn in_cookie<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(name) = &self.cookie else { return Ok(None) };
        let token = only_cookie(headers, name).map_err(|_| CredentialError::Several)?;
        token
            .map(|token| credential(token, CredentialSource::Cookie, CredentialKind::Token))
            .transpose()
    }

    fn in_query<'r>(
        &self,
        query: Option<&'r str>,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let (Some(name), Some(query)) = (&self.query, query) else { return Ok(None) };
        if query::may_hide(query, name) {
            return Err(CredentialError::Malformed);
        }
        let mut values = query::values(query, name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(CredentialError::Several),
            (Some(token), None) => {
                credential(token, CredentialSource::Query, CredentialKind::Token).map(Some)
            }
        }
    }

    fn as_api_key<'r>(
        &self,
        headers: &'r HeaderMap,
    ) -> Result<Option<Credential<'r>>, CredentialError> {
        let Some(name) = &self.api_key else { return Ok(None) };
        let Some(key) = only(headers, name)? else { return Ok(None) };
        credential(key, CredentialSource::KeyHeader, CredentialKind::ApiKey).map(Some)
    }
}

fn credential<'r>(
    token: impl Into<Cow<'r, [u8]>>,
    source: CredentialSource,
    kind: CredentialKind,
) -> Result<Credential<'r>, CredentialError> {
    let token = token.into();
    if token.is_empty() {
        return Err(CredentialError::Empty);
    }
    // Opaque tokens may have more characters than RFC 6750 section 2.1 allows, but none that some
    // servers read as white space or as the end of the token. The loop has no early exit, so that
    // the compiler can vectorize it.
    let is_visible = token.iter().fold(true, |so_far, byte| so_far & byte.is_ascii_graphic());
    if !is_visible {
        return Err(CredentialError::Malformed);
    }
    Ok(Credential { token, source, kind })
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
